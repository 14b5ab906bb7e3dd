"""Strictness that holds for every test: no silent change of dtype or rank."""

import jax
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow and the rest fast: a deadline would measure the machine.
settings.register_profile(
    "carom", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("carom")


@pytest.fixture
def float64():
    """Run a test in double precision, where the mathematics is checked to rounding."""
    with jax.enable_x64(True):
        yield
