"""Recordings: runs of positions, with velocities and touch where they were measured."""

from dataclasses import dataclass, replace
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from carom.data.steps import constant_step
from carom.errors import InputError
from carom.mechanics import Scene
from carom.notebook import table
from carom.types import State, Trajectory

Channel = Literal["position", "velocity"]
"""What may have missing values. A missing touch reading counts as no touch."""

LARGEST = 1e18
"""The largest number that can be fitted: models compute squares in single precision, up to 3.4e38."""


@dataclass(frozen=True, eq=False)
class Run:
    """Samples of one uninterrupted motion, as float64 NumPy arrays; NaN where a value is missing.

    Times increase; steps may vary. `touch[n, k]` is true if body k received a contact impulse in
    (t_{n-1}, t_n]. The label is the name of the run in a file.
    """

    time: Float[np.ndarray, "samples"]
    position: Float[np.ndarray, "samples bodies dimension"]
    velocity: Float[np.ndarray, "samples bodies dimension"] | None = None
    touch: Bool[np.ndarray, "samples bodies"] | None = None
    label: str | None = None

    def __len__(self) -> int:
        return len(self.time)

    def part(self, kept: slice | Bool[np.ndarray, "samples"]) -> "Run":
        """A selection of the samples; times are not shifted."""
        channels = {name: getattr(self, name) for name in ("time", "position", "velocity", "touch")}
        return replace(self, **{name: x if x is None else x[kept] for name, x in channels.items()})


@dataclass(frozen=True, eq=False)
class Recording:
    """Runs of one system, possibly of unequal length.

    Arguments:
        runs: at least one run; all have the same bodies, dimension and channels.
        step_size: time between samples, in seconds; a typical one where it varies. Models step by it.
        scene: what is known of the mechanics; models are built for it.

    Example:
        >>> import carom
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> len(recording.runs), recording.samples, recording.bodies
        (1, 51, 1)
    """

    runs: tuple[Run, ...]
    step_size: float
    scene: Scene | None = None

    def __post_init__(self):
        if not self.runs:
            raise InputError("A recording needs at least one run.")
        shapes = {(r.position.shape[1:], r.velocity is None, r.touch is None) for r in self.runs}
        if len(shapes) > 1:
            raise InputError("All runs of a recording must have the same bodies, dimension and channels.")
        # Nothing could be estimated of that coordinate, and medians over it would be NaN.
        if any(np.isnan(run.position).all(axis=0).any() for run in self.runs):
            raise InputError("A run has no value at all of some coordinate; leave the run out.")
        if not (np.isfinite(self.step_size) and self.step_size > 0):
            raise InputError(f"The step size must be positive, but it is {self.step_size}.")
        scene = self.scene
        if scene is not None and (self.bodies, self.dimension) != (scene.bodies, scene.dimension):
            raise InputError(
                f"The recording has {self.bodies} bodies in {self.dimension} dimensions, the scene has "
                f"{scene.bodies} in {scene.dimension}."
            )

    def _repr_html_(self) -> str:
        channels = ["positions", "velocities"][: 2 if self.has_velocity else 1]
        rows = [
            ("runs", f"{len(self.runs)}, {self.samples} samples in all"),
            ("bodies", f"{self.bodies} in {self.dimension} dimension(s)"),
            ("step", f"{self.step_size:.6g} s" + ("" if self.even else ", varying")),
            ("channels", ", ".join(channels + ["touch"] * self.has_touch)),
            ("may touch", "unknown: no scene" if self.scene is None else f"{self.scene.contacts} contact(s)"),
        ]
        return table("Recording", rows)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the runs in a file; their numbers from 0 unless every run has a name of its own."""
        known = [run.label for run in self.runs if run.label is not None]
        # Names that repeat identify nothing; numbers do.
        if len(set(known)) == len(self.runs):
            return tuple(known)
        return tuple(map(str, range(len(self.runs))))

    @property
    def bodies(self) -> int:
        return self.runs[0].position.shape[1]

    @property
    def dimension(self) -> int:
        return self.runs[0].position.shape[2]

    @property
    def samples(self) -> int:
        """Number of samples over all runs."""
        return sum(len(run) for run in self.runs)

    @property
    def has_velocity(self) -> bool:
        return self.runs[0].velocity is not None

    @property
    def has_touch(self) -> bool:
        return self.runs[0].touch is not None

    @property
    def even(self) -> bool:
        """Whether the time between samples is the same everywhere, but for rounding."""
        # A run of one sample has no step.
        times = [run.time for run in self.runs if len(run) > 1]
        return not times or constant_step(times) is not None

    @property
    def missing_values(self) -> int:
        """How many positions and velocities are missing."""
        channels = [channel for run in self.runs for channel in (run.position, run.velocity)]
        return sum(int(np.isnan(channel).sum()) for channel in channels if channel is not None)

    @property
    def start(self) -> State:
        """The first state of the first run, to forecast from."""
        run = self.runs[0]
        if run.velocity is None:
            raise InputError("This recording has no velocities, so it has no start state.")
        if not (np.isfinite(run.position[0]).all() and np.isfinite(run.velocity[0]).all()):
            raise InputError(
                "The first sample of this recording has a missing value, so it is no start state."
            )
        return State(jnp.asarray(run.position[0]), jnp.asarray(run.velocity[0]))

    def with_scene(self, scene: Scene) -> "Recording":
        """The same data with another scene."""
        return replace(self, scene=scene)


def require_moderate(recording: Recording) -> None:
    """Refuse numbers whose squares overflow in the single precision of models."""
    for run in recording.runs:
        for channel in (run.time, run.position, run.velocity):
            largest = 0.0 if channel is None else float(np.nanmax(np.abs(channel), initial=0.0))
            if largest > LARGEST:
                found = f"This recording has a value of {largest:.3g}"
                raise InputError(f"{found}, and nothing beyond {LARGEST:g} can be fitted; change units.")


def run_from_trajectory(trajectory: Trajectory, scene: Scene) -> Run:
    """What ideal sensors would record of a simulated motion, noise and delays apart."""
    # The touch of a body is the OR of its contacts.
    touch = np.any(trajectory.contact[:, :, None] & scene.geometry.incidence, axis=1)
    return Run(trajectory.time, trajectory.position, trajectory.velocity, touch)


def channels(run: Run) -> Float[np.ndarray, "samples 2 bodies dimension"]:
    """Positions and velocities together; NaN where nothing was measured."""
    velocity = np.full_like(run.position, np.nan) if run.velocity is None else run.velocity
    return np.stack([run.position, velocity], axis=1)
