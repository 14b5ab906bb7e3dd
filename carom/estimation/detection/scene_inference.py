"""Inference of walls and pairs that touch, from a recording without candidate contacts.

Velocity jumps of every body are detected. Simultaneous jumps of two bodies in opposite directions are an
impact of the pair. The others may be impacts at a wall: a plane that the data do not cross, at which bodies
closed, and from which they opened no faster. How many nats its impacts are likelier than jumps of unknown
cause, anywhere and in any direction, decides between planes, and whether there is one. If many jumps remain
unexplained, contacts may last for several samples, and these are masked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from carom.data import Recording, Run
from carom.data.recording import require_moderate
from carom.data.steps import constant_step, regular_clock
from carom.estimation.detection.impacts import TOLERANCE
from carom.estimation.detection.local_motion import INSTANTS, fit_around, grid_around
from carom.estimation.detection.switching_filter import Jumps, Motion, Sequences
from carom.estimation.detection.velocity_jumps import detect_velocity_jumps, measured_noise, sequences
from carom.mechanics import Candidate, Pair, Wall

TOGETHER = 2
"""Greatest number of steps between the detected jumps of two bodies in one impact."""
ALIGNED = 0.9
"""Least cosine of the angle between two directions that are taken to be the same."""
LIKELY = 8.0
"""Least log-odds of a jump that counts."""
BEHIND, CLEARLY = 0.002, 5.0
"""Greatest fraction of the samples that may lie behind a wall, and by how many standard deviations."""
STRICT, LOOSE = 0.01, 0.1
"""Depth behind a wall at which no data lie, relative to the range of the motion, as contacts that last press
bodies into it; and where its direction is not yet known well."""
UNEVEN = 2e-3
"""Scatter of the positions of impacts at one wall, relative to the range of the motion: lenses bend walls."""
SLOPE = 2.0
"""Nats by which impacts at a wall must be likelier, per angle, for it not to be aligned with the axes."""
EVIDENT = 3.0
"""Least nats by which the impacts at a wall must be likelier than jumps of unknown cause."""
TILT, STEEPEST = 0.25, 0.7
"""Typical and greatest tangent of the angle of impulses to the normal, due to friction."""
DIRECTIONS = 64
"""Greatest number of directions of jumps that are tried as the normal of a wall."""
UNKNOWN, MASKED = 10.0, 0.3
"""Nats that a velocity jump of unknown cause costs, and a sample of a body that is masked."""
MASKS = (0, 5, 15, 45)
"""Masks that are tried for contacts of finite duration, in samples either side of an impact."""
FEWEST, MANY = 2, 6
"""Least number of impacts at a wall where so many impacts have been found: one jump of unknown cause, such as
a push by a hand, is no wall."""
CLOCK = 0.97
"""Greatest ratio of the noise with the times of a regular clock to that with the times as written, for the
former to be used."""
MAXIMUM_SAMPLES = 20_000
"""Greatest number of samples of a recording that are searched."""


@dataclass(frozen=True)
class ContactGuess:
    """Inferred candidate contacts, with estimates from their impacts.

    Arguments:
        candidates: walls, then pairs.
        impacts: number of impacts of each.
        restitution: the median over all impacts; None if there are none.
        masses: relative to body 1, from the velocity jumps of pairs; 1 if undetermined.
        mask: apparent duration of contacts, in samples either side of an impact.
    """

    candidates: tuple[Candidate, ...]
    impacts: tuple[int, ...]
    restitution: float | None
    masses: tuple[float, ...]
    mask: int = 0


@dataclass(frozen=True, eq=False)
class _VelocityJump:
    body: int
    step: int
    position: Float[np.ndarray, "dimension"]
    before: Float[np.ndarray, "dimension"]
    after: Float[np.ndarray, "dimension"]
    error: float
    """Standard deviation of a coordinate of the position, with what the grid of instants adds."""
    rate_error: float
    """Standard deviation of a coordinate of the velocities."""
    parts: int
    """Number of detected jumps that are taken for this one."""
    masked: int
    """Number of samples that are ignored."""

    @property
    def change(self) -> np.ndarray:
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class _Impact:
    """An impact of a body at a wall or of two bodies; the impulse on the first is along the normal."""

    bodies: tuple[int, ...]
    position: Float[np.ndarray, "dimension"]
    """Of the first body, relative to the second if there are two."""
    restitution: float
    parts: int
    """Number of detected jumps."""
    masked: int
    """Number of samples of its bodies that are masked."""
    ratio: float = 1.0
    """The mass of the second body over that of the first."""


def guess_contacts(recording: Recording) -> ContactGuess:
    """Infer walls and pairs that touch from the motion in a recording.

    Arguments:
        recording: its number of bodies and dimension are used; its scene need not name contacts.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=200, step_size=0.02, noise=0.05, seed=1)
        >>> guess = guess_contacts(recording)
        >>> guess.candidates[0].normal, guess.impacts, round(guess.restitution, 1)
        ((1.0,), (2,), 0.8)
    """
    require_moderate(recording)
    runs: list[Run] = []
    for run in recording.runs:
        remaining = MAXIMUM_SAMPLES - sum(len(run) for run in runs)
        if remaining >= 8 and len(run) >= 8:
            runs.append(run.part(slice(0, remaining)))
    if not runs:
        return ContactGuess((), (), None, (1.0,) * recording.bodies)
    runs, data = _on_a_clock(runs)
    jumps, motion = detect_velocity_jumps(data)
    bodies = recording.bodies
    by_run = [jumps[index * bodies : (index + 1) * bodies] for index in range(len(runs))]
    tracks = [_track(runs, by_run, body) for body in range(bodies)]
    count = sum(len(found.step) for found in jumps)

    def explained(mask: int) -> tuple[float, list[tuple[Candidate, list[_Impact]]]]:
        """The cost of what the contacts with these impacts leave unexplained."""
        pairs: list[_Impact] = []
        singles: list[_VelocityJump] = []
        for run, found in zip(runs, by_run, strict=True):
            if len(run) > 4 * mask:
                of_pairs, others = _split(run, found, motion, mask)
                pairs += of_pairs
                singles += others
        chosen = [*_walls(singles, tracks, motion, len(pairs)), *_pairs(pairs, recording.dimension)]
        members = [impact for _, group in chosen for impact in group]
        unknown = count - sum(impact.parts for impact in members)
        return UNKNOWN * unknown + MASKED * sum(impact.masked for impact in members), chosen

    # A contact of finite duration is seen as several jumps that make no impact each.
    chosen, mask = [], 0
    least = np.inf
    for trial in MASKS:
        if least < MASKED * trial * len(runs):
            break
        cost, contacts = explained(trial)
        if cost < least:
            least, chosen, mask = cost, contacts, trial
    members = [impact for _, group in chosen for impact in group]
    ratios = [impact.restitution for impact in members]
    return ContactGuess(
        tuple(candidate for candidate, _ in chosen),
        tuple(len(group) for _, group in chosen),
        float(np.clip(np.median(ratios), 0, 1)) if ratios else None,
        _masses(recording.bodies, members),
        mask,
    )


def _on_a_clock(runs: list[Run]) -> tuple[list[Run], Sequences]:
    """The runs, at the times of a regular clock if that lowers the noise: logged times of frames jitter."""

    def stacked(runs: list[Run]) -> tuple[Sequences, float]:
        parts = zip(*((run.time, run.position, run.velocity) for run in runs), strict=True)
        data = sequences(*map(list, parts))  # pyright: ignore
        return data, measured_noise(data.position, data.time)[0]

    data, noise = stacked(runs)
    if constant_step([run.time for run in runs]) is not None:
        return runs, data
    even = [replace(run, time=regular_clock(run.time)) for run in runs]
    regular, lower = stacked(even)
    return (even, regular) if lower < CLOCK * noise else (runs, data)


def _track(runs: Sequence[Run], jumps: Sequence[Sequence[Jumps]], body: int) -> np.ndarray:
    """All positions of a body, without outliers: [samples, dimension]."""
    parts = []
    for run, found in zip(runs, jumps, strict=True):
        x = run.position[:, body]
        parts.append(x[np.isfinite(x).all(axis=1) & ~found[body].outlier[: len(run)]])
    return np.concatenate(parts)


def _split(
    run: Run, jumps: Sequence[Jumps], motion: Motion, mask: int
) -> tuple[list[_Impact], list[_VelocityJump]]:
    """Impacts of two bodies, and the velocity jumps that remain.

    Arguments:
        mask: samples either side of a jump to ignore.
    """
    remaining = [
        jump for body, found in enumerate(jumps) for jump in _velocity_jumps(run, body, found, motion, mask)
    ]
    remaining.sort(key=lambda jump: jump.step)
    found: list[_Impact] = []
    singles: list[_VelocityJump] = []
    while remaining:
        jump = remaining.pop(0)
        for other in remaining:
            together = other.body != jump.body and other.step - jump.step <= TOGETHER + mask
            impact = _of_pair(jump, other, run) if together else None
            if impact is not None:
                found.append(impact)
                remaining.remove(other)
                break
        else:
            singles.append(jump)
    return found, singles


def _velocity_jumps(run: Run, body: int, jumps: Jumps, motion: Motion, mask: int) -> list[_VelocityJump]:
    """The jumps of one body with the motion before and after; with a mask, those close together are one."""
    groups: list[list[int]] = []
    for step in jumps.step.tolist():
        if groups and step - groups[-1][-1] <= 2 * mask:
            groups[-1].append(step)
        else:
            groups.append([step])
    grid = float(np.median(np.diff(run.time))) * (INSTANTS[1] - INSTANTS[0]) / np.sqrt(48)
    found = []
    for number, group in enumerate(groups):
        low = groups[number - 1][-1] + 1 if number else 0
        high = groups[number + 1][0] + 1 if number + 1 < len(groups) else len(run)
        wide = max(mask, (group[-1] - group[0]) // 2 + 2) if mask else 0
        instants = grid_around(round(0.5 * (group[0] + group[-1])), len(run) - 1, mask=wide)
        local = fit_around(run, body, instants, low, high, motion, mask=wide)
        best = int(np.argmax(local.log_likelihood))
        if local.log_likelihood[best] - max(local.smooth, local.released) > LIKELY:
            # The instant is not known: averages over the instants of the grid, with their likelihoods.
            share = np.exp(local.log_likelihood - local.log_likelihood[best])
            share /= share.sum()
            means = [share @ part for part in (local.position, local.before, local.after)]
            scatter = share @ (local.position - means[0]) ** 2 + (grid * (means[1] + means[2])) ** 2
            variance = share @ np.diagonal(local.covariance, axis1=1, axis2=2)
            counts = len(group), max(2 * wide - 1, 0)
            errors = np.sqrt(variance + np.array([scatter.max(), 0, 0]))
            found.append(
                _VelocityJump(body, int(instants[best]), *means, errors[0], max(errors[1:]), *counts)
            )
    return found


def _of_pair(a: _VelocityJump, b: _VelocityJump, run: Run) -> _Impact | None:
    """The impact of two bodies that repelled each other, or None."""
    if run.position.shape[2] == 1 and a.change[0] < 0:
        a, b = b, a  # on a line the first body is the one with the greater coordinate
    lengths = [float(np.linalg.norm(jump.change)) for jump in (a, b)]
    if min(lengths) == 0 or float(a.change @ b.change) > -ALIGNED * lengths[0] * lengths[1]:
        return None
    normal = (a.change - b.change) / np.linalg.norm(a.change - b.change)
    before, after = float(normal @ (a.before - b.before)), float(normal @ (a.after - b.after))
    relative = a.position - b.position
    # In the plane and in space spheres repel each other along the line of their centres.
    if len(relative) > 1 and float(normal @ relative) < ALIGNED * float(np.linalg.norm(relative)):
        return None
    slack = 2 * TOLERANCE * abs(before)
    if not (before < 0 and -slack <= after <= -before + slack):
        return None
    # Momentum is conserved: the masses are inversely proportional to the velocity changes.
    counts = a.parts + b.parts, a.masked + b.masked
    return _Impact((a.body, b.body), relative, -after / before, *counts, lengths[0] / lengths[1])


class _Hits(NamedTuple):
    """Velocity jumps of one body as arrays."""

    position: Float[np.ndarray, "hits dimension"]
    before: Float[np.ndarray, "hits dimension"]
    after: Float[np.ndarray, "hits dimension"]
    error: Float[np.ndarray, "hits"]
    rate_error: Float[np.ndarray, "hits"]

    def some(self, rows: np.ndarray) -> "_Hits":
        return _Hits(*(part[rows] for part in self))


class _Plane(NamedTuple):
    """A hypothetical wall."""

    normal: Float[np.ndarray, "dimension"]
    offset: float
    members: Bool[np.ndarray, "hits"]
    evidence: float
    """Nats by which its impacts are likelier than jumps of unknown cause; the first determines the offset."""


def _walls(
    jumps: Sequence[_VelocityJump], tracks: Sequence[np.ndarray], motion: Motion, others: int
) -> list[tuple[Wall, list[_Impact]]]:
    """Walls of every body, the most evident first, until no more are evident."""
    found: list[tuple[Wall, list[_Impact]]] = []
    many = len(jumps) + others >= MANY
    for body, track in enumerate(tracks):
        own = [jump for jump in jumps if jump.body == body]
        if not own:
            continue
        names = ("position", "before", "after", "error", "rate_error")
        hits = _Hits(*(np.array([getattr(jump, name) for jump in own]) for name in names))
        free, walls = np.ones(len(own), bool), []
        while free.any():
            plane = _best_plane(hits, free, track, motion, walls)
            if plane is None or plane.members.sum() < (FEWEST if many else 1):
                break
            if plane.evidence < EVIDENT and plane.members.sum() > 1:
                break
            normal = plane.normal
            walls.append(normal)
            ratios = -(hits.after @ normal) / (hits.before @ normal)
            group = [
                _Impact((body,), own[k].position, float(ratios[k]), own[k].parts, own[k].masked)
                for k in np.flatnonzero(plane.members)
            ]
            found.append((Wall(body, tuple(normal.tolist()), plane.offset), group))
            free &= ~plane.members
    return sorted(found, key=lambda pair: (pair[0].body, pair[0].normal))


def _best_plane(
    hits: _Hits, free: np.ndarray, track: np.ndarray, motion: Motion, walls: Sequence[np.ndarray]
) -> _Plane | None:
    """The most evident plane that no data lie behind."""
    dimension = track.shape[1]
    axes = [sign * axis for axis in np.eye(dimension) for sign in (1.0, -1.0)]
    directions: list[np.ndarray] = []
    if dimension > 1:
        change = (hits.after - hits.before)[free]
        fastest = np.argsort(-np.sum(change**2, axis=1))[:DIRECTIONS]
        directions = list(change[fastest] / np.linalg.norm(change[fastest], axis=1, keepdims=True))
    best = None
    for number, normal in enumerate([*axes, *directions]):
        aligned = number < len(axes)
        turned = normal
        for _ in range(0 if aligned else 2):
            # The direction of one impulse is not exact: far from the impact data may seem to lie behind.
            plane = _plane(hits, free, track, motion, turned, LOOSE)
            turned = turned if plane is None else _turned(hits, plane, motion)
        plane = _plane(hits, free, track, motion, turned, STRICT)
        if plane is None or any(plane.normal @ wall > ALIGNED for wall in walls):
            continue
        plane = plane if aligned else plane._replace(evidence=plane.evidence - SLOPE * (dimension - 1))
        if best is None or plane.evidence > best.evidence:
            best = plane
    return best


def _plane(
    hits: _Hits,
    free: np.ndarray,
    track: np.ndarray,
    motion: Motion,
    normal: Float[np.ndarray, "dimension"],
    tolerance: float,
) -> _Plane | None:
    """The plane with this normal at which most impacts are, if no data lie behind it.

    Arguments:
        tolerance: how far data may lie behind, relative to the range of the motion; noise adds to it.
    """
    closing, opening = hits.before @ normal, hits.after @ normal
    slack = 2 * TOLERANCE * np.abs(closing) + 2 * hits.rate_error
    height = hits.position @ normal
    # The highest that a plane may be: a few samples may be lost tracks.
    few = max(2, int(BEHIND * len(track)))
    lowest = float(np.partition(track @ normal, few)[few]) if len(track) > few else np.inf
    limit = lowest + CLEARLY * motion.noise[0] + tolerance * motion.length
    possible = free & (closing < 0) & (opening >= -slack) & (opening <= -closing + slack) & (height < limit)
    along = opening - closing
    across = np.linalg.norm(hits.after - hits.before - along[:, None] * normal, axis=1)
    across = np.maximum(across - 2 * hits.rate_error, 0)
    rows = np.flatnonzero(possible & (across < STEEPEST * along))
    if not len(rows):
        return None
    spread = np.hypot(hits.error, UNEVEN * motion.length)[rows]
    apart = (height[rows, None] - height[None, rows]) / spread[:, None]
    alone = np.log(motion.length / (np.sqrt(2 * np.pi) * spread))
    gain = np.maximum(alone[:, None] - 0.5 * np.minimum(apart**2, 100.0), 0)
    centre = int(np.argmax(gain.sum(axis=0)))
    near = gain[:, centre] > 0
    weight = 1 / spread[near] ** 2
    offset = float(weight @ height[rows[near]] / weight.sum())
    members = np.zeros(len(free), bool)
    members[rows[near]] = True
    # The first impact determines the offset. Friction turns the impulses of all alike.
    residual = (height[rows[near]] - offset) * np.sqrt(weight)
    turn = float(np.median(across[members] / along[members])) / TILT
    evidence = float((alone[near] - 0.5 * residual**2).sum() - alone.max()) - 0.5 * turn**2
    return _Plane(normal, offset, members, evidence)


def _turned(hits: _Hits, plane: _Plane, motion: Motion) -> Float[np.ndarray, "dimension"]:
    """The normal of a plane through the positions of its impacts, near the direction of their impulses."""
    own = hits.some(plane.members)
    change = own.after - own.before
    normal = change.sum(axis=0)
    normal = normal / np.linalg.norm(normal)
    tangents = np.linalg.svd(normal[None])[2][1:]
    spread = np.hypot(own.error, UNEVEN * motion.length)
    weight = 1 / spread**2
    from_centre = own.position - weight @ own.position / weight.sum()
    height, along = from_centre @ normal, from_centre @ tangents.T
    matrix = (weight[:, None] * along).T @ along + np.eye(len(tangents)) / TILT**2
    normal = normal - np.linalg.solve(matrix, along.T @ (weight * height)) @ tangents
    return normal / np.linalg.norm(normal)


def _pairs(impacts: Iterable[_Impact], dimension: int) -> list[tuple[Pair, list[_Impact]]]:
    groups: dict[tuple[int, ...], list[_Impact]] = {}
    for impact in impacts:
        key = impact.bodies if dimension == 1 else tuple(sorted(impact.bodies))
        groups.setdefault(key, []).append(impact)
    found = []
    for (first, second), group in groups.items():
        if dimension == 1 and len(groups.get((second, first), [])) > len(group):
            continue  # the opposite order is more frequent: due to noise
        distances = [float(i.position[0] if dimension == 1 else np.linalg.norm(i.position)) for i in group]
        found.append((Pair(first, second, float(np.median(distances))), group))
    return sorted(found, key=lambda pair: pair[0].bodies)


def _masses(bodies: int, impacts: Iterable[_Impact]) -> tuple[float, ...]:
    """Masses relative to body 1, from mass ratios of pairs along chains of impacts."""
    ratios: dict[tuple[int, int], list[float]] = {}
    for impact in impacts:
        if len(impact.bodies) == 2:
            first, second = impact.bodies
            ratios.setdefault((first, second), []).append(impact.ratio)
            ratios.setdefault((second, first), []).append(1 / impact.ratio)
    masses = {0: 1.0}
    for _ in range(bodies):
        for (known, other), found in ratios.items():
            if known in masses and other not in masses:
                masses[other] = masses[known] * float(np.median(found))
    return tuple(masses.get(body, 1.0) for body in range(bodies))
