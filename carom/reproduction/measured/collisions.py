"""Collisions of two bodies on a line: velocities by regression lines, and as a model predicts them."""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from carom.contact_laws import AbstractRestitution, ConstantRestitution
from carom.data import Run
from carom.estimation.detection.impacts import find_impacts
from carom.mechanics import Scene
from carom.models import Mechanism, forecast
from carom.types import State

Velocities = Float[np.ndarray, "collisions 2"]


@dataclass(frozen=True, eq=False)
class Collision:
    """A run by linear regression on its samples before the contact and after it.

    Arguments:
        time: of all samples.
        position: the two positions at the last sample before the contact, on their lines.
        start: the index of that sample.
        end: indices of the samples after the contact that the lines are fitted to.
        instant, gap: where the line of the gap before meets that after.
        before, after: slopes of the lines.
    """

    time: Float[np.ndarray, "samples"]
    position: Float[np.ndarray, "2"]
    start: int
    end: Int[np.ndarray, "few"]
    instant: float
    gap: float
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
    (before, level_before), (after, level_after) = (
        np.polyfit(time[part], position[part], 1) for part in (early, late)
    )
    # At the impact the gap is the same on both lines, which is one equation for the instant.
    rates, levels = before - after, level_after - level_before
    instant = (levels[0] - levels[1]) / (rates[0] - rates[1])
    start = int(np.flatnonzero(early)[-1])
    return Collision(
        time=run.time,
        position=level_before + before * time[start],
        start=start,
        end=np.flatnonzero(late),
        instant=float(middle + instant),
        gap=float((level_before[0] - level_before[1]) + (before[0] - before[1]) * instant),
        before=before,
        after=after,
    )


def predict_velocities(
    model: Mechanism, collisions: Sequence[Collision], mass_ratios: Float[np.ndarray, "collisions"]
) -> Velocities:
    """Velocities after each collision by the model, from its positions and velocities before.

    The model moves on from the last sample before the contact; its bodies meet at the gap where the measured
    lines do. Its own motion is measured as the data are, by lines through the same samples.

    Arguments:
        mass_ratios: of the second body to the first in each collision.
    """
    starts = State(
        jnp.asarray([c.position for c in collisions], jnp.float32)[:, :, None],
        jnp.asarray([c.before for c in collisions], jnp.float32)[:, :, None],
    )
    offsets = jnp.asarray([[c.gap] for c in collisions], jnp.float32)
    masses = jnp.log(jnp.asarray(mass_ratios, jnp.float32))
    # Only ratios matter; the first body has mass 1.
    masses = jnp.stack([jnp.zeros_like(masses), masses], axis=1)
    steps = max(int(c.end[-1]) - c.start for c in collisions)
    paths = np.asarray(_forecasts(model, starts, offsets, masses, steps), float)
    slopes = [
        np.polyfit(c.time[c.end] - c.instant, path[c.end - c.start], 1)[0]
        for c, path in zip(collisions, paths, strict=True)
    ]
    return np.array(slopes)


@eqx.filter_jit
def _forecasts(
    model: Mechanism, starts: State, offsets: Array, masses: Array, steps: int
) -> Float[Array, "collisions samples 2"]:
    def one(start, offset, mass):
        places = lambda m: (m.geometry.offset, m.bodies.log_mass)  # noqa: E731
        return forecast(eqx.tree_at(places, model, (offset, mass)), start, steps).position[:, :, 0]

    return jax.vmap(one)(starts, offsets, masses)


def with_constant(model: Mechanism, restitution: float) -> Mechanism:
    """The same model with one e at all speeds."""
    return with_law(model, ConstantRestitution(jnp.full(len(model.geometry), restitution, jnp.float32)))


def with_law(model: Mechanism, law: AbstractRestitution) -> Mechanism:
    """The same model with another law of restitution."""
    is_law = lambda part: isinstance(part, AbstractRestitution)  # noqa: E731
    return eqx.tree_at(lambda m: m.restitution, model, law, is_leaf=is_law)


def best_constant(
    model: Mechanism, collisions: Sequence[Collision], mass_ratios: Float[np.ndarray, "collisions"]
) -> float:
    """The one e that predicts the measured velocities after these collisions best, by least squares.

    The prediction is linear in e, but for a field that bends the motion after the impact.
    """
    measured = np.array([c.after for c in collisions])
    low, high = (predict_velocities(with_constant(model, e), collisions, mass_ratios) for e in (0.25, 0.75))
    slope = (high - low) / 0.5
    best = 0.25 + np.sum(slope * (measured - low)) / np.sum(slope**2)
    return float(np.clip(best, 0.0, 1.0))
