"""A recording that several tests train on."""

import pytest

from carom.data import Recording, simulate
from carom.systems import BouncingBall


@pytest.fixture(scope="session")
def ball() -> Recording:
    """Two runs through a bounce each, of unequal length."""
    system = BouncingBall(restitution=0.8)
    options = {"step_size": 0.02, "truth": "scheme", "velocity_grid": "sample", "noise": 0.1}
    runs = simulate(system, steps=90, **options).runs + simulate(system, steps=80, **options, seed=1).runs
    return Recording(runs, 0.02, system.scene(velocity_grid="sample"))
