"""True mechanics: systems that know their energy, their contacts and their exact motion."""

from carom.systems.base import AbstractSystem
from carom.systems.bent_ball import BentBall
from carom.systems.bouncing_ball import BouncingBall
from carom.systems.engines import Engine, engine_trajectory
from carom.systems.newtons_cradle import NewtonsCradle
from carom.systems.pendulum import Pendulum

SYSTEMS: dict[str, type[AbstractSystem]] = {
    "ball": BouncingBall,
    "bent-ball": BentBall,
    "cradle": NewtonsCradle,
    "pendulum": Pendulum,
}
"""Systems by the name that the command line uses."""

__all__ = [
    "SYSTEMS",
    "AbstractSystem",
    "BentBall",
    "BouncingBall",
    "Engine",
    "NewtonsCradle",
    "Pendulum",
    "engine_trajectory",
]
