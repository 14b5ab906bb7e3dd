"""Numbers as people read them."""

import math
from collections.abc import Sequence

from carom.experiments.paper import PaperNumber
from carom.experiments.statistics import Share, Spread

MISSING = "–"


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
    if size < 1e-4 or size >= 1e6:
        return f"{value:.1e}"
    return f"{value:.{_decimals(size, 3)}f}"


def mean_and_error(mean: float, error: float | None) -> str:
    """A mean to the second digit of its error.

    Example:
        >>> mean_and_error(3.78912, 0.0234), mean_and_error(1.9, 1.0), mean_and_error(0.538, None)
        ('3.789 ± 0.023', '1.9 ± 1.0', '0.538')
    """
    if error is None or not math.isfinite(mean) or error == 0:
        return number(mean)
    if error < 1e-4 or error >= 1e6:
        return f"{number(mean)} ± {number(error)}"
    decimals = _decimals(error, 2)
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


def printed(paper: PaperNumber) -> str:
    """With the digits that the paper has.

    Example:
        >>> printed(PaperNumber(1.9, 1.0)), printed(PaperNumber(0.067))
        ('1.9 ± 1.0', '0.067')
    """
    decimals = max(len(f"{part:g}".partition(".")[2]) for part in paper if part is not None)
    return " ± ".join(f"{part:.{decimals}f}" for part in paper if part is not None)


def spread_mean(spread: Spread) -> str:
    """Mean and standard error of seeds, or how many of them diverged."""
    if spread.diverged:
        return f"{spread.diverged} of {spread.count} diverged"
    return mean_and_error(spread.mean, spread.standard_error)


def of_total(share: Share) -> str:
    """A share as a count.

    Example:
        >>> of_total(Share(3, 20))
        '3 of 20'
    """
    return f"{share.count} of {share.total}"


def yes(holds: bool) -> str:
    """An answer in a word."""
    return "yes" if holds else "no"


def protocols_in_words(within: Sequence[str], tried: Sequence[str]) -> str:
    """Under which of the protocols something is so.

    Example:
        >>> protocols_in_words(["text"], ["text", "published"]), protocols_in_words([], ["text"])
        ('yes, text', 'no')
        >>> protocols_in_words(["text", "published"], ["text", "published"])
        'yes, text and published'
    """
    if not within:
        return "no" if len(tried) == 1 else "no, in neither"
    return f"yes, {' and '.join(within)}"


def _decimals(size: float, digits: int) -> int:
    """Decimals that show `digits` significant digits, none where the number is large."""
    return max(0, digits - 1 - math.floor(math.log10(size)))
