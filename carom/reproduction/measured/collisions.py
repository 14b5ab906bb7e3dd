"""Collisions of two bodies on a line: velocities by regression lines, and by a law of restitution."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.estimation.detection.impacts import find_impacts
from carom.mechanics import Scene

Velocities = Float[np.ndarray, "collisions 2"]


@dataclass(frozen=True, eq=False)
class Collision:
    """A run by linear regression on its samples before the contact and after it.

    Arguments:
        instant: where the line of the gap before meets that after.
        before, after: slopes of the lines.
    """

    instant: float
    before: Float[np.ndarray, "2"]
    after: Float[np.ndarray, "2"]

    @property
    def closing_speed(self) -> float:
        return float(self.before[1] - self.before[0])

    @property
    def restitution(self) -> float:
        return float((self.after[0] - self.after[1]) / self.closing_speed)

    @property
    def mass_ratio(self) -> float:
        """Of the second body to the first, by conservation of momentum."""
        change = self.after - self.before
        return float(-change[0] / change[1])


def measure_collision(run: Run, scene: Scene, *, seconds: float, masked: int) -> Collision | None:
    """The most probable impact of a run by linear regression; None where there is none.

    Arguments:
        seconds: duration of the motion on either side of the contact that the lines are fitted to.
        masked: samples on either side of the impact that most contacts last for.
    """
    (found,) = find_impacts([run], scene, masses_known=False, mask=masked)
    if not found.chosen.any():
        return None
    step = int(np.argmax(np.where(found.chosen[:, 0], found.log_odds[:, 0], -np.inf)))
    index, middle, masked = np.arange(len(run)), run.time[step], found.mask
    reach = seconds + masked * float(np.median(np.diff(run.time)))
    near = np.abs(run.time - middle) <= reach
    early, late = near & (index <= step - masked), near & (index > step + masked)
    if min(early.sum(), late.sum()) < 3:
        return None
    time, position = run.time - middle, run.position[:, :, 0]
    lines = (np.polyfit(time[part], position[part], 1) for part in (early, late))
    (before, level_before), (after, level_after) = lines
    # At the impact the gap is the same on both lines, which is one equation for the instant.
    rates, levels = before - after, level_after - level_before
    instant = (levels[0] - levels[1]) / (rates[0] - rates[1])
    return Collision(float(middle + instant), before, after)


def predict_velocities(
    collisions: Sequence[Collision],
    mass_ratios: Float[np.ndarray, "collisions"],
    restitution: float | Float[np.ndarray, "collisions"],
) -> Velocities:
    """Velocities after each collision by Newton's law and conservation of momentum, from those before.

    Arguments:
        collisions: as measured.
        mass_ratios: of the second body to the first in each collision.
        restitution: of each collision, or of all.
    """
    before = np.array([c.before for c in collisions])
    speeds = np.array([c.closing_speed for c in collisions])
    shares = np.stack([mass_ratios, -np.ones_like(mass_ratios)]) / (1 + mass_ratios)
    return before + (shares * (1 + restitution) * speeds).T


def best_constant(collisions: Sequence[Collision], mass_ratios: Float[np.ndarray, "collisions"]) -> float:
    """The one e that predicts the measured velocities after these collisions best, by least squares."""
    measured = np.array([c.after for c in collisions])
    plastic, elastic = (predict_velocities(collisions, mass_ratios, e) for e in (0.0, 1.0))
    # The prediction is linear in e.
    slope = elastic - plastic
    return float(np.clip(np.sum(slope * (measured - plastic)) / np.sum(slope**2), 0.0, 1.0))
