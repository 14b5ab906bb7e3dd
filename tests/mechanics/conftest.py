"""Everything here is checked to rounding, so everything here runs in double precision."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    """For the whole module: hypothesis reuses one fixture for all its examples."""
    with jax.enable_x64(True):
        yield
