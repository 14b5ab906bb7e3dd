"""Inference of walls and pairs that touch, from a recording without candidate contacts.

Every body is searched for velocity jumps in any direction. A jump of one body is an impact at a wall whose
normal is the direction of the jump; simultaneous jumps of two bodies in opposite directions are an impact of
the pair. If hardly any are found, contacts may last for several samples, and these are masked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.data.recording import require_moderate
from carom.estimation.detection.impacts import (
    INSTANTS,
    PRIOR_LOG_ODDS,
    fit_smooth,
    peaks_of,
    possible_impact,
)
from carom.estimation.detection.local_fits import Windows
from carom.mechanics import Candidate, Pair, Wall

TOGETHER = 2
"""Greatest number of steps between the detected jumps of two bodies in one impact."""
ALIGNED = 0.9
"""Least cosine of the angle between two directions that are taken to be the same."""
QUIET = 0.25
"""Quantile of the windows from which the noise is estimated; impacts may affect all the others."""
EXPLAINED = 3.0
"""Greatest mean square of the residuals, relative to the noise, of a window that a jump explains."""
MASKS = (0, 5, 15, 45)
"""Masks that are tried for contacts of finite duration, in samples either side of an impact."""
REMAINING = 0.05
"""Greatest fraction of the cost of smooth motion that a jump may leave in a window it explains roughly."""
SHARPER = 5.0
"""Least ratio of a jump to the velocity change by typical accelerations within the mask."""
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


@dataclass(frozen=True)
class _VelocityJump:
    body: int
    step: int
    position: Float[np.ndarray, "dimension"]
    before: Float[np.ndarray, "dimension"]
    after: Float[np.ndarray, "dimension"]

    @property
    def change(self) -> np.ndarray:
        return self.after - self.before


@dataclass(frozen=True)
class _Impact:
    """An impact of a body at a wall or of two bodies; the impulse on the first is along the normal."""

    bodies: tuple[int, ...]
    normal: Float[np.ndarray, "dimension"]
    position: Float[np.ndarray, "dimension"]
    """Of the first body, relative to the second if there are two."""
    restitution: float
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
    chosen, mask = _groups([impact for run in runs for impact in _impacts(run)], recording.dimension), 0
    # Most runs are recorded because of an impact; if few are found, contacts may have a finite duration.
    found = _count(chosen)
    if len(runs) > 2 and found < 0.5 * len(runs):
        by_mask = {mask: _common(_masked(runs, mask), recording.dimension, len(runs)) for mask in MASKS}
        most = max(map(_count, by_mask.values()))
        if most > 2 * found:
            # The shortest mask that finds almost as many impacts as any.
            mask, chosen = next(
                (mask, groups) for mask, groups in by_mask.items() if _count(groups) > 0.96 * most
            )
    members = [impact for _, group in chosen for impact in group]
    ratios = [impact.restitution for impact in members]
    return ContactGuess(
        tuple(candidate for candidate, _ in chosen),
        tuple(len(group) for _, group in chosen),
        float(np.clip(np.median(ratios), 0, 1)) if ratios else None,
        _masses(recording.bodies, members),
        mask,
    )


def _groups(impacts: Sequence[_Impact], dimension: int) -> list[tuple[Candidate, list[_Impact]]]:
    walls = _walls([impact for impact in impacts if len(impact.bodies) == 1])
    return [*walls, *_pairs([impact for impact in impacts if len(impact.bodies) == 2], dimension)]


def _count(groups: Sequence[tuple[Candidate, list[_Impact]]]) -> int:
    return sum(len(group) for _, group in groups)


def _masked(runs: Sequence[Run], mask: int) -> list[_Impact]:
    return [
        impact for run in runs if len(run) > 4 * mask + 16 for impact in _impacts(run, mask, roughly=True)
    ]


def _common(impacts: Sequence[_Impact], dimension: int, runs: int) -> list[tuple[Candidate, list[_Impact]]]:
    """Contacts of a substantial fraction of the runs: rough detection yields some false impacts."""
    groups = _groups(impacts, dimension)
    return [(candidate, group) for candidate, group in groups if len(group) >= max(3, 0.25 * runs)]


def _impacts(run: Run, mask: int = 0, *, roughly: bool = False) -> list[_Impact]:
    """Combine velocity jumps into impacts.

    Arguments:
        mask: samples either side of a jump to ignore.
        roughly: whether a jump need explain only most of a window, not all of it up to the noise.
    """
    by_body = [_velocity_jumps(run, body, mask, roughly) for body in range(run.position.shape[1])]
    remaining = [jump for jumps in by_body for jump in jumps]
    found = []
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
            found.append(_Impact((jump.body,), normal, jump.position, -after / before))
    return found


def _velocity_jumps(run: Run, body: int, mask: int, roughly: bool) -> list[_VelocityJump]:
    """Velocity jumps of one body, in any direction."""
    alone = Run(
        run.time,
        run.position[:, [body]],
        None if run.velocity is None else run.velocity[:, [body]],
    )
    smooth = fit_smooth(alone, quiet=QUIET)
    steps, dimension, half_width = len(run) - 1, run.position.shape[2], smooth.half_width + 2 * mask
    windows, smooth_cost = smooth.windows, smooth.cost
    if mask:
        windows = Windows(alone, half_width, mask=mask)
        masked = windows.fit(None, None, smooth.weight, smooth.stiffness)
        smooth_cost = masked.cost(smooth.weight, smooth.stiffness)
    directions = np.broadcast_to(np.eye(dimension), (steps, dimension, dimension))
    log_odds = np.full(steps, -np.inf)
    jump = np.zeros((3, steps, dimension))  # position, velocity before, velocity after
    for instant in INSTANTS:
        fit = windows.fit(directions, instant, smooth.weight, smooth.stiffness)
        cost = fit.cost(smooth.weight, smooth.stiffness)
        # A jump at the wrong instant of a window with an impact gains much, but leaves large residuals.
        explained = cost < EXPLAINED * fit.counts.sum(axis=1)
        if roughly:
            # A masked smooth turn looks like a bounce, but is no sharper than turns elsewhere.
            change = np.linalg.norm((fit.velocity_after - fit.velocity_before)[:, 0], axis=1)
            turned = smooth.acceleration * windows.step * (2 * mask + 2)
            explained = (explained | (cost < REMAINING * smooth_cost)) & (change > SHARPER * turned)
        gain = np.where(explained, 0.5 * (smooth_cost - cost), -np.inf)
        better = gain > log_odds
        log_odds[better] = gain[better]
        for part, value in zip(jump, (fit.position, fit.velocity_before, fit.velocity_after), strict=True):
            part[better] = value[better, 0]
    chosen = peaks_of((log_odds + PRIOR_LOG_ODDS)[:, None], half_width, np.ones((1, 1), bool))
    return [_VelocityJump(body, int(step), *jump[:, step]) for step in np.flatnonzero(chosen[:, 0])]


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
    return _Impact((a.body, b.body), normal, relative, -after / before, lengths[0] / lengths[1])


def _may_be_impact(before: float, after: float) -> bool:
    return bool(possible_impact(np.array([[0.0], [before], [after]]))[0])


def _walls(impacts: Sequence[_Impact]) -> list[tuple[Wall, list[_Impact]]]:
    """Group the impacts of each body by direction: about the same normal means the same wall."""
    groups: list[list[_Impact]] = []
    for impact in impacts:
        for group in groups:
            if group[0].bodies == impact.bodies and float(group[0].normal @ impact.normal) > ALIGNED:
                group.append(impact)
                break
        else:
            groups.append([impact])
    found = []
    for group in groups:
        normal = _upright(np.median([impact.normal for impact in group], axis=0))
        # Along the common normal, since friction tilts the direction of single jumps.
        offset = float(np.median([normal @ impact.position for impact in group]))
        found.append((Wall(group[0].bodies[0], tuple(normal.tolist()), offset), group))
    return sorted(found, key=lambda pair: (pair[0].body, pair[0].normal))


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
