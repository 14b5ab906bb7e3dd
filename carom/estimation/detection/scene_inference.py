"""Inference of walls and pairs that touch, from a recording without candidate contacts.

Velocity jumps of every body are detected. Simultaneous jumps of two bodies in opposite directions are an
impact of the pair. The others may be impacts at a wall: a plane that the data do not cross, at which bodies
closed, and from which they opened no faster. How many nats its impacts are likelier than jumps of unknown
cause, anywhere and in any direction, decides between planes, and whether there is one. If many jumps remain
unexplained, contacts may last for several samples, and these are masked.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.data.recording import require_moderate
from carom.data.steps import constant_step, regular_clock
from carom.digits import counted
from carom.estimation.detection.events import TOLERANCE
from carom.estimation.detection.local_motion import INSTANTS, fit_around, grid_around
from carom.estimation.detection.switching_filter import Jumps, Motion, Sequences
from carom.estimation.detection.velocity_jumps import detect_velocity_jumps, measured_noise, sequences
from carom.estimation.detection.walls import ALIGNED, EVIDENT, Hits, best_plane
from carom.mechanics import Candidate, Pair, Wall

TOGETHER = 2
"""Greatest number of steps between the detected jumps of two bodies in one impact."""
OBLIQUE = 0.7
"""Least cosine of the angle between an impulse and the normal: a coefficient of friction up to 1."""
LIKELY = 8.0
"""Least log-odds of a jump that counts."""
UNKNOWN, MASKED = 10.0, 0.3
"""Nats that a velocity jump of unknown cause costs, and a sample of a body that is masked."""
RESOLVED, VISIBLE = 6, 3.0
"""Least number of samples of a flight that is resolved well, and standard deviations that a bounce rises at
least to be of interest."""
MASKS = (0, 5, 15, 45)
"""Masks that are tried for contacts of finite duration, in samples either side of an impact."""
KEPT = 0.5
"""Least fraction of the impacts that a longer mask keeps."""
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
        doubts: sentences on what the data do not tell.
    """

    candidates: tuple[Candidate, ...]
    impacts: tuple[int, ...]
    restitution: float | None
    masses: tuple[float, ...]
    mask: int = 0
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _VelocityJump:
    body: int
    run: int
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
    run: int
    step: int
    position: Float[np.ndarray, "dimension"]
    """Of the first body, relative to the second if there are two."""
    opening: float
    """Rate of the gap after the impact."""
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
        doubt = (
            "All runs have fewer than 8 samples, too few to look for impacts; name what may touch by hand."
        )
        return ContactGuess((), (), None, (1.0,) * recording.bodies, doubts=(doubt,))
    runs, data = _on_a_clock(runs)
    jumps, motion = detect_velocity_jumps(data)
    bodies = recording.bodies
    found = _Found(runs, [jumps[index * bodies : (index + 1) * bodies] for index in range(len(runs))], motion)
    # A contact of finite duration is seen as several jumps that make no impact each.
    chosen, mask, least = [], 0, np.inf
    for trial in MASKS:
        if least < MASKED * trial * len(runs):
            break
        cost, contacts = _explained(found, trial)
        # A mask that takes several impacts for one explains few of them.
        if cost < least and _count(contacts) >= KEPT * _count(chosen):
            least, chosen, mask = cost, contacts, trial
    members = [impact for _, group in chosen for impact in group]
    ratios = [impact.restitution for impact in members]
    return ContactGuess(
        tuple(candidate for candidate, _ in chosen),
        tuple(len(group) for _, group in chosen),
        float(np.clip(np.median(ratios), 0, 1)) if ratios else None,
        _masses(bodies, members),
        mask,
        tuple(_doubts(found, chosen)),
    )


def _count(contacts: Sequence["_Contact"]) -> int:
    """How many impacts these contacts explain."""
    return sum(len(group) for _, group in contacts)


class _Found(NamedTuple):
    """Velocity jumps of a recording."""

    runs: Sequence[Run]
    jumps: Sequence[Sequence[Jumps]]
    """By run and body."""
    motion: Motion

    @property
    def step_size(self) -> float:
        return float(np.median(np.concatenate([np.diff(run.time) for run in self.runs])))

    def track(self, body: int) -> Float[np.ndarray, "samples dimension"]:
        """All known positions of a body."""
        x = np.concatenate([run.position[:, body] for run in self.runs])
        return x[np.isfinite(x).all(axis=1)]


def _without_outliers(run: Run, jumps: Sequence[Jumps]) -> Run:
    outlier = np.stack([found.outlier[: len(run)] for found in jumps], axis=1)[..., None]
    velocity = None if run.velocity is None else np.where(outlier, np.nan, run.velocity)
    return replace(run, position=np.where(outlier, np.nan, run.position), velocity=velocity)


_Contact = tuple[Candidate, list[_Impact]]


def _explained(found: _Found, mask: int) -> tuple[float, list[_Contact]]:
    """Contacts with their impacts, and the cost of what they leave unexplained, with a mask."""
    pairs: list[_Impact] = []
    singles: list[_VelocityJump] = []
    for index, run in enumerate(found.runs):
        if len(run) > 4 * mask:
            of_pairs, others = _split(found, index, mask)
            pairs += of_pairs
            singles += others
    chosen = [*_walls(singles, found, len(pairs)), *_pairs(pairs, found.runs[0].position.shape[2])]
    members = [impact for _, group in chosen for impact in group]
    count = sum(len(of_body.step) for of_run in found.jumps for of_body in of_run)
    unknown = count - sum(impact.parts for impact in members)
    return UNKNOWN * unknown + MASKED * sum(impact.masked for impact in members), chosen


def _doubts(found: _Found, chosen: Sequence[_Contact]) -> Iterator[str]:
    """What the user should know of bounces that the frame rate hardly resolves, and of missing contacts."""
    step = found.step_size
    rate = f"{1 / step:.3g} frames per second"
    if _too_quick(found, chosen):
        yield (
            f"Some bounces take fewer than {RESOLVED} samples: {rate} hardly resolve them, and some may be "
            "missing or taken for rest."
        )
    if chosen:
        return
    apart = np.concatenate([np.diff(jumps.step) for of_run in found.jumps for jumps in of_run])
    count = sum(len(jumps.step) for of_run in found.jumps for jumps in of_run)
    if not count:
        yield "No wall and no pair was found: no body changes its velocity abruptly."
    elif len(apart) and np.median(apart) < RESOLVED:
        yield (
            f"No wall and no pair was found: velocities change every {np.median(apart):.0f} samples, too "
            f"often to tell impacts apart at {rate}."
        )
    else:
        yield (
            f"No wall and no pair was found: of {counted(count, 'velocity jump')} none is like an impact of "
            "two bodies, or at a plane that the data do not cross. Name what may touch by hand."
        )


def _too_quick(found: _Found, chosen: Sequence[_Contact]) -> bool:
    """Whether flights between impacts are short, or the next would be, although they rise above the noise."""
    motion, step = found.motion, found.step_size
    for candidate, group in chosen:
        normal = candidate.normal if isinstance(candidate, Wall) else np.zeros(len(motion.acceleration))
        pull = -float(np.dot(normal, motion.acceleration))
        pulled = pull > 2 * float(np.linalg.norm(motion.deviation))
        for impact in group:
            others = [
                other.step - impact.step
                for _, near in chosen
                for other in near
                if other.run == impact.run and set(other.bodies) & set(impact.bodies)
            ]
            left = len(found.runs[impact.run]) - 1 - impact.step
            if any(0 < other < RESOLVED for other in others):
                return True
            # The next flight, and the one after it, which has its impact only if that was resolved.
            for speed in (impact.opening, impact.restitution * impact.opening) if pulled else ():
                flight, rise = 2 * speed / pull / step, speed**2 / (2 * pull)
                if flight < min(RESOLVED, left) and rise > VISIBLE * motion.noise[0]:
                    return True
    return False


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


def _split(found: _Found, index: int, mask: int) -> tuple[list[_Impact], list[_VelocityJump]]:
    """Impacts of two bodies in a run, and the velocity jumps that remain.

    Arguments:
        mask: samples either side of a jump to ignore.
    """
    bodies, dimension = found.runs[index].position.shape[1:]
    remaining = [jump for body in range(bodies) for jump in _velocity_jumps(found, index, body, mask)]
    remaining.sort(key=lambda jump: jump.step)
    pairs: list[_Impact] = []
    singles: list[_VelocityJump] = []
    while remaining:
        jump = remaining.pop(0)
        for other in remaining:
            together = other.body != jump.body and other.step - jump.step <= TOGETHER + mask
            impact = _of_pair(jump, other, dimension) if together else None
            if impact is not None:
                pairs.append(impact)
                remaining.remove(other)
                break
        else:
            singles.append(jump)
    return pairs, singles


def _velocity_jumps(found: _Found, index: int, body: int, mask: int) -> list[_VelocityJump]:
    """The jumps of one body with the motion before and after; with a mask, those close together are one."""
    run, jumps, motion = found.runs[index], found.jumps[index][body], found.motion
    groups: list[list[int]] = []
    for step in jumps.step.tolist():
        if groups and step - groups[-1][-1] <= 2 * mask:
            groups[-1].append(step)
        else:
            groups.append([step])
    grid = float(np.median(np.diff(run.time))) * (INSTANTS[1] - INSTANTS[0]) / np.sqrt(48)
    result = []
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
            errors = np.sqrt(variance + np.array([scatter.max(), 0, 0]))
            position, before, after = means
            result.append(
                _VelocityJump(
                    body,
                    index,
                    int(instants[best]),
                    position,
                    before,
                    after,
                    float(errors[0]),
                    float(max(errors[1:])),
                    parts=len(group),
                    masked=max(2 * wide - 1, 0),
                )
            )
    return result


def _of_pair(a: _VelocityJump, b: _VelocityJump, dimension: int) -> _Impact | None:
    """The impact of two bodies that repelled each other, or None."""
    if dimension == 1 and a.change[0] < 0:
        a, b = b, a  # on a line the first body is the one with the greater coordinate
    lengths = [float(np.linalg.norm(jump.change)) for jump in (a, b)]
    if min(lengths) == 0 or float(a.change @ b.change) > -ALIGNED * lengths[0] * lengths[1]:
        return None
    impulse = (a.change - b.change) / np.linalg.norm(a.change - b.change)
    relative = a.position - b.position
    # In the plane and in space spheres repel each other along the line of their centres; friction turns the
    # impulse away from it.
    normal = impulse if dimension == 1 else relative / max(float(np.linalg.norm(relative)), 1e-300)
    if float(normal @ impulse) < OBLIQUE:
        return None
    before, after = float(normal @ (a.before - b.before)), float(normal @ (a.after - b.after))
    slack = 2 * TOLERANCE * abs(before)
    if not (before < 0 and -slack <= after <= -before + slack):
        return None
    # Momentum is conserved: the masses are inversely proportional to the velocity changes.
    counts = a.parts + b.parts, a.masked + b.masked
    at = (a.body, b.body), a.run, min(a.step, b.step)
    return _Impact(*at, relative, after, -after / before, *counts, lengths[0] / lengths[1])


def _walls(jumps: Sequence[_VelocityJump], found: _Found, others: int) -> list[_Contact]:
    """Walls of every body, the most evident first, until no more are evident."""
    result: list[_Contact] = []
    fewest = FEWEST if len(jumps) + others >= MANY else 1
    for body in sorted({jump.body for jump in jumps}):
        own, track = [jump for jump in jumps if jump.body == body], found.track(body)
        hits = Hits(*(np.array([getattr(jump, name) for jump in own]) for name in Hits._fields))
        free, walls = np.ones(len(own), bool), []
        while free.any():
            plane = best_plane(hits, free, track, found.motion, walls)
            count = 0 if plane is None else int(plane.members.sum())
            if plane is None or count < fewest or (count > 1 and plane.evidence < EVIDENT):
                break
            walls.append(plane.normal)
            group = []
            for k in np.flatnonzero(plane.members):
                jump, opening = own[k], float(hits.after[k] @ plane.normal)
                at = (body,), jump.run, jump.step, jump.position
                ratio = -opening / float(hits.before[k] @ plane.normal)
                group.append(_Impact(*at, opening, ratio, jump.parts, jump.masked))
            result.append((Wall(body, tuple(plane.normal.tolist()), plane.offset), group))
            free &= ~plane.members
    return sorted(result, key=lambda pair: (pair[0].body, pair[0].normal))  # pyright: ignore


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
