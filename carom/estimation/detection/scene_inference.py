"""Inference of walls and pairs that touch, from a recording without candidate contacts.

Velocity jumps of every body are detected. A jump of one body is an impact at a wall whose normal is the
direction of the jump; simultaneous jumps of two bodies in opposite directions are an impact of the pair. A
wall that the data cross is no wall. If hardly any are found, contacts may last for several samples, and these
are masked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.data.recording import require_moderate
from carom.estimation.detection.impacts import TOLERANCE
from carom.estimation.detection.local_motion import fit_around, grid_around
from carom.estimation.detection.switching_filter import Jumps, Motion
from carom.estimation.detection.velocity_jumps import detect_velocity_jumps, sequences
from carom.mechanics import Candidate, Pair, Wall

TOGETHER = 2
"""Greatest number of steps between the detected jumps of two bodies in one impact."""
ALIGNED = 0.9
"""Least cosine of the angle between two directions that are taken to be the same."""
LIKELY = 8.0
"""Least log-odds of a jump that counts."""
BEHIND, CLEARLY = 0.002, 5.0
"""Greatest fraction of the samples that may lie behind a wall, and by how many standard deviations."""
UNEXPLAINED = 0.2
"""Fraction of velocity jumps without an explanation from which on longer masks are tried."""
MASKS = (0, 5, 15, 45)
"""Masks that are tried for contacts of finite duration, in samples either side of an impact."""
FEWEST, MANY = 2, 6
"""Least number of impacts at a wall where so many impacts have been found: one jump of unknown cause, such as
a push by a hand, is no wall."""
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

    @property
    def change(self) -> np.ndarray:
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class _Impact:
    """An impact of a body at a wall or of two bodies; the impulse on the first is along the normal."""

    bodies: tuple[int, ...]
    normal: Float[np.ndarray, "dimension"]
    position: Float[np.ndarray, "dimension"]
    """Of the first body, relative to the second if there are two."""
    restitution: float
    speed: float
    """Magnitude of the velocity change of the first body."""
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
    data = sequences(
        [run.time for run in runs], [run.position for run in runs], [run.velocity for run in runs]
    )
    jumps, motion = detect_velocity_jumps(data)
    bodies = recording.bodies
    by_run = [jumps[index * bodies : (index + 1) * bodies] for index in range(len(runs))]

    def groups(mask: int) -> tuple[list[tuple[Candidate, list[_Impact]]], float]:
        """Contacts with their impacts, and the fraction of the velocity jumps that they leave unexplained."""
        impacts, count = [], 0
        for run, found in zip(runs, by_run, strict=True):
            if len(run) > 4 * mask:
                of_run, jumping = _impacts(run, found, motion, mask)
                impacts += of_run
                count += jumping
        chosen = _groups(impacts, runs, motion)
        explained = sum(len(impact.bodies) for _, group in chosen for impact in group)
        return chosen, 1 - explained / max(count, 1)

    # A contact of finite duration is seen as two jumps, at its beginning and its end, that make no impact
    # each: the shortest mask is chosen that leaves few jumps unexplained.
    (chosen, fewest), mask = groups(0), 0
    for longer in MASKS[1:]:
        if fewest < UNEXPLAINED or len(runs) < 3:
            break
        more, unexplained = groups(longer)
        if unexplained < 0.5 * fewest:
            chosen, fewest, mask = more, unexplained, longer
    members = [impact for _, group in chosen for impact in group]
    ratios = [impact.restitution for impact in members]
    return ContactGuess(
        tuple(candidate for candidate, _ in chosen),
        tuple(len(group) for _, group in chosen),
        float(np.clip(np.median(ratios), 0, 1)) if ratios else None,
        _masses(recording.bodies, members),
        mask,
    )


def _groups(
    impacts: Sequence[_Impact], runs: Sequence[Run], motion: Motion
) -> list[tuple[Candidate, list[_Impact]]]:
    walls = _walls([impact for impact in impacts if len(impact.bodies) == 1], runs, motion)
    if len(impacts) >= MANY:
        walls = [(wall, group) for wall, group in walls if len(group) >= FEWEST]
    dimension = runs[0].position.shape[2]
    return [*walls, *_pairs([impact for impact in impacts if len(impact.bodies) == 2], dimension)]


def _impacts(run: Run, jumps: Sequence[Jumps], motion: Motion, mask: int) -> tuple[list[_Impact], int]:
    """Combine velocity jumps into impacts; returns these and the number of jumps.

    Arguments:
        mask: samples either side of a jump to ignore.
    """
    remaining = [
        jump for body, found in enumerate(jumps) for jump in _velocity_jumps(run, body, found, motion, mask)
    ]
    found, count = [], len(remaining)
    for a, b in combinations(remaining, 2):
        distant = abs(a.step - b.step) > TOGETHER + mask
        if a.body == b.body or distant or a not in remaining or b not in remaining:
            continue
        impact = _of_pair(a, b, run)
        if impact is not None:
            found.append(impact)
            remaining = [jump for jump in remaining if jump is not a and jump is not b]
    for jump in remaining:
        normal = jump.change / max(float(np.linalg.norm(jump.change)), 1e-300)
        before, after = float(normal @ jump.before), float(normal @ jump.after)
        if _may_be_impact(before, after):
            size = float(np.linalg.norm(jump.change))
            found.append(_Impact((jump.body,), normal, jump.position, -after / before, size))
    return found, count


def _velocity_jumps(run: Run, body: int, jumps: Jumps, motion: Motion, mask: int) -> list[_VelocityJump]:
    """The jumps of one body with the motion before and after; with a mask, those close together are one."""
    steps, groups = jumps.step.tolist(), []
    for step in steps:
        if groups and step - groups[-1][-1] <= 2 * mask:
            groups[-1].append(step)
        else:
            groups.append([step])
    found = []
    for number, group in enumerate(groups):
        low = groups[number - 1][-1] + 1 if number else 0
        high = groups[number + 1][0] + 1 if number + 1 < len(groups) else len(run)
        instants = grid_around(round(0.5 * (group[0] + group[-1])), len(run) - 1, mask=mask)
        local = fit_around(run, body, instants, low, high, motion, mask=mask)
        best = int(np.argmax(local.log_likelihood))
        if local.log_likelihood[best] - local.smooth > LIKELY:
            parts = (local.position[best], local.before[best], local.after[best])
            found.append(_VelocityJump(body, int(instants[best]), *parts))
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
    if not _may_be_impact(before, after):
        return None
    # Momentum is conserved: the masses are inversely proportional to the velocity changes.
    return _Impact((a.body, b.body), normal, relative, -after / before, lengths[0], lengths[0] / lengths[1])


def _may_be_impact(before: float, after: float) -> bool:
    """Whether an impact with 0 ≤ e ≤ 1 could have these rates of the gap."""
    slack = 2 * TOLERANCE * abs(before)
    return before < 0 and -slack <= after <= -before + slack


def _walls(
    impacts: Sequence[_Impact], runs: Sequence[Run], motion: Motion
) -> list[tuple[Wall, list[_Impact]]]:
    """Group the impacts of each body by direction and position; walls with data behind them are left out."""
    groups: list[list[_Impact]] = []
    # The fastest first: their directions are the least disturbed by noise and friction.
    for impact in sorted(impacts, key=lambda one: -one.speed):
        for group in groups:
            if group[0].bodies == impact.bodies and float(group[0].normal @ impact.normal) > ALIGNED:
                group.append(impact)
                break
        else:
            groups.append([impact])
    found: dict[tuple, tuple[Wall, list[_Impact]]] = {}
    for group in sorted(groups, key=len, reverse=True):
        normal = _upright(np.median([impact.normal for impact in group], axis=0))
        # Along the common normal, since friction tilts the direction of single jumps.
        heights = np.array([normal @ impact.position for impact in group])
        centre = _mode(heights, max(3 * motion.noise[0], 0.01 * motion.length))
        near = np.abs(heights - centre) < max(6 * motion.noise[0], 0.03 * motion.length)
        offset = float(np.median(heights[near]))
        body = group[0].bodies[0]
        height = np.concatenate([run.position[:, body] @ normal for run in runs])
        height = height[np.isfinite(height)]
        slack = CLEARLY * motion.noise[0] + 2 * float(np.median(np.abs(heights[near] - offset)))
        behind = int(np.sum(height < offset - slack))
        if behind > max(2, BEHIND * len(height)):
            continue
        wall = Wall(body, tuple(normal.tolist()), offset)
        # Directions on either side of a limit may belong to one wall, which the larger group describes.
        key = (body, tuple(np.round(normal, 1).tolist()))
        found.setdefault(key, (wall, [impact for impact, ok in zip(group, near, strict=True) if ok]))
    return sorted(found.values(), key=lambda pair: (pair[0].body, pair[0].normal))


def _mode(values: Float[np.ndarray, "values"], width: float) -> float:
    """The value with the most others around it."""
    density = np.exp(-0.5 * ((values[:, None] - values[None, :]) / width) ** 2).sum(axis=1)
    return float(values[np.argmax(density)])


def _upright(normal: Float[np.ndarray, "dimension"]) -> Float[np.ndarray, "dimension"]:
    """The nearest coordinate axis if it is close, as most walls and floors are aligned; else the normal."""
    largest = int(np.argmax(np.abs(normal)))
    length = float(np.linalg.norm(normal))
    if abs(normal[largest]) > ALIGNED * length:
        axis = np.zeros_like(normal)
        axis[largest] = np.sign(normal[largest])
        return axis
    return normal / length


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
