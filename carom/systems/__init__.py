"""True mechanics: systems that know their energy, their contacts and their exact motion."""

from carom.systems.balls import AbstractBalls, Motions
from carom.systems.base import AbstractSystem
from carom.systems.bouncing_ball import BentBall, BouncingBall
from carom.systems.boxed_balls import AbstractBoxedBalls, BallBox, Billiards, fitting_radius
from carom.systems.composed import ComposedSystem
from carom.systems.laboratory import Laboratory
from carom.systems.newtons_cradle import NewtonsCradle
from carom.systems.pendulum import Pendulum
from carom.systems.stairs import Stairs

SYSTEMS: dict[str, type[AbstractSystem]] = {
    "ball": BouncingBall,
    "bent-ball": BentBall,
    "billiards": Billiards,
    "box": BallBox,
    "cradle": NewtonsCradle,
    "pendulum": Pendulum,
    "stairs": Stairs,
}
"""Systems by the name that the command line uses."""
