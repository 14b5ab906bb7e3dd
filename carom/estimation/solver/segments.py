"""Recordings divided into segments with unknown start states (multiple shooting).

Every sample belongs to exactly one segment; no continuity is imposed between them, but segments grow from
stage to stage until each is a whole run.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Recording, Run
from carom.data.recording import channels
from carom.estimation.detection.impacts import Impacts
from carom.integrators import BY_GAP, EXCLUDED, PRESCRIBED

CERTAINTY = 10.0
"""Log-odds over the neighbouring step from which on an impact is confined to its own step."""


NEAR, NO_IMPACT = 2, 2**30
"""Steps from a detected impact within which an impact by the gap is taken for it; and the number of none."""


class Segments(NamedTuple):
    """Data of all segments, stacked; shorter ones are padded with samples that are not `known`."""

    duration: Float[np.ndarray, "segments steps"]
    modes: Int[np.ndarray, "segments steps contacts"]
    impact: Int[np.ndarray, "segments steps contacts"]
    """Number within the segment of the impact of a contact that is next to a step, or `NO_IMPACT`."""
    observed: Float[np.ndarray, "segments samples 2 bodies dimension"]
    """Positions and velocities."""
    known: Bool[np.ndarray, "segments samples 2 bodies dimension"]
    earliest: Float[np.ndarray, "segments steps contacts"]
    latest: Float[np.ndarray, "segments steps contacts"]
    """Time interval of a prescribed impact, in steps from the beginning of its own step."""


class Partition(NamedTuple):
    """Segments by the run and the sample at which each starts, and its number of samples."""

    run: Int[np.ndarray, "segments"]
    sample: Int[np.ndarray, "segments"]
    size: Int[np.ndarray, "segments"]
    length: int
    """To which all are padded."""


class Prescription(NamedTuple):
    """Modes of every contact in every step of a run, and which of its samples are used."""

    modes: Int[np.ndarray, "steps contacts"]
    earliest: Float[np.ndarray, "steps contacts"]
    latest: Float[np.ndarray, "steps contacts"]
    used: Bool[np.ndarray, "samples bodies"]
    """Samples that are neither masked nor outliers."""
    impact: Bool[np.ndarray, "steps contacts"]
    """The detected impacts."""

    def by_gap(self) -> "Prescription":
        """The same with all contacts determined by the gap."""
        return self._replace(modes=np.full_like(self.modes, BY_GAP))


def prescribe(impacts: Sequence[Impacts]) -> list[Prescription]:
    """Prescribe the detected impacts and exclude all other contacts.

    Where samples around impacts are masked, the step of an impact is uncertain too.
    """
    result = []
    for found in impacts:
        modes = np.where(found.chosen, PRESCRIBED, EXCLUDED)
        odds = np.pad(found.log_odds, ((1, 1), (0, 0)), constant_values=-np.inf)
        # An impact near the end of a step may lie in the next one if the data do not discriminate.
        earliest = np.where(odds[:-2] > odds[1:-1] - CERTAINTY, -1.0, 0.0)
        latest = np.where(odds[2:] > odds[1:-1] - CERTAINTY, 2.0, 1.0)
        used = found.explained & ~found.outlier
        if mask := found.mask:
            for step in np.flatnonzero(found.chosen.any(axis=1)):
                used[max(0, step + 1 - mask) : step + 1 + mask] = False
            earliest, latest = np.full_like(earliest, -1.0), np.full_like(latest, 2.0)
        result.append(Prescription(modes, earliest, latest, used, found.chosen))
    return result


def partition(impacts: Sequence[Impacts], length: int | None) -> Partition:
    """Divide the pieces of all runs into segments of `length` samples; None for whole pieces.

    A piece is a part of a run that the detected impacts explain; in most recordings it is the whole run.
    """
    pieces = [(run, *piece) for run, found in enumerate(impacts) for piece in found.pieces]
    longest = padded_size(max(end - start for _, start, end in pieces))
    length = longest if length is None else min(length, longest)
    rows = [
        (run, sample, min(length, end - sample))
        for run, start, end in pieces
        for sample in range(start, end, length)
    ]
    runs, samples, sizes = np.array(rows).T
    return Partition(runs, samples, sizes, length)


def around_impacts(impacts: Sequence[Impacts], length: int) -> Partition:
    """Segments of at most `length` samples of the pieces of all runs, with impacts in their middle."""
    rows: list[tuple[int, int, int]] = []

    def fill(run: int, start: int, end: int) -> None:
        rows.extend((run, sample, min(length, end - sample)) for sample in range(start, end, length))

    for run, found in enumerate(impacts):
        for begin, end in found.pieces:
            at = begin
            for after in np.flatnonzero(found.chosen[begin : end - 1].any(axis=1)) + begin + 1:
                low, high = max(at, int(after) - length // 2), min(end, int(after) + length - length // 2)
                if after > at:  # or it is in the segment of the impact before
                    fill(run, at, low)
                    rows.append((run, low, high - low))
                    at = high
            fill(run, at, end)
    runs, samples, sizes = np.array(rows).T
    return Partition(runs, samples, sizes, length)


def padded_size(size: int) -> int:
    """The size to which an axis is padded, so that recordings of similar size share compiled programs.

    There are eight sizes from one power of two to the next, so that at most an eighth is added.

    Example:
        >>> [padded_size(size) for size in (3, 9, 26, 200, 501)]
        [3, 9, 26, 208, 512]
    """
    grain = max(1, 2 ** (size - 1).bit_length() // 16)
    return -(-size // grain) * grain


def pad_rows(rows: np.ndarray, *, axis: int = 0) -> np.ndarray:
    """Rows of segments padded with copies of the first one, which nothing measured must refer to."""
    count = rows.shape[axis]
    return np.take(rows, np.r_[:count, np.zeros(padded_size(count) - count, int)], axis=axis)


def subset(partition: Partition, count: int) -> Partition:
    """A number of the segments, spaced evenly over all of them."""
    rows = np.linspace(0, len(partition.run) - 1, count).astype(int)
    return Partition(partition.run[rows], partition.sample[rows], partition.size[rows], partition.length)


def cut(recording: Recording, prescriptions: Sequence[Prescription], partition: Partition) -> Segments:
    """The data of every segment."""
    count, length = len(partition.run), partition.length
    bodies, dimension = recording.bodies, recording.dimension
    contacts = prescriptions[0].modes.shape[1]
    duration = np.full((count, length - 1), recording.step_size)
    modes = np.full((count, length - 1, contacts), EXCLUDED)
    impact = np.full(modes.shape, NO_IMPACT)
    earliest, latest = np.full(modes.shape, -1.0), np.full(modes.shape, 2.0)
    observed = np.zeros((count, length, 2, bodies, dimension))
    known = np.zeros(observed.shape, bool)
    for row, (index, start, size) in enumerate(zip(*partition[:3], strict=True)):
        run, end = recording.runs[index], start + size
        duration[row, : size - 1] = np.diff(run.time[start:end])
        for target, source in zip((modes, earliest, latest), prescriptions[index][:3], strict=True):
            target[row, : size - 1] = source[start : end - 1]
        impact[row, : size - 1] = _nearest(prescriptions[index].impact[start : end - 1])
        values = channels(run.part(slice(start, end)))
        used = prescriptions[index].used[start:end]
        known[row, :size] = np.isfinite(values) & used[:, None, :, None]
        observed[row, :size] = np.where(np.isfinite(values), values, 0.0)
    return Segments(duration, modes, impact, observed, known, earliest, latest)


def _nearest(happens: Bool[np.ndarray, "steps contacts"]) -> Int[np.ndarray, "steps contacts"]:
    """For every step and contact the number of the nearest impact of that contact, in the order of time."""
    steps, contacts = np.nonzero(happens)
    number = np.full(happens.shape, NO_IMPACT)
    for contact in np.unique(contacts):
        own = np.flatnonzero(contacts == contact)
        away = np.abs(np.arange(len(happens))[:, None] - steps[own])
        nearest = np.where(away.min(axis=1) <= NEAR, own[np.argmin(away, axis=1)], NO_IMPACT)
        number[:, contact] = nearest
    return number


def impacts_of(
    prescriptions: Sequence[Prescription], partition: Partition
) -> list[list[tuple[int, int, int]]]:
    """The impacts in every segment by run, step and contact, in the order of their numbers."""
    rows = []
    for run, start, size in zip(*(part.tolist() for part in partition[:3]), strict=True):
        found = np.argwhere(prescriptions[run].impact[start : start + size - 1])
        rows.append([(run, start + int(step), int(contact)) for step, contact in found])
    return rows


def first_states(
    recording: Recording, impacts: list[Impacts], partition: Partition
) -> Float[np.ndarray, "segments local"]:
    """Initial values of start states: parabolas through nearby samples with no impact in between."""
    rows = []
    impact_steps = [np.flatnonzero(found.chosen.any(axis=1)) for found in impacts]
    for index, start in zip(partition.run.tolist(), partition.sample.tolist(), strict=True):
        run, steps = recording.runs[index], impact_steps[index]
        before = int(np.searchsorted(steps, start))  # number of earlier impacts
        low = max(start - 6, steps[before - 1] + 1 if before else 0)
        high = min(start + 7, steps[before] + 1 if before < len(steps) else len(run), len(run))
        rows.append(local_state(run, start, int(low), int(high)))
    return np.array(rows)


def local_state(run: Run, at: int, low: int, high: int) -> Float[np.ndarray, "state"]:
    """The state at sample `at` from a parabola through samples `low` to `high` − 1; positions come first."""
    t = run.time[low:high] - run.time[at]
    values = channels(run.part(slice(low, high))).reshape(high - low, 2, -1)
    position, velocity = [], []
    for c in range(values.shape[2]):
        rows = [
            np.stack([np.ones_like(t), t, 0.5 * t**2], 1),
            np.stack([np.zeros_like(t), np.ones_like(t), t], 1),
        ]
        design, value = np.concatenate(rows), np.concatenate([values[:, 0, c], values[:, 1, c]])
        ok = np.isfinite(value)
        # A position and a velocity determine a line; beyond that one value is left over to average noise.
        terms = min(3, max(2 if np.isfinite(values[:, :, c]).any(axis=0).all() else 1, int(ok.sum()) - 1))
        found = np.zeros(3)
        if ok.any():
            found[:terms] = np.linalg.lstsq(design[ok, :terms], value[ok], rcond=None)[0]
        position.append(found[0])
        velocity.append(found[1])
    return np.array(position + velocity)
