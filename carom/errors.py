"""The one exception that reaches a user as a sentence."""

from typing import Any, get_args


class InputError(Exception):
    """Something the user gave cannot be used: one sentence says what, where, and what to do.

    The command line prints the message and exits with status 2; no traceback, nothing half-written. It is no
    `ValueError`, which others catch: the parser of the command line would frame the message as its own.
    """


def require_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a word that is not among those of a `Literal`; type checkers see it earlier, users may not."""
    words = get_args(choices)
    if value not in words:
        raise InputError(f"{name} must be one of {', '.join(map(repr, words))}, but it is {value!r}.")
