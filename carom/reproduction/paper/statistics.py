"""Former names, until every caller is on `carom.evaluation.tables`."""

from typing import NamedTuple

from carom.evaluation.tables import Summary as Spread
from carom.evaluation.tables import summarize as spread

__all__ = ["Share", "Spread", "spread"]


class Share(NamedTuple):
    """`count` of `total`."""

    count: int  # pyright: ignore
    total: int
