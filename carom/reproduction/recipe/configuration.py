"""What the recipe `carom` is tried on: experiments, and a grid over noise and data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from carom.data import Recording, add_noise, disturb_touch
from carom.data.recording import run_from_trajectory
from carom.errors import find_names
from carom.estimation import Settings, Touch, TouchSensor
from carom.integrators import Detection
from carom.reproduction.experiment_file import read_experiments
from carom.reproduction.paper.data import HELD_OUT_STARTS, held_out_starts, published_motion
from carom.reproduction.paper.experiments import EXPERIMENTS as PAPER_EXPERIMENTS
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle
from carom.training import TrainingSettings
from carom.types import State, Trajectory

IMPERFECT = TouchSensor(missed=0.1, false=0.01, delay=1)


@dataclass(frozen=True)
class Experiment:
    """What is recorded, and what the learner knows of it.

    Arguments:
        title: for tables.
        system: the true mechanics.
        truth: which solution is recorded.
        touch: what is known of contacts.
        learn: the parameters that are estimated.
        start_given: whether the noise-free first state is known, as it is to the oracle and in scoring.
        velocities: whether velocities are recorded.
        runs: with one, it starts at the system's own start; several start at random, as held-out ones do.
        grid_stretch: sampling interval of the published pendulum, in steps.
        oracle: whether the true equations are fitted too; without a closed solution that takes too long.
        paper: the error that the paper reports, with touch.
    """

    title: str
    system: AbstractSystem
    truth: Literal["published", "exact"] = "exact"
    touch: Touch = "inferred"
    learn: tuple[str, ...] = ("surfaces",)
    start_given: bool = True
    velocities: bool = True
    step_size: float = 0.02
    steps: int = 519
    noise: float = 0.2
    runs: int = 1
    grid_stretch: float = 1.0
    detection: Detection = "arrival"
    oracle: bool = True
    paper: str = ""

    @property
    def settings(self) -> Settings:
        sensor = IMPERFECT if self.touch == "imperfect" else TouchSensor()
        return Settings(touch=self.touch, sensor=sensor, learn=self.learn, detection=self.detection)

    def motion(self, system: AbstractSystem, start: State, steps: int | None = None) -> Trajectory:
        """The noise-free motion, of the length of the recording by default."""
        steps = self.steps if steps is None else steps
        if self.truth == "published":
            return published_motion(system, start, steps, self.step_size, grid_stretch=self.grid_stretch)
        return system.exact(start, np.arange(steps + 1) * self.step_size)

    def starts(self, seed: int) -> list[State]:
        """Start states of the runs of one seed."""
        if self.runs == 1:
            return [self.system.start]
        return held_out_starts(self.system, self.runs, seed=[seed, self.runs])

    def record(self, seed: int) -> Recording:
        """The noisy recording of one seed."""
        published_pair = self.truth == "published" and isinstance(self.system, NewtonsCradle)
        scene = self.system.scene(
            velocity_grid="sample" if self.truth == "published" else "half",
            projection="reference_point" if published_pair else "none",
        )
        motions = [self.motion(self.system, start) for start in self.starts(seed)]
        runs = tuple(run_from_trajectory(motion, scene) for motion in motions)
        noisy = add_noise(Recording(runs, self.step_size, scene), self.noise, seed=seed)
        if self.touch == "imperfect":
            noisy = disturb_touch(noisy, missed=0.1, false=0.01, shift=1, seed=seed)
        if not self.velocities:
            noisy = replace(noisy, runs=tuple(replace(run, velocity=None) for run in noisy.runs))
        return noisy


EXPERIMENTS = read_experiments(Path(__file__).with_name("experiments.toml"), Experiment)


# The grid: the ball on exact truth with e = 1 given, over noise, number of recorded bounces and touch.
# Recordings end at the top of the flight after their last bounce. Start state, floor and noise are unknown to
# all but the oracle, which fits gravity alone and knows start and floor.

NOISES = (0.0, 0.05, 0.2, 0.5, 1.0)
BOUNCES = (1, 2, 5, 20)
FORECAST_STEPS = 519
"""Length of every forecast; four bounces from the recorded start."""
TRAINING_STEPS = 10_000
"""Updates of the weights by the paper's recipe, the same for all recordings; its own runs have 48 000."""
_QUICK_NOISES, _QUICK_BOUNCES, _QUICK = (0.0, 0.2), (1, 2), {"training_steps": 200, "held_out": 5}
GRID_BALL = EXPERIMENTS["ball.exact.inferred.start-unknown"]
PAPER_BALL = PAPER_EXPERIMENTS["ball"]


class Learner(NamedTuple):
    """A panel of the heat map.

    Arguments:
        model: in the paper's experiment with the ball, for the paper's recipe.
    """

    title: str
    recipe: Literal["carom", "paper", "oracle"]
    touch: Touch
    model: str = ""


LEARNERS: dict[str, Learner] = {
    "carom-observed": Learner("recipe carom, touch observed", "carom", "observed"),
    "carom-imperfect": Learner("recipe carom, touch imperfect", "carom", "imperfect"),
    "carom-inferred": Learner("recipe carom, touch inferred", "carom", "inferred"),
    "oracle": Learner("oracle: true equations, g fitted", "oracle", "inferred"),
    "cd-lagrange": Learner("paper's recipe, touch observed", "paper", "observed", "CD-Lagrange"),
    "cd-lagrange-no-touch": Learner(
        "paper's recipe, no touch", "paper", "inferred", "CD-Lagrange (no touch)"
    ),
    "resnet": Learner("ResNet", "paper", "inferred", "ResNet"),
    "resnet-contact": Learner("ResNetContact, touch observed", "paper", "observed", "ResNetContact"),
}


@dataclass(frozen=True)
class Trial:
    """One learner on recordings with a number of bounces and a noise.

    Arguments:
        learner: name in `LEARNERS`.
        noise: standard deviation on positions (m) and velocities (m/s).
        bounces: in every recording.
        training_steps: updates of the weights by the paper's recipe.
        held_out: number of start states that were not recorded.
    """

    learner: str
    noise: float
    bounces: int
    training_steps: int = TRAINING_STEPS
    held_out: int = HELD_OUT_STARTS

    @property
    def experiment(self) -> Experiment:
        touch = LEARNERS[self.learner].touch
        return replace(GRID_BALL, touch=touch, noise=self.noise, steps=recorded_steps(self.bounces))

    @property
    def training(self) -> TrainingSettings:
        """The paper's recipe as in the authors' code, for as many epochs as `training_steps` make."""
        settings = PAPER_BALL.settings("published", LEARNERS[self.learner].model)
        windows = self.experiment.steps + 1 - settings.horizon
        steps = math.ceil(windows / settings.batch_size)
        return replace(settings, epochs=max(1, round(self.training_steps / steps)))

    @property
    def cost(self) -> float:
        """Work per seed, about in seconds of one core."""
        recipe = LEARNERS[self.learner].recipe
        if recipe == "paper":
            return self.training_steps / 1000
        return self.experiment.steps / (50 if recipe == "carom" else 1000)


def recorded_steps(bounces: int) -> int:
    """Steps to the top of the flight that follows the last of `bounces`.

    Example:
        >>> [recorded_steps(bounces) for bounces in (1, 2, 20)]
        [143, 285, 2854]
    """
    ball = GRID_BALL.system
    assert isinstance(ball, BouncingBall)
    fall = math.sqrt(2 * (float(ball.start.position[0, 0]) - ball.radius) / ball.gravity)
    return round(2 * bounces * fall / GRID_BALL.step_size)


def plan_grid(names: Sequence[str] = (), *, quick: bool = False) -> list[Trial]:
    """The trials of the learners whose names begin with one of `names`, of all by default.

    A quick grid has few trials, few starts and hardly any training: to see that everything works.
    """
    return [
        Trial(learner, noise, bounces, **(_QUICK if quick else {}))
        for learner in find_names(names, LEARNERS, kind="learner")
        for bounces in (_QUICK_BOUNCES if quick else BOUNCES)
        for noise in (_QUICK_NOISES if quick else NOISES)
    ]
