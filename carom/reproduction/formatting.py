"""Numbers as people read them."""

from collections.abc import Sequence

from carom.digits import mean_and_error
from carom.reproduction.paper.experiments import PaperNumber
from carom.reproduction.paper.statistics import Share, Spread


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
