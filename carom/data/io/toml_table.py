"""Typed access to one table of a TOML file, with a complaint for every wrong key, type and value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carom.errors import InputError
from carom.storage.input_file import complaint, shown, suggestion


@dataclass(frozen=True)
class TomlTable:
    """One table of a file.

    Arguments:
        path: the file, for complaints.
        title: the table as it stands in the file, such as "[system]", for complaints.
        values: what the file has in this place, which should be a table.
        keys: the keys that the table may have.
    """

    path: Path
    title: str
    values: Any
    keys: Sequence[str]

    def __post_init__(self):
        if not isinstance(self.values, dict):
            raise complaint(
                self.path, f"this must be a table; write {self.title} on a line of its own", self.title
            )
        for key in self.values:
            if key not in self.keys:
                raise self.wrong(key, f"there is no such key; {suggestion(key, self.keys)}")

    def wrong(self, key: str, problem: str) -> InputError:
        """The complaint about the value of a key."""
        return complaint(self.path, problem, self.title, key)

    def require(self, key: str) -> Any:
        """The value of a key that cannot be left out."""
        if key not in self.values:
            raise self.wrong(key, "the key is missing; add it")
        return self.values[key]

    def whole(self, key: str, *, maximum: int, minimum: int = 1) -> int:
        """A whole number from `minimum` to `maximum`."""
        value = self.require(key)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            problem = f"write a whole number from {minimum} to {maximum}, not {as_written(value)}"
            raise self.wrong(key, problem)
        return value

    def text(self, key: str) -> str:
        """A text that is not empty."""
        value = self.require(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, f"write a text in quotes, not {as_written(value)}")
        return value

    def number(self, key: str, *, default: float) -> float:
        """A finite number."""
        return self._finite(key, self.values.get(key, default))

    def numbers(self, key: str, *, length: int, per: str) -> tuple[float, ...]:
        """A list of finite numbers, one `per` something."""
        return self._vector(key, self.require(key), length, per)

    def rows(self, key: str, *, rows: int, length: int) -> tuple[tuple[float, ...], ...]:
        """A list with a position for every body."""
        value = self.require(key)
        if not isinstance(value, list) or len(value) != rows:
            problem = f"write a list of {rows} positions, one per body, not {as_written(value)}"
            raise self.wrong(key, problem)
        return tuple(self._vector(key, row, length, "dimension") for row in value)

    def matrix(self, key: str, *, length: int, what: str) -> tuple[tuple[float, ...], ...]:
        """A list of rows of numbers, none if it is left out."""
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, f"write a list of rows, each {what}, not {as_written(value)}")
        return tuple(self._vector(key, row, length, f"entry of {what}") for row in value)

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, f"write true or false, not {as_written(value)}")
        return value

    def choice(self, key: str, *, choices: Sequence[str], default: str) -> str:
        """One of several words."""
        value = self.values.get(key, default)
        if value not in choices:
            raise self.wrong(
                key, f"write one of {', '.join(map(as_written, choices))}, not {as_written(value)}"
            )
        return value

    def words(self, key: str, *, choices: Sequence[str]) -> tuple[str, ...]:
        """Some of several words, each at most once; none by default."""
        value = self.values.get(key, [])
        if (
            not isinstance(value, list)
            or any(word not in choices for word in value)
            or len({*value}) < len(value)
        ):
            allowed = ", ".join(map(as_written, choices))
            raise self.wrong(key, f"write a list with some of {allowed}, not {as_written(value)}")
        return tuple(value)

    def name(self, key: str, *, default: str | None) -> str | None:
        """The name of a column."""
        value = self.values.get(key, default)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.wrong(key, f"write the name of a column in quotes, not {as_written(value)}")
        return value

    def names(self, key: str, *, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """The names of several columns."""
        value = self.values.get(key, list(default))
        if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
            raise self.wrong(key, f'write a list of columns such as ["q1"], not {as_written(value)}')
        return tuple(value)

    def _vector(self, key: str, value: Any, length: int, per: str) -> tuple[float, ...]:
        if not isinstance(value, list) or len(value) != length:
            count = f"{length} number{'' if length == 1 else 's'}"
            raise self.wrong(key, f"write a list of {count}, one per {per}, not {as_written(value)}")
        return tuple(self._finite(key, component) for component in value)

    def _finite(self, key: str, value: Any) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:  # TOML has whole numbers of any length
                number = math.inf
            if math.isfinite(number):
                return number
        raise self.wrong(key, f"write a finite number, not {as_written(value)}")


def as_written(value: Any) -> str:
    """A value much as it stands in the file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{shown(value)}"'
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a huge number"  # Python refuses to print whole numbers beyond some thousand digits
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list) and len(value) > 8:
        return f"a list of {len(value)}"
    return shown(value)
