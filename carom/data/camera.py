"""Recordings by a camera and its tracker: what they do to the positions and times of an exact motion."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Bool, Float
from pydantic import Field, model_validator

from carom.data.io import toml_file as toml
from carom.data.recording import Recording, Run
from carom.data.simulate import simulate
from carom.errors import InputError
from carom.storage.input_file import shown
from carom.systems import AbstractSystem
from carom.types import State

Smoothing = Literal["none", "average", "savitzky-golay"]
SWAP_LENGTH = 5
"""Frames for which two bodies stay exchanged."""
Positions = Float[np.ndarray, "samples bodies dimension"]


Length = Annotated[toml.Number, Field(ge=0)]
Share = Annotated[toml.Number, Field(ge=0, le=0.5)]


class Camera(toml.TomlTable):
    """A camera and the software that tracks bodies in its frames; by default both are perfect.

    Lengths are in the unit of the positions, times in seconds. The lens and the mounting act first, then
    noise and pixels, repeated frames, smoothing, what the tracker mistakes, and last the rounding of the
    file.

    Arguments:
        frame_rate: frames per second.
        noise: standard deviation of a tracked position.
        pixel: positions are multiples of this before they are smoothed.
        rounding: positions are multiples of this in the file.
        smoothing: by the tracker.
        window: samples that smoothing takes, an odd number.
        repeated: fraction of frames that repeat the one before.
        dropped: fraction of frames that are missing.
        jitter: standard deviation of the written times; frames themselves are regular.
        outliers: fraction of positions that are not the body's.
        outlier_size: their distance from the body, root mean square per coordinate.
        swapped: fraction of frames in which two bodies are exchanged.
        distortion: relative displacement by the lens at the edge of the view.
        tilt: rotation about the line of sight, in degrees.
        hand: seconds for which a hand holds the bodies before their motion begins.

    Example:
        >>> import carom
        >>> filmed = film(carom.systems.BouncingBall(), PRESETS["phone-30fps"], frames=60, seed=1)
        >>> filmed.runs[0].velocity is None, len(filmed.runs[0]) <= 60
        (True, True)
    """

    frame_rate: toml.Positive = 120.0
    noise: Length = 0.0
    pixel: Length = 0.0
    rounding: Length = 0.0
    smoothing: Smoothing = "none"
    window: Annotated[toml.Whole, Field(ge=3, le=51)] = 5
    repeated: Share = 0.0
    dropped: Share = 0.0
    jitter: Length = 0.0
    outliers: Share = 0.0
    outlier_size: Length = 0.0
    swapped: Share = 0.0
    distortion: Annotated[toml.Number, Field(ge=-0.2, le=0.2)] = 0.0
    tilt: Annotated[toml.Number, Field(ge=-45, le=45)] = 0.0
    hand: Length = 0.0

    @model_validator(mode="after")
    def _odd(self) -> "Camera":
        if self.window % 2 == 0:
            raise ValueError(f"window must be odd, not {self.window}; a smoothed sample lies in its middle")
        return self

    @property
    def step_size(self) -> float:
        """Seconds between frames."""
        return 1 / self.frame_rate

    def view(self, positions: Positions, centre: Float[np.ndarray, "dimension"], radius: float) -> Positions:
        """Positions as an ideal tracker sees them through the lens, from the tilted mounting.

        Arguments:
            positions: true ones.
            centre, radius: of what the camera views.
        """
        from_centre = positions - centre
        square = np.sum(from_centre**2, axis=-1, keepdims=True) / radius**2
        seen = from_centre * (1 + self.distortion * square)
        cosine, sine = np.cos(np.radians(self.tilt)), np.sin(np.radians(self.tilt))
        if positions.shape[-1] == 1:
            return centre + cosine * seen  # the ruler lies askew
        turned = seen.copy()
        turned[..., 0] = cosine * seen[..., 0] - sine * seen[..., -1]
        turned[..., -1] = sine * seen[..., 0] + cosine * seen[..., -1]
        return centre + turned

    def track(self, seen: Run, random: np.random.Generator) -> tuple[Run, Bool[np.ndarray, "samples"]]:
        """What the tracker writes of a run that is seen at every frame; which frames these are.

        Arguments:
            seen: ideal positions at the frames.
            random: of everything that is random.
        """
        # Every draw is made whatever the settings are: one nuisance more leaves the others as they were.
        shape, count = seen.position.shape, len(seen)
        noise, odd = random.standard_normal((2, *shape))
        repeats, drops, clock = random.random(count), random.random(count), random.standard_normal(count)
        misses, exchanges = random.random(shape[:2]), random.random(count)
        position = _rounded(seen.position + self.noise * noise, self.pixel)
        for frame in np.flatnonzero(repeats[1:] < self.repeated) + 1:
            position[frame] = position[frame - 1]
        position = self._smoothed(position)
        position = np.where((misses < self.outliers)[..., None], position + self.outlier_size * odd, position)
        position = _exchanged(position, self.swapped, exchanges)
        # The first frame is kept, so that histories and training runs begin where the motion does.
        kept = (drops >= self.dropped) | (np.arange(count) == 0)
        # Times stay in order, however large the jitter.
        time = seen.time + np.clip(self.jitter * clock, -0.45 * self.step_size, 0.45 * self.step_size)
        return Run(time, _rounded(position, self.rounding), label=seen.label).part(kept), kept

    def _smoothed(self, position: Positions) -> Positions:
        window = min(self.window, len(position) - 1 + len(position) % 2)
        if self.smoothing == "none":
            return position
        if self.smoothing == "average":
            # Shorter windows at the ends, as spreadsheets do it.
            total = scipy.ndimage.convolve1d(position, np.ones(window), axis=0, mode="constant")
            count = scipy.ndimage.convolve1d(np.ones(len(position)), np.ones(window), mode="constant")
            return total / count[:, None, None]
        return scipy.signal.savgol_filter(position, window, polyorder=min(2, window - 1), axis=0)


def _rounded(position: Positions, unit: float) -> Positions:
    return np.round(position / unit) * unit if unit else position.copy()


def _exchanged(position: Positions, share: float, draws: Float[np.ndarray, "samples"]) -> Positions:
    """The first two bodies change names for some frames, as often as to make up a share of all."""
    begins = draws < share / SWAP_LENGTH
    exchanged = np.convolve(begins, np.ones(SWAP_LENGTH))[: len(begins)] > 0
    if position.shape[1] > 1:
        position = position.copy()
        position[exchanged, :2] = position[exchanged, 1::-1]
    return position


class Filmed(NamedTuple):
    """A recording by a camera, and beside it the truth.

    Arguments:
        recording: positions as tracked, at the times that were written.
        ideal: the same samples by an ideal tracker through the same lens, at the instants of the frames.
    """

    recording: Recording
    ideal: Recording


def film(
    system: AbstractSystem,
    camera: Camera,
    *,
    frames: int,
    starts: Sequence[State] | None = None,
    seed: int = 0,
) -> Recording:
    """Record a system by a camera: one run per start state, positions alone.

    Arguments:
        system: the true mechanics.
        camera: how it is seen.
        frames: of every run after its release.
        starts: start states, by default the system's own.
        seed: of everything that is random in the camera.
    """
    exact = simulate(system, steps=max(frames - 1, 1), step_size=camera.step_size, starts=starts)
    return film_motions(exact, camera, seed=seed).recording


def film_motions(
    exact: Recording, camera: Camera, *, seed: int = 0, viewed: Recording | None = None
) -> Filmed:
    """Record exact motions by a camera.

    Arguments:
        exact: runs with velocities, a sample per frame.
        camera: how they are seen.
        seed: of everything that is random in the camera.
        viewed: motions that fill the view of the camera, by default the same.
    """
    centre, radius = area(viewed or exact)
    random = np.random.default_rng([seed, 0xCA])  # apart from other uses of the same seed
    runs, ideal = [], []
    for run in exact.runs:
        held = _held(run, round(camera.hand * camera.frame_rate), camera.step_size, random)
        seen = Run(held.time, camera.view(held.position, centre, radius), label=run.label)
        tracked, kept = camera.track(seen, random)
        runs.append(tracked)
        ideal.append(seen.part(kept))
    step, scene = camera.step_size, exact.scene
    return Filmed(Recording(tuple(runs), step, scene), Recording(tuple(ideal), step, scene))


def area(motions: Recording) -> tuple[Float[np.ndarray, "dimension"], float]:
    """Centre and radius of what a camera has to view to see all motions."""
    whole = np.concatenate([run.position.reshape(-1, motions.dimension) for run in motions.runs])
    low, high = whole.min(axis=0), whole.max(axis=0)
    return (low + high) / 2, max(0.5 * float(np.linalg.norm(high - low)), 1e-12)


def _held(run: Run, frames: int, step: float, random: np.random.Generator) -> Run:
    """A run with frames before it in which a hand brings the bodies to their start, accelerating evenly."""
    drift = random.normal(size=run.position.shape[1:])
    if not frames:
        return run
    assert run.velocity is not None, "exact motions have velocities"
    before = np.arange(-frames, 0)[:, None, None] * step
    duration = frames * step
    path = run.position[0] + 0.5 * run.velocity[0] * (before + duration) ** 2 / duration
    path += 0.5 * run.velocity[0] * -duration
    # The hand wanders by about 5 cm per second squared, and stands still at the release.
    path += 0.05 * drift * before**2
    time = run.time[0] + np.arange(frames + len(run)) * step
    return Run(time, np.concatenate([path, run.position]), label=run.label)


_TABLES = tomllib.loads(Path(__file__).with_name("cameras.toml").read_text(encoding="utf-8"))
PRESETS: Mapping[str, Camera] = {name: Camera(**table) for name, table in _TABLES.items()}
"""Cameras by name."""


class _CameraFile(toml.TomlTable):
    camera: Camera


def read_camera(text: str) -> Camera:
    """A preset by its name, or the table [camera] of a TOML file by its path."""
    if text in PRESETS:
        return PRESETS[text]
    path = Path(text)
    if path.suffix != ".toml":
        raise InputError(
            f"There is no camera “{shown(text)}”; name a .toml file, or one of {', '.join(PRESETS)}."
        )
    tables = toml.parse_toml(path, toml.read_toml_text(path, kind="camera file"))
    return toml.validate(path, _CameraFile, tables).camera
