"""Regression of flights and impacts: accelerations by arcs between impacts, velocities where arcs meet."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from carom.data import Run
from carom.mechanics import Scene
from carom.textbook.model import Contacts, Hits, Law, speed_term

ENOUGH_RUNS = 5
"""Runs from which on errors follow from the scatter between them."""
ImpactTimes = Sequence[Sequence[tuple[float, int]]]
"""Time and number of the contact of every impact, by run."""


class Flights(NamedTuple):
    """Normal equations of acceleration and drag, by run."""

    matrix: Float[np.ndarray, "runs terms terms"]
    right: Float[np.ndarray, "runs terms"]
    squares: Float[np.ndarray, "runs"]
    freedom: Float[np.ndarray, "runs"]

    def solve(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Acceleration and drag, their errors, and the noise."""
        matrix, right = self.matrix[chosen].sum(axis=0), self.right[chosen].sum(axis=0)
        inverse = np.linalg.pinv(matrix, hermitian=True)
        value = inverse @ right
        noise = (self.squares[chosen].sum() - value @ right) / max(self.freedom[chosen].sum(), 1.0)
        variance = np.diagonal(inverse) * noise
        # The residuals of a run have much in common, but those of different runs have not.
        scores = self.right[chosen] - self.matrix[chosen] @ value
        if (count := int(scores.any(axis=1).sum())) >= ENOUGH_RUNS:
            between = np.sum((scores @ inverse) ** 2, axis=0) * count / (count - 1)
            variance = np.maximum(variance, between)
        errors = np.sqrt(np.maximum(variance, 0))
        # A body that moves straight on, or without drag: what is not there is not learned.
        return np.where(np.abs(value) > 3 * errors, value, 0.0), errors, float(np.sqrt(max(noise, 0)))


class Arc(NamedTuple):
    """A body between two impacts."""

    run: int
    time: Float[np.ndarray, "samples"]
    position: Float[np.ndarray, "samples dimension"]


def arcs_between(
    runs: Sequence[Run], impacts: ImpactTimes, contacts: Contacts, *, margin: float, least: int = 5
) -> list[Arc]:
    """All arcs, without those of bodies at rest or with a jump that was missed.

    Arguments:
        margin: seconds left out on either side of an impact.
        least: samples of an arc.
    """
    arcs = []
    for number, (run, found) in enumerate(zip(runs, impacts, strict=True)):
        for body in range(run.position.shape[1]):
            times = [time for time, contact in found if body in contacts.joined[contact]]
            known = np.isfinite(run.position[:, body]).all(axis=1)
            for begin, end in pairwise([-np.inf, *times, np.inf]):
                inside = known & (run.time > begin + margin) & (run.time < end - margin)
                if inside.sum() >= least:
                    arcs.append(Arc(number, run.time[inside], run.position[inside, body]))
    if not arcs:
        return []
    spread = np.array([_misfit(arc) for arc in arcs])
    extent = np.array([np.linalg.norm(np.ptp(arc.position, axis=0)) / np.ptp(arc.time) for arc in arcs])
    usual = (spread <= 4 * np.median(spread)) & (extent > 0.1 * np.quantile(extent, 0.9))
    curve = np.array([_curvature(arc) for arc in arcs])
    # A hand, or a body that rolls: not the acceleration of most arcs.
    off = np.linalg.norm(curve - np.median(curve[usual], axis=0), axis=1)
    usual &= off <= 6 * np.median(off[usual]) + 1e-12
    return [arc for arc, fine in zip(arcs, usual, strict=True) if fine]


def _misfit(arc: Arc) -> float:
    """Root mean square about a parabola of its own."""
    basis, _ = np.linalg.qr(np.vander(arc.time - arc.time.mean(), 3))
    residual = arc.position - basis @ (basis.T @ arc.position)
    return float(np.sqrt(np.sum(residual**2) / max(residual.size - 3 * residual.shape[1], 1)))


def _curvature(arc: Arc) -> np.ndarray:
    """The acceleration of one arc."""
    return 2 * np.polyfit(arc.time - arc.time.mean(), arc.position, 2)[0]


def regress_flights(
    arcs: Sequence[Arc], runs: int, *, drag: bool, guess: Float[np.ndarray, "dimension"] | None = None
) -> Flights:
    """The normal equations of a common acceleration, and of drag, with the place and speed of every arc free.

    Arguments:
        guess: of the acceleration; the velocities that drag is proportional to follow from it.
    """
    dimension = arcs[0].position.shape[1]
    terms = dimension + drag
    matrix, right = np.zeros((runs, terms, terms)), np.zeros((runs, terms))
    squares, freedom = np.zeros((2, runs))
    for arc in arcs:
        tau = arc.time - arc.time.mean()
        basis, _ = np.linalg.qr(np.stack([np.ones_like(tau), tau], axis=1))
        fall = 0.5 * tau**2
        columns = np.zeros((terms, *arc.position.shape))
        columns[range(dimension), :, range(dimension)] = fall
        if drag:
            assert guess is not None
            velocity = _line(tau, arc.position - np.outer(fall, guess))[1] + np.outer(tau, guess)
            columns[-1] = _slowing(tau, velocity)
        both = np.concatenate([columns, arc.position[None]])
        both = (both - basis @ (basis.T @ both)).reshape(terms + 1, -1)
        products = both @ both.T
        matrix[arc.run] += products[:-1, :-1]
        right[arc.run] += products[:-1, -1]
        squares[arc.run] += products[-1, -1]
        freedom[arc.run] += arc.position.size - 2 * dimension
    return Flights(matrix, right, squares, freedom)


def measure_hits(
    runs: Sequence[Run],
    impacts: ImpactTimes,
    scene: Scene,
    *,
    acceleration: Float[np.ndarray, "dimension"],
    drag: float,
    margin: float,
    nearest: int,
) -> Hits:
    """Velocities before and after every impact, where the arcs on either side meet."""
    contacts, rows = Contacts(scene), []
    for number, (run, found) in enumerate(zip(runs, impacts, strict=True)):
        for time, contact in found:
            sides = _sides(run, found, time, contact, contacts, acceleration, drag, margin, nearest)
            if sides is None:
                continue
            place, velocity, momentum = sides  # (2, dimension): before and after; the first two relative
            own = acceleration * np.sum(contacts.signs[contact])  # none between two bodies
            normal = contacts.normal(place.mean(axis=0), contact)
            jump = normal @ (velocity[1] - velocity[0])
            meet = np.clip(normal @ (place[0] - place[1]) / max(jump, 1e-12), -3 * margin, 3 * margin)
            place = place + meet * velocity + 0.5 * meet**2 * own
            velocity = velocity + meet * own
            rate = velocity @ normal
            if rate[0] < 0 < rate[1] < -1.5 * rate[0]:
                slip = velocity - np.outer(rate, normal)
                middle = place.mean(axis=0)
                gap = contacts.gap(middle, contact)
                gained = (
                    normal @ (momentum[1] - momentum[0]) / (rate[1] - rate[0]) * contacts.inverse[contact]
                )
                rows.append((number, contact, gap, -rate[0], rate[1], gained, middle, slip))
    if not rows:
        none, places = np.zeros(0), np.zeros((2, 0, scene.dimension))
        return Hits(none.astype(int), none.astype(int), none, none, none, none, places[0], places)
    run, contact, gap, closing, leaving, gained, place, slip = map(np.array, zip(*rows, strict=True))
    usual = np.ones(len(gap), bool)
    for one in np.unique(contact):
        same = contact == one
        off = np.abs(gap - np.median(gap[same]))
        usual &= ~same | (off <= 8 * np.median(off[same]) + 1e-12)
    run, contact, gap, closing, leaving, gained, place, slip = (
        part[usual] for part in (run, contact, gap, closing, leaving, gained, place, slip)
    )
    return Hits(run, contact, gap, closing, leaving, gained, place, slip.swapaxes(0, 1))


def _sides(run, found, time, contact, contacts: Contacts, acceleration, drag, margin, nearest):
    """Relative place and velocity, and momentum, by the arcs on either side; None where one is too short."""
    place, velocity, momentum = np.zeros((3, 2, len(acceleration)))
    for body in contacts.joined[contact]:
        sign = contacts.signs[contact, body]
        others = [t for t, c in found if body in contacts.joined[c]]
        ends = (
            max([t for t in others if t < time], default=-np.inf),
            min([t for t in others if t > time], default=np.inf),
        )
        known = np.isfinite(run.position[:, body]).all(axis=1)
        before = np.flatnonzero(known & (run.time > ends[0] + margin) & (run.time < time - margin))[-nearest:]
        after = np.flatnonzero(known & (run.time > time + margin) & (run.time < ends[1] - margin))[:nearest]
        if min(len(before), len(after)) < 3:
            return None
        for side, samples in enumerate((before, after)):
            tau, x = run.time[samples] - time, run.position[samples, body]
            start, speed = _line(tau, x - 0.5 * np.outer(tau**2, acceleration))
            if drag:
                # From the impact outwards, where the displacement by drag begins with 0.
                order = np.argsort(np.abs(tau))
                tau, x, grid = tau[order], x[order], np.concatenate([[0.0], tau[order]])
                for _ in range(2):
                    lost = drag * _slowing(grid, speed + np.outer(grid, acceleration))[1:]
                    start, speed = _line(tau, x - 0.5 * np.outer(tau**2, acceleration) - lost)
            place[side] += sign * start
            velocity[side] += sign * speed
            momentum[side] += contacts.masses[body] * speed
    return place, velocity, momentum


def _slowing(
    tau: Float[np.ndarray, "samples"], velocity: Float[np.ndarray, "samples dimension"]
) -> np.ndarray:
    """The displacement by a drag of 1, twice the integral of −|v| v from the first time on."""
    rate = -np.linalg.norm(velocity, axis=1, keepdims=True) * velocity
    for _ in range(2):
        rate = scipy.integrate.cumulative_trapezoid(rate, tau, axis=0, initial=0)
    return rate


def _line(tau: Float[np.ndarray, "samples"], values: Float[np.ndarray, "samples dimension"]) -> np.ndarray:
    """Value at 0 and slope, by least squares."""
    return np.linalg.lstsq(np.stack([np.ones_like(tau), tau], axis=1), values)[0]


def regress_restitution(
    closing: Float[np.ndarray, "hits"], leaving: Float[np.ndarray, "hits"], law: Law
) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """Coefficients of e and their errors: leaving = (c₀ + c₁ f(closing)) closing, without outliers."""
    terms = 1 if law == "constant" or len(closing) < 6 else 2
    design = closing[:, None] * np.stack([np.ones_like(closing), speed_term(closing, law)], axis=1)[:, :terms]
    value = np.linalg.lstsq(design, leaving)[0]
    off, usual = np.abs(leaving - design @ value), np.ones(len(closing), bool)
    for _ in range(2):
        usual = off <= 5 * 1.4826 * np.median(off) + 1e-12
        value = np.linalg.lstsq(design[usual], leaving[usual])[0]
        off = np.abs(leaving - design @ value)
    freedom = max(int(usual.sum()) - terms, 1)
    covariance = np.linalg.pinv(design[usual].T @ design[usual]) * np.sum(off[usual] ** 2) / freedom
    errors = np.sqrt(np.maximum(np.diagonal(covariance), 0))
    return np.resize([*value, 0.0], 2) if terms == 1 else value, np.resize([*errors, 0.0], 2)


def regress_tangential(
    before: Float[np.ndarray, "hits dimension"],
    after: Float[np.ndarray, "hits dimension"],
    normal_change: Float[np.ndarray, "hits"],
    *,
    sliding: bool,
) -> tuple[float, float]:
    """The ratio of tangential velocities, or Coulomb's μ of the hits that slide to their end; its error."""
    if not sliding:
        square = max(float(np.sum(before**2)), 1e-300)
        ratio = float(np.clip(np.sum(before * after) / square, -1, 1))
        return ratio, float(np.std(after - ratio * before) / np.sqrt(square))
    slides = np.sum(before * after, axis=1) > 0.2 * np.sum(before**2, axis=1)
    lost = (np.linalg.norm(before, axis=1) - np.linalg.norm(after, axis=1)) / normal_change
    lost = lost[slides] if slides.any() else np.zeros(1)
    return max(float(np.median(lost)), 0.0), 1.2533 * float(np.std(lost)) / np.sqrt(len(lost))
