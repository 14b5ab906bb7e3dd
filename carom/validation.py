"""Settings declared once, as dataclasses: bounds and choices stand in the annotations, explanations in the
docstring. Python, TOML files, sweeps and the command line all read that one declaration.
"""

import types
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import docstring_parser
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from carom.errors import SettingsError


def require_valid(settings: Any, *, within: str = "") -> None:
    """Refuse values outside the bounds and choices of their annotations; for `__post_init__`.

    Arguments:
        settings: an instance of a dataclass.
        within: the field of other settings that it usually belongs to, to name the value in messages.

    Example:
        >>> from annotated_types import Interval
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Training:
        ...     epochs: Annotated[int, Interval(ge=1, le=1000)] = 10
        ...     def __post_init__(self):
        ...         require_valid(self)
        >>> Training(epochs=0)
        Traceback (most recent call last):
        carom.errors.SettingsError: `epochs` must be a number of at least 1, but it is 0.
    """
    for name in declared_types(type(settings)):
        valid_value(type(settings), name, getattr(settings, name), within=within)


def valid_value(declaration: type, name: str, value: Any, *, within: str = "") -> Any:
    """A value of one field of a dataclass, refused outside the bounds and choices of its annotation."""
    checker = _checker(declaration, name)
    if checker is None or value is None:
        return value
    try:
        return checker.validate_python(value)
    except ValidationError as error:
        place = f"{within}.{name}" if within else name
        wanted = in_words(error.errors(include_url=False)[0])
        raise SettingsError(f"`{place}` must be {wanted}, but it is {value!r}.") from None


def in_words(error: ErrorDetails) -> str:
    """What would be right instead of a refused value, completing "write …" and "must be …".

    Example:
        >>> from annotated_types import Ge
        >>> try:
        ...     TypeAdapter(Annotated[int, Ge(1)]).validate_python(0)
        ... except ValidationError as error:
        ...     in_words(error.errors()[0])
        'a number of at least 1'
    """
    context = {
        # Pydantic states the bounds of whole numbers as floats, too.
        key: f"{value:.10g}" if isinstance(value, float) else value
        for key, value in error.get("ctx", {}).items()
    }
    return _WORDS.get(error["type"], error["msg"].removeprefix("Input should be ")).format(**context)


_WORDS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "string_too_short": "text in quotes",
    "tuple_type": "a list",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "literal_error": "{expected}",
}
"""By Pydantic's names of errors, whose own words are for Python: a user of TOML knows no tuple."""


@cache
def _checker(declaration: type, name: str) -> TypeAdapter | None:
    kind, bounds = declared_types(declaration)[name]
    # Others, such as nested settings, check themselves; lax, as NumPy's numbers are welcome.
    if kind not in (int, float) and get_origin(kind) not in (Literal, tuple):
        return None
    accepted: Any = Annotated[kind, "bounds", *bounds]
    return TypeAdapter(accepted, config=ConfigDict(allow_inf_nan=False))


@cache
def declared_types(declaration: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The type of every field, less `None` as an alternative, and the bounds in its annotation."""
    hints = get_type_hints(declaration, include_extras=True)
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for field in fields(declaration):
        kind, bounds = hints[field.name], []
        if get_origin(kind) is Annotated:
            kind, *bounds = get_args(kind)
        if get_origin(kind) in (Union, types.UnionType):
            alternatives = [part for part in get_args(kind) if part is not types.NoneType]
            # Two sets of words are one larger set.
            if all(get_origin(part) is Literal for part in alternatives):
                kind = Literal[tuple(word for part in alternatives for word in get_args(part))]
            elif len(alternatives) == 1:
                (kind,) = alternatives
        found[field.name] = kind, tuple(bounds)
    return found


@cache
def documented_fields(declaration: type) -> dict[str, str]:
    """The explanation of every field in the docstrings of a dataclass and its bases."""
    found: dict[str, str] = {}
    # Bases first: a subclass may explain a field anew.
    for cls in reversed(declaration.__mro__[:-1]):
        parsed = docstring_parser.parse(cls.__doc__ or "")
        found |= {part.arg_name: " ".join((part.description or "").split()) for part in parsed.params}
    return found
