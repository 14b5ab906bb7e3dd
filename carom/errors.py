"""The one exception that reaches a user as a sentence."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, get_args

MAXIMUM_SEED = 2**32 - 1


class InputError(Exception):
    """Something the user gave cannot be used: one sentence says what, where, and what to do.

    The command line prints the message and exits with status 2; no traceback, nothing half-written. It is no
    `ValueError`, which others catch: the parser of the command line would frame the message as its own.
    """


class SettingsError(InputError):
    """Settings that cannot be used. Its message names fields in backquotes: `learning_rate`; the command line
    shows the options instead: --learning-rate.
    """


def as_options(message: str) -> str:
    """A message that names fields in backquotes, with the options of the command line in their place.

    Example:
        >>> as_options("`learning_rate` must be positive, but it is 0.")
        '--learning-rate must be positive, but it is 0.'
    """
    return re.sub(r"`([a-z0-9_.]+)`", lambda field: "--" + field[1].replace("_", "-"), message)


def require_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a word that is not among those of a `Literal`; type checkers see it earlier, users may not."""
    words = get_args(choices)
    if value not in words:
        raise InputError(f"{name} must be one of {', '.join(map(repr, words))}, but it is {value!r}.")


def require_range(option: str, value: int, low: int, high: int) -> None:
    """Refuse a whole number outside low…high."""
    if not low <= value <= high:
        raise InputError(f"{option} must lie between {low} and {high}, but it is {value}.")


def require_seed(seed: int, option: str = "--seed") -> None:
    """Refuse what does not fit the 32 bits of a random key."""
    require_range(option, seed, 0, MAXIMUM_SEED)


def find_names(names: Sequence[str], known: Iterable[str], *, kind: str = "experiment") -> list[str]:
    """Those of `known` that begin with one of `names`; all of them where none is given."""
    known = list(known)
    for name in names:
        if not any(other.startswith(name) for other in known):
            raise InputError(f"There is no {kind} {name}; the names are {', '.join(known)}.")
    return [name for name in known if not names or name.startswith(tuple(names))]
