"""Former names, until every caller is on `carom.evaluation.tables`."""

from carom.digits import mean_and_error
from carom.evaluation.tables import yes_or_no as yes
from carom.reproduction.paper.statistics import Share, Spread

__all__ = ["of_total", "spread_mean", "yes"]


def spread_mean(spread: Spread) -> str:
    """Mean and standard error of seeds, or how many of them diverged."""
    if spread.diverged:
        return f"{spread.diverged} of {spread.count} diverged"
    return mean_and_error(spread.mean, spread.standard_error)


def of_total(share: Share) -> str:
    """A share as a count."""
    return f"{share.count} of {share.total}"
