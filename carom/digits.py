"""Numbers in text: with the digits that are significant, or with a noun."""

import math
from collections.abc import Mapping
from typing import Any

MISSING = "–"
"""What a table shows where there is no number."""


def number(value: float) -> str:
    """Three significant digits.

    Example:
        >>> [number(value) for value in (0.06789, 1.9, 12345.0, 0.0, 2.34e-7, float("inf"))]
        ['0.0679', '1.90', '12345', '0', '2.3e-07', 'diverged']
    """
    if not math.isfinite(value):
        return "diverged"
    size = abs(value)
    if size == 0:
        return "0"
    # Zeros before or after the digits are harder to count than an exponent is to read.
    if size < 1e-4 or size >= 1e6:
        return f"{value:.1e}"
    return f"{value:.{_decimals(size, 3)}f}"


def to_error(value: float, error: float | None) -> str:
    """A number to the second digit of its error.

    Example:
        >>> to_error(3.78912, 0.0234), to_error(-1370.4567, 0.05), to_error(0.9, 3.2e-7)
        ('3.789', '-1370.457', '0.90000000')
        >>> to_error(6.123e-5, 4.2e-6), to_error(0.0, 4.2e-6)
        ('6.12e-05', '0.0000000')
    """
    if error is None or error == 0 or not (math.isfinite(value) and math.isfinite(error)):
        return number(value)
    if 0 < abs(value) < 1e-4 and error < 1e-4:
        digits = max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(error)) + 1)
        return f"{value:.{min(digits, 9)}e}"
    decimals = _decimals(error, 2)
    # Beyond that it is longer than anybody reads, and what double precision holds.
    return f"{value:.{decimals}f}" if decimals <= 10 and abs(value) < 1e10 else f"{value:.10g}"


def mean_and_error(mean: float, error: float | None) -> str:
    """A mean to the second digit of its error, with that error.

    Example:
        >>> mean_and_error(3.78912, 0.0234), mean_and_error(1.9, 1.0), mean_and_error(0.538, None)
        ('3.789 ± 0.023', '1.9 ± 1.0', '0.538')
        >>> mean_and_error(0.9, 3.2e-7), mean_and_error(-1370.4567, 0.05)
        ('0.90000000 ± 3.2e-07', '-1370.457 ± 0.050')
    """
    if error is None or error == 0 or not (math.isfinite(mean) and math.isfinite(error)):
        return number(mean)
    shown = number(error) if error < 1e-4 or error >= 1e6 else f"{error:.{_decimals(error, 2)}f}"
    return f"{to_error(mean, error)} ± {shown}"


def signed(value: float) -> str:
    """Three significant digits with a sign.

    Example:
        >>> signed(0.4), signed(-12.0)
        ('+0.400', '−12.0')
    """
    return ("+" if value >= 0 else "−") + number(abs(value))


def _decimals(size: float, digits: int) -> int:
    """Decimals that show `digits` significant digits, none where the number is large."""
    return max(0, digits - 1 - math.floor(math.log10(size)))


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "run"), counted(0, "run"), counted(2, "body", "bodies")
        ('1 run', '0 runs', '2 bodies')
    """
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def finite(value: Any) -> Any:
    """The same with None for every number that is not finite, which JSON does not have.

    Example:
        >>> finite({"error": math.inf, "seeds": (1, 2.0)})
        {'error': None, 'seeds': [1, 2.0]}
    """
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
