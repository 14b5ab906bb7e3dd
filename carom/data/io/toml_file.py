"""TOML files that users write: declared once as Pydantic models, read, checked, and written with comments.

A file is a model whose fields are its tables; a table is a model whose fields are its keys. Each key states
its type, its bounds, and in its docstring a comment for people. Everything else follows from that: reading,
the sentence for whatever is wrong, and the text.
"""

import inspect
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import ErrorDetails

from carom.errors import InputError
from carom.storage.input_file import complaint, not_utf8, require_file, shown, suggestion, unreadable
from carom.validation import in_words

MAXIMUM_BYTES = 2**20
"""The largest file that is read."""
_MAXIMUM_DOTS = 200
# A dot that is not the only one of a number. Python's parser takes quadratic time for keys such as a.a.a.a…
_DOT_OF_KEY = re.compile(r"(?<![0-9])\.|\.(?![0-9])|\.[0-9]+(?=\.)")

# Scalars are strict, or true would be read as 1; containers are not, as TOML has lists for tuples.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Name = Annotated[str, Strict(), Field(min_length=1)]
Positive = Annotated[Number, Field(gt=0)]
# A list with a hundred thousand wrong entries needs one error, not as many.
Numbers = Annotated[tuple[Number, ...], Field(fail_fast=True)]
Names = Annotated[tuple[Name, ...], Field(fail_fast=True)]


class TomlTable(BaseModel):
    """One table, or a whole file whose fields are tables."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


Declared = TypeVar("Declared", bound=TomlTable)


def read_toml_text(path: Path, *, kind: str) -> str:
    """The text of a file; `kind` is what it should be, such as "system file", for error messages."""
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind=kind)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        # Editors on Windows put a mark at the beginning.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(path, content[: error.start].count(b"\n") + 1) from None


def parse_toml(path: Path, text: str) -> Mapping[str, Any]:
    """The tables of a TOML text; `path` is for error messages."""
    for number, line in enumerate(text.split("\n"), start=1):
        if sum(1 for _ in _DOT_OF_KEY.finditer(line)) > _MAXIMUM_DOTS:
            raise complaint(path, "there are too many dots; write plain keys", f"line {number}")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        reason = shown(error, length=120)
        problem = f"this is not TOML: {reason[:1].lower()}{reason[1:]}; correct the line"
        raise complaint(path, problem) from error
    except (ValueError, RecursionError) as error:
        # Python's own limits, on the digits of a whole number and on the depth of lists.
        raise complaint(path, "a number is too long or a list too deep; simplify it") from error


def validate(path: Path, declaration: type[Declared], tables: Mapping[str, Any]) -> Declared:
    """The content of a file by its declaration; an error names the table, the key and what is allowed."""
    try:
        return declaration.model_validate(tables)
    except ValidationError as error:
        # A misspelt key often makes another one missing: name the misspelling first.
        errors = sorted(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
        raise _sentence(path, declaration, errors[0]) from None


def _sentence(path: Path, declaration: type[TomlTable], error: ErrorDetails) -> InputError:
    """One error as a sentence."""
    model, title, array, rest = declaration, "", False, list(error["loc"])
    names = []
    while rest and (inner := _table_in(model, rest[0])):
        names.append(str(rest.pop(0)))
        model, array = inner
        title = f"[[{'.'.join(names)}]]" if array else f"[{'.'.join(names)}]"
        if array and rest:
            title, array = f"{title} {int(rest.pop(0)) + 1}", False
    # What remains is the key and, in a table within its value, a key of that; indices of lists say little.
    name, *inside = [part for part in rest if isinstance(part, str)] or [""]
    kind, field = error["type"], model.model_fields.get(name)
    if kind == "value_error":
        problem = str(error.get("ctx", {})["error"])
    elif kind == "extra_forbidden":
        what = "key" if title else "table"
        problem = f"there is no such {what}; {suggestion(name, model.model_fields)}"
    elif kind == "missing":
        problem = "this is missing; add it"
    elif kind == "too_long" or field is not None:
        problem = f"write {in_words(error)}, not {as_written(error['input'])}"
    else:
        problem = f"this must be a table; write {title} on a line of its own"
    return complaint(path, problem, *(place for place in (title, name, *inside) if place))


def _table_in(model: type[TomlTable], name: str | int) -> tuple[type[TomlTable], bool] | None:
    """The model of a table inside another one, and whether it is an array of tables; None for a plain key."""
    field = model.model_fields.get(str(name))
    if field is None:
        return None
    array = get_origin(field.annotation) is tuple
    for part in (field.annotation, *get_args(field.annotation)):
        if inspect.isclass(part) and issubclass(part, TomlTable):
            return part, array
    return None


def as_written(value: object) -> str:
    """A value much as it stands in the file, short enough for a sentence."""
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"  # Python refuses to print whole numbers beyond some thousand digits
    # Its content may be as long as the file.
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return f"a list of {len(value)}" if len(value) > 8 else shown(toml_value(value))
    return f'"{shown(value)}"' if isinstance(value, str) else shown(toml_value(value))


def toml_value(value: object) -> str:
    """A value as TOML text, with nothing in it that a terminal would obey."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return repr(float(value)) if isinstance(value, float) else str(value)  # NumPy's floats say what they are


def format_table(
    name: str,
    declaration: type[TomlTable],
    values: Mapping[str, Any],
    *,
    examples: Mapping[str, Any] | None = None,
    remarks: Mapping[str, str] | None = None,
    number: int | None = None,
) -> list[str]:
    """The lines of a table with the comment of every key.

    Arguments:
        name: of the table, whose first line is commented out where it holds nothing.
        declaration: what the table may hold.
        values: what it holds, by key; None is nothing.
        examples: what could be added by removing the comment sign.
        remarks: what to add to the comments, by table and key such as "wall.offset".
        number: of this table, counted from 1, where there may be several.
    """
    remarks = remarks or {}
    given = {key: value for key, value in values.items() if value is not None}
    title, remark = f"[{name}]", None
    if number is not None:
        title, remark = f"[[{name}]]", remarks.get(f"{name}.{number}")
    lines = [("" if given else "# ") + title + ("" if remark is None else f"  # {remark}")]
    for key, field in declaration.model_fields.items():
        value = given.get(key, (examples or {}).get(key))
        if value is not None:
            remark = remarks.get(f"{name}.{key}")
            comment = " ".join((field.description or "").split()) + ("" if remark is None else f"; {remark}")
            sign = "" if key in given else "# "
            lines.append(f"{sign}{key} = {toml_value(value)}".ljust(32) + f"  # {comment}")
    return lines
