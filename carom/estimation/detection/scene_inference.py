"""Which walls and pairs of bodies a recording shows, before anybody has said where contacts may be.

Every body is searched for kinks in its motion, in any direction. A kink of one body is an impact at a wall
whose normal is the direction of the jump; kinks of two bodies at once, in opposite directions, are an impact
of the pair. Where hardly any are found, contacts may last for several samples: these are hidden then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from carom.data import Recording, Run
from carom.data.recording import require_moderate
from carom.estimation.detection.impacts import (
    OFFSETS,
    PRIOR_LOG_ODDS,
    between_impacts,
    peaks_of,
    possible_impact,
)
from carom.estimation.detection.local_fits import Windows
from carom.mechanics import Candidate, Pair, Wall

TOGETHER = 2
"""Steps that the kinks of two bodies in one impact may seem apart."""
ALIGNED = 0.9
"""The cosine of the angle up to which two directions count as the same."""
QUIET = 0.25
"""The share of a recording that is taken to be free of impacts, however many there are."""
EXPLAINED = 3.0
"""The mean square of residuals, over that of noise, up to which a kink explains its window."""
LASTING = (0, 5, 15, 45)
"""Samples either side of an impact that are hidden where contacts last."""
LEFT = 0.05
"""The share of the misfit of smooth motion up to which a kink explains a window by and large."""
SHARPER = 5.0
"""How much greater a jump must be than what accelerations between impacts make of the hidden time."""
MAXIMUM_SAMPLES = 20_000
"""Samples of a recording that are looked at."""


@dataclass(frozen=True)
class ContactGuess:
    """What may touch, and what that tells.

    Arguments:
        candidates: walls, then pairs.
        impacts: how often each was seen.
        restitution: the median over all impacts; None where there are none.
        masses: relative to body 1, by how far pairs throw each other; 1 where nothing tells.
        mask: samples either side of an impact that a contact seems to last.
    """

    candidates: tuple[Candidate, ...]
    impacts: tuple[int, ...]
    restitution: float | None
    masses: tuple[float, ...]
    mask: int = 0


@dataclass(frozen=True)
class _Kink:
    body: int
    step: int
    position: Float[np.ndarray, "dimension"]
    before: Float[np.ndarray, "dimension"]
    after: Float[np.ndarray, "dimension"]

    @property
    def jump(self) -> np.ndarray:
        return self.after - self.before


@dataclass(frozen=True)
class _Impact:
    """One impact, of a body at a wall or of two bodies, the first being pushed along the normal."""

    bodies: tuple[int, ...]
    normal: Float[np.ndarray, "dimension"]
    place: Float[np.ndarray, "dimension"]
    """Where the first body was, from the second one if there are two."""
    restitution: float
    ratio: float = 1.0
    """The mass of the second body over that of the first."""


def guess_contacts(recording: Recording) -> ContactGuess:
    """Walls and pairs that the motion of a recording shows.

    Arguments:
        recording: bodies and dimension are known; its scene may name no contacts.

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
        left = MAXIMUM_SAMPLES - sum(len(run) for run in runs)
        if left >= 8 and len(run) >= 8:
            runs.append(run.part(slice(0, left)))
    chosen, mask = _groups([impact for run in runs for impact in _impacts(run)], recording.dimension), 0
    # Runs are mostly recorded for what happens in them; where little is seen, it may be that contacts last.
    seen = sum(len(group) for _, group in chosen)
    if len(runs) > 2 and seen < 0.5 * len(runs):
        tried = {mask: _common(_lasting(runs, mask), recording.dimension, len(runs)) for mask in LASTING}
        most = max(sum(len(group) for _, group in groups) for groups in tried.values())
        if most > 2 * seen:
            mask, chosen = next(
                (mask, groups)
                for mask, groups in tried.items()
                if sum(len(group) for _, group in groups) > 0.96 * most
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


def _lasting(runs: Sequence[Run], mask: int) -> list[_Impact]:
    return [
        impact for run in runs if len(run) > 4 * mask + 16 for impact in _impacts(run, mask, roughly=True)
    ]


def _common(impacts: Sequence[_Impact], dimension: int, runs: int) -> list[tuple[Candidate, list[_Impact]]]:
    """What happens in a good part of the runs: what is seen roughly is seen wrongly now and then."""
    groups = _groups(impacts, dimension)
    return [(candidate, group) for candidate, group in groups if len(group) >= max(3, 0.25 * runs)]


def _impacts(run: Run, mask: int = 0, *, roughly: bool = False) -> list[_Impact]:
    """Kinks put together to impacts.

    Arguments:
        mask: samples either side of a kink that do not count.
        roughly: also where a kink explains most of a window but not all to the noise.
    """
    by_body = [_kinks(run, body, mask, roughly) for body in range(run.position.shape[1])]
    left = [kink for kinks in by_body for kink in kinks]
    found = []
    for a, b in combinations(left, 2):
        if a.body == b.body or abs(a.step - b.step) > TOGETHER + mask or a not in left or b not in left:
            continue
        impact = _of_pair(a, b, run)
        if impact is not None:
            found.append(impact)
            left = [kink for kink in left if kink is not a and kink is not b]
    for kink in left:
        normal = kink.jump / max(float(np.linalg.norm(kink.jump)), 1e-300)
        before, after = float(normal @ kink.before), float(normal @ kink.after)
        if _may_be_impact(before, after):
            found.append(_Impact((kink.body,), normal, kink.position, -after / before))
    return found


def _kinks(run: Run, body: int, mask: int, roughly: bool) -> list[_Kink]:
    """Jumps of one body's velocity in any direction."""
    alone = Run(
        run.time,
        run.position[:, [body]],
        None if run.velocity is None else run.velocity[:, [body]],
    )
    between = between_impacts(alone, quiet=QUIET)
    steps, dimension, half_width = len(run) - 1, run.position.shape[2], between.half_width + 2 * mask
    windows, base = between.windows, between.misfit
    if mask:
        windows = Windows(alone, half_width, mask=mask)
        smooth = windows.fit(None, None, between.weight, between.stiffness)
        base = smooth.misfit(between.weight, between.stiffness)
    directions = np.broadcast_to(np.eye(dimension), (steps, dimension, dimension))
    log_odds = np.full(steps, -np.inf)
    kink = np.zeros((3, steps, dimension))  # position, velocity before, velocity after
    for place in OFFSETS:
        fit = windows.fit(directions, place, between.weight, between.stiffness)
        left = fit.misfit(between.weight, between.stiffness)
        # Where an impact is elsewhere in the window, a kink explains much and still leaves much.
        explained = left < EXPLAINED * fit.counts.sum(axis=1)
        if roughly:
            # A smooth turn that is hidden looks like a bounce, but jumps no more than it bends elsewhere.
            jump = np.linalg.norm((fit.velocity_after - fit.velocity_before)[:, 0], axis=1)
            bent = between.acceleration * windows.step * (2 * mask + 2)
            explained = (explained | (left < LEFT * base)) & (jump > SHARPER * bent)
        gain = np.where(explained, 0.5 * (base - left), -np.inf)
        better = gain > log_odds
        log_odds[better] = gain[better]
        for part, value in zip(kink, (fit.position, fit.velocity_before, fit.velocity_after), strict=True):
            part[better] = value[better, 0]
    chosen = peaks_of((log_odds + PRIOR_LOG_ODDS)[:, None], half_width, np.ones((1, 1), bool))
    return [_Kink(body, int(step), *kink[:, step]) for step in np.flatnonzero(chosen[:, 0])]


def _of_pair(a: _Kink, b: _Kink, run: Run) -> _Impact | None:
    """The impact of two bodies that were thrown apart, or None."""
    if run.position.shape[2] == 1 and a.jump[0] < 0:
        a, b = b, a  # on a line the first body is the one with the greater coordinate
    lengths = [float(np.linalg.norm(kink.jump)) for kink in (a, b)]
    if min(lengths) == 0 or float(a.jump @ b.jump) > -ALIGNED * lengths[0] * lengths[1]:
        return None
    normal = (a.jump - b.jump) / np.linalg.norm(a.jump - b.jump)
    before, after = float(normal @ (a.before - b.before)), float(normal @ (a.after - b.after))
    apart = a.position - b.position
    distance = float(np.linalg.norm(apart)) if len(apart) > 1 else float(apart[0])
    if len(apart) > 1 and float(normal @ apart) < ALIGNED * distance:
        return None
    if not _may_be_impact(before, after):
        return None
    return _Impact((a.body, b.body), normal, apart, -after / before, lengths[0] / lengths[1])


def _may_be_impact(before: float, after: float) -> bool:
    return bool(possible_impact(np.array([[0.0], [before], [after]]))[0])


def _walls(impacts: Sequence[_Impact]) -> list[tuple[Wall, list[_Impact]]]:
    """Impacts of one body in about one direction are at one wall."""
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
        # Along the normal that is chosen, not along that of each kink, which friction turns.
        offset = float(np.median([normal @ impact.place for impact in group]))
        found.append((Wall(group[0].bodies[0], tuple(normal.tolist()), offset), group))
    return sorted(found, key=lambda pair: (pair[0].body, pair[0].normal))


def _upright(normal: Float[np.ndarray, "dimension"]) -> Float[np.ndarray, "dimension"]:
    """Along an axis where that is near: most walls and floors are."""
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
            continue  # seen the other way round more often: noise
        apart = [float(i.place[0] if dimension == 1 else np.linalg.norm(i.place)) for i in group]
        found.append((Pair(first, second, float(np.median(apart))), group))
    return sorted(found, key=lambda pair: pair[0].bodies)


def _masses(bodies: int, impacts: Iterable[_Impact]) -> tuple[float, ...]:
    """Ratios of masses from how far each body of a pair is thrown, passed on from body to body."""
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
