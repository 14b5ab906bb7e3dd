"""Cases that only the campaign tries, because others show the same sooner."""

from collections.abc import Iterable
from typing import Any

import pytest


def shortened(cases: Iterable[Any], long: Iterable[Any]) -> list[Any]:
    """The cases of a test, of which the long ones belong to the campaign; a tuple is several arguments."""
    long = list(long)
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.campaign] * (case in long)
        )
        for case in cases
    ]
