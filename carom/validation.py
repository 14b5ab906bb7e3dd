"""Settings declared once, as dataclasses: bounds and choices stand in the annotations, explanations in the
docstring. Python, TOML files, sweeps and the command line all read that one declaration.
"""

import math
import operator
import types
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import docstring_parser
from annotated_types import Ge, GroupedMetadata, Gt, Le, Lt

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
        carom.errors.SettingsError: `epochs` must lie between 1 and 1000, but it is 0.
    """
    for name in declared_types(type(settings)):
        require_value(type(settings), name, getattr(settings, name), within=within)


def require_value(declaration: type, name: str, value: Any, *, within: str = "") -> None:
    """Refuse a value of one field of a dataclass outside the bounds and choices of its annotation."""
    kind, bounds = declared_types(declaration)[name]
    wanted = ""
    if value is None:
        return
    if get_origin(kind) is Literal and value not in get_args(kind):
        wanted = f"be one of {', '.join(map(repr, get_args(kind)))}"
    elif kind is float and not math.isfinite(value):
        wanted = "be finite"
    elif not all(_satisfies(value, bound) for bound in bounds):
        wanted = _in_words(bounds)
    if wanted:
        place = f"{within}.{name}" if within else name
        raise SettingsError(f"`{place}` must {wanted}, but it is {value!r}.")


@cache
def declared_types(declaration: type) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """The type of every field, less `None` as an alternative, and the bounds in its annotation."""
    hints = get_type_hints(declaration, include_extras=True)
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {}
    for field in fields(declaration):
        kind, bounds = hints[field.name], ()
        if get_origin(kind) is Annotated:
            kind, *metadata = get_args(kind)
            bounds = tuple(
                part for one in metadata for part in (one if isinstance(one, GroupedMetadata) else [one])
            )
        if get_origin(kind) in (Union, types.UnionType):
            alternatives = [part for part in get_args(kind) if part is not types.NoneType]
            if all(get_origin(part) is Literal for part in alternatives):
                kind = Literal[tuple(word for part in alternatives for word in get_args(part))]
            elif len(alternatives) == 1:
                (kind,) = alternatives
        found[field.name] = kind, bounds
    return found


@cache
def documented_fields(declaration: type) -> dict[str, str]:
    """The explanation of every field in the docstrings of a dataclass and its bases."""
    found: dict[str, str] = {}
    for cls in reversed(declaration.__mro__[:-1]):
        parsed = docstring_parser.parse(cls.__doc__ or "")
        found |= {part.arg_name: " ".join((part.description or "").split()) for part in parsed.params}
    return found


_COMPARISONS = {
    Gt: ("gt", operator.gt, "greater than"),
    Ge: ("ge", operator.ge, "at least"),
    Lt: ("lt", operator.lt, "less than"),
    Le: ("le", operator.le, "at most"),
}


def _satisfies(value: Any, bound: Any) -> bool:
    if type(bound) not in _COMPARISONS:  # an annotation for somebody else, such as the command line
        return True
    attribute, holds, _ = _COMPARISONS[type(bound)]
    return holds(value, getattr(bound, attribute))


def _in_words(bounds: tuple[Any, ...]) -> str:
    match bounds:
        case (Ge(low), Le(high)):
            return f"lie between {low} and {high}"
        case (Gt(0),):
            return "be positive"
        case (Ge(0),):
            return "not be negative"
    compared = [(bound, *_COMPARISONS[type(bound)]) for bound in bounds]
    return "be " + " and ".join(f"{words} {getattr(bound, name)}" for bound, name, _, words in compared)
