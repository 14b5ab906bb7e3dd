"""What both physics engines need: how to import them, and where the cradle's balls hang."""

import importlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from carom.errors import InputError
from carom.systems import NewtonsCradle

Engine = Literal["pymunk", "mujoco"]

BALL_RADIUS = 0.1
"""Radius of the cradle's balls in lengths of their rods: more than they move in one step."""
SPACING = 1e-9
"""Relative play between hanging balls, so that a row is hit one after another and not as one block."""

Advance = Callable[[], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Advances an engine by one of its steps; returns coordinates, velocities and which contacts pushed."""


def pivots(system: NewtonsCradle) -> np.ndarray:
    """Where the rods hang, the first ball rightmost: it has the greatest angle."""
    return -2 * BALL_RADIUS * system.length * (1 + SPACING) * np.arange(system.balls)


def engine_module(name: Engine) -> Any:
    """The engine, or a sentence that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InputError(
            f'The engine "{name}" is not installed: pip install "carom[engines]" brings it.'
        ) from error
