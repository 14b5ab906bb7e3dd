"""The textbook's model of bouncing bodies: free flight with constant acceleration, and a law of impact."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from carom.data import Run
from carom.digits import mean_and_error
from carom.mechanics import Scene
from carom.types import State

Law = Literal["constant", "linear", "logarithmic"]
Positions = Float[np.ndarray, "runs samples bodies dimension"]


class Variant(NamedTuple):
    """What the textbook may add to free flight with constant restitution.

    Arguments:
        law: of restitution.
        drag: whether there is any.
        margin: samples left out on either side of an impact, more where contacts last.
        nearest: samples on either side from which the velocities at an impact are estimated.
        sliding: whether tangential velocities change by Coulomb friction instead of a constant ratio.
    """

    law: Law = "constant"
    drag: bool = False
    margin: float = 0.6
    nearest: int = 15
    sliding: bool = False


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    error: float


NOTHING = Estimate(0.0, np.inf)


class Hits(NamedTuple):
    """Impacts as regression sees them, one per row."""

    run: np.ndarray
    contact: np.ndarray
    gap: np.ndarray
    closing: np.ndarray
    leaving: np.ndarray
    gained: np.ndarray
    """Momentum along the normal, over the impulse: 0 between two bodies whose masses are right."""
    place: np.ndarray
    """Positions, of pairs relative to each other, (hits, dimension)."""
    slip: np.ndarray
    """Tangential velocities before and after, (2, hits, dimension)."""


@dataclass(frozen=True, eq=False)
class TextbookModel:
    """Free flight and a law of impact.

    Arguments:
        scene: bodies and contacts, at the estimated places.
        variant: which terms it has.
        acceleration: in flight.
        drag: k of −k |v| v.
        restitution: coefficients of e for walls and pairs: at speed 0 (or 1, of the logarithmic law), slope.
        speeds: the closing speeds it was learned from; beyond them e stays what it is at their ends.
        tangential: ratio of the tangential velocities, or coefficient of friction, for walls and pairs.
        parameters: estimates by name.
        noise: standard deviation of the measured positions about the arcs.
        hits: the impacts behind it, with gaps from the surfaces as they were stated.
        slowing: the drag that flights have, whether it improves forecasts or not.
    """

    scene: Scene
    variant: Variant
    acceleration: Float[np.ndarray, "dimension"]
    drag: float
    restitution: Float[np.ndarray, "2 2"]
    speeds: Float[np.ndarray, "2 2"]
    tangential: Float[np.ndarray, "2"]
    parameters: dict[str, Estimate]
    noise: float
    hits: Hits
    slowing: Estimate = NOTHING

    def describe(self) -> str:
        """The terms and parameters in one line."""
        terms = f"{self.variant.law} restitution" + (", quadratic drag" if self.variant.drag else "")
        values = "; ".join(f"{name} {mean_and_error(*one)}" for name, one in self.parameters.items())
        return f"It has constant acceleration, {terms}: {values}"

    def predict(
        self, start: State, times: Float[np.ndarray, "samples"]
    ) -> Float[np.ndarray, "samples bodies dimension"]:
        """Positions at `times` from a state at the first of them."""
        position, velocity = (np.asarray(part, float)[None] for part in (start.position, start.velocity))
        return self.predict_many(position, velocity, np.asarray(times, float)[None])[0]

    def predict_many(self, position: np.ndarray, velocity: np.ndarray, times: np.ndarray) -> Positions:
        """The same for many runs at once, each with its own times."""
        if not (self.scene.contacts or self.drag):
            since = (times - times[:, :1])[:, :, None, None]
            return position[:, None] + since * velocity[:, None] + 0.5 * since**2 * self.acceleration
        world = Contacts(self.scene)
        # Some hundred steps for a run suffice: an impact is placed within a step by its parabola.
        parts = int(np.clip(np.ceil(300 / times.shape[1]), 1, 8))
        path = [position]
        for step in np.diff(times, axis=1).T / parts:
            for _ in range(parts):
                position, velocity = self._step(world, position, velocity, step)
            path.append(position)
        return np.stack(path, axis=1)

    def start_of(self, runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray]:
        """States at the first sample of histories without impacts, by least squares over their samples."""
        count = max(len(run) for run in runs)
        times = np.stack([np.pad(run.time, (0, count - len(run)), mode="edge") for run in runs])
        seen = np.full((len(runs), count, self.scene.bodies, self.scene.dimension), np.nan)
        for row, run in enumerate(runs):
            seen[row, : len(run)] = run.position
        position, velocity = np.zeros_like(seen[:, 0]), np.zeros_like(seen[:, 0])
        free = replace(self, scene=self.scene.without_contacts())
        for attempt in range(4):  # flight is all but linear in its start; later ones leave out outliers
            residual = seen - free.predict_many(position, velocity, times)
            scale = 1.4826 * np.nanmedian(np.abs(residual - np.nanmedian(residual, axis=1, keepdims=True)))
            known = np.isfinite(residual)
            if attempt > 1:
                known &= np.abs(residual) < 5 * max(scale, self.noise) + 1e-300
            tau = (times - times[:, :1])[:, :, None, None] * np.ones_like(residual)
            value = np.where(known, residual, 0.0)
            n, t, tt = (np.sum(known * tau**power, axis=1) for power in range(3))
            y, ty = np.sum(value, axis=1), np.sum(value * tau, axis=1)
            determinant = np.maximum(n * tt - t * t, 1e-300)
            position = position + (tt * y - t * ty) / determinant
            velocity = velocity + (n * ty - t * y) / determinant
        return position, velocity

    def forecast(self, history: Run, times: Float[np.ndarray, "samples"]) -> np.ndarray:
        """Positions at `times` after a history without impacts."""
        position, velocity = self.start_of([history])
        whole = np.concatenate([history.time[:1], times])[None]
        return self.predict_many(position, velocity, whole)[0, 1:]

    def coefficient(self, speed: np.ndarray, kind: np.ndarray) -> np.ndarray:
        """e of impacts at walls (kind 0) and of pairs (1)."""
        within = np.clip(speed, *self.speeds[kind].T)
        term = speed_term(within, self.variant.law)
        return np.clip(self.restitution[kind, 0] + self.restitution[kind, 1] * term, 0, 1)

    def _step(self, world: "Contacts", position, velocity, step) -> tuple[np.ndarray, np.ndarray]:
        left = step[:, None, None]
        for _ in range(3):
            rate = self._flow(velocity, left)
            ahead, faster = position + left * velocity + 0.5 * left**2 * rate, velocity + left * rate
            if not len(world.shares) or not ((gap := world.gaps(ahead)) < 0).any():
                return ahead, faster
            hit = (gap < 0) & (world.gap_and_rate(ahead, faster)[1] < 0)
            if not hit.any():
                return ahead, faster
            rows = np.flatnonzero(hit.any(axis=1))
            here = position[rows], velocity[rows], rate[rows]
            contact, until = world.first_contact(here, gap[rows], hit[rows], left[rows])
            position, velocity = ahead, faster
            position[rows] = here[0] + until * here[1] + 0.5 * until**2 * here[2]
            velocity[rows] = self._bounce(world, position[rows], here[1] + until * here[2], contact)
            rest = np.zeros_like(left)
            rest[rows] = left[rows] - until
            left = rest
        rate = self._flow(velocity, left)
        return world.at_rest(position + left * velocity + 0.5 * left**2 * rate, velocity + left * rate)

    def _flow(self, velocity: np.ndarray, step: np.ndarray) -> np.ndarray:
        """The acceleration over a step, at its middle."""
        if not self.drag:
            return np.broadcast_to(self.acceleration, velocity.shape)
        # Twice the same lines: a function of its own takes longer to call than this takes to compute.
        speed = np.sqrt((velocity * velocity).sum(axis=-1, keepdims=True))
        middle = velocity + 0.5 * step * (self.acceleration - self.drag * speed * velocity)
        speed = np.sqrt((middle * middle).sum(axis=-1, keepdims=True))
        return self.acceleration - self.drag * speed * middle

    def _bounce(self, world: "Contacts", position, velocity, contact) -> np.ndarray:
        normal, relative, speed = world.at(position, velocity, contact)
        e, kind = self.coefficient(speed, world.kind[contact]), world.kind[contact]
        slip = relative + speed[:, None] * normal
        kept = self.tangential[kind]
        if self.variant.sliding:
            most = kept * (1 + e) * speed / np.maximum(np.linalg.norm(slip, axis=-1), 1e-300)
            kept = 1 - np.minimum(most, 1)
        change = (1 + e)[:, None] * speed[:, None] * normal + (kept - 1)[:, None] * slip
        return velocity + world.shares[contact][:, :, None] * change[:, None]


class Contacts:
    """The contacts of a scene as NumPy arrays, for many runs at once."""

    def __init__(self, scene: Scene):
        geometry = scene.geometry
        self.rows, self.joined = geometry.rows, geometry.joined
        self.kind = geometry.body_pairs.astype(int)
        self.signs = self.rows.signs
        self.masses = np.array(scene.masses)
        inverse = 1 / self.masses
        self.inverse = self.signs**2 @ inverse
        """The inverse of the effective mass of every contact."""
        self.shares = self.signs * inverse / self.inverse[:, None]
        """What a change of the relative velocity by 1 is for every body."""

    def normal(self, relative: np.ndarray, contact: int) -> np.ndarray:
        """The normal of one contact at a relative position."""
        return self.rows.normal_of(np.broadcast_to(relative, (len(self.signs), len(relative))))[contact]

    def gap(self, relative: np.ndarray, contact: int) -> float:
        """The gap of one contact at a relative position."""
        return float(self.rows.gap_of(np.broadcast_to(relative, (len(self.signs), len(relative))))[contact])

    def gaps(self, position) -> Any:
        return self.rows.gap_of(self.rows.relative(position))

    def gap_and_rate(self, position, velocity) -> tuple[Any, Any]:
        relative = self.rows.relative(position)
        rate = np.sum(self.rows.normal_of(relative) * self.rows.relative(velocity), axis=-1)
        return self.rows.gap_of(relative), rate

    def first_contact(self, here, gap, hit, left) -> tuple[np.ndarray, np.ndarray]:
        """The contact that closes first within a step, and when: linearly, then two steps by Newton."""
        before = np.maximum(self.gap_and_rate(here[0], here[1])[0], 0)
        fraction = np.where(hit, before / np.maximum(before - gap, 1e-300), np.inf)
        contact, each = np.argmin(fraction, axis=1), np.arange(len(fraction))
        until = fraction[each, contact][:, None, None] * left
        for _ in range(2):
            gap, rate = self.gap_and_rate(
                here[0] + until * here[1] + 0.5 * until**2 * here[2], here[1] + until * here[2]
            )
            change = gap[each, contact] / np.minimum(rate[each, contact], -1e-12)
            until = np.clip(until - change[:, None, None], 0, left)
        return contact, until

    def at(self, position, velocity, contact) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Normal, relative velocity and closing speed of one contact in every run."""
        each, relative = np.arange(len(contact)), self.rows.relative(position)
        normal = self.rows.normal_of(relative)[each, contact]
        velocity = self.rows.relative(velocity)[each, contact]
        return normal, velocity, np.maximum(-np.sum(normal * velocity, axis=-1), 0)

    def at_rest(self, position, velocity) -> tuple[np.ndarray, np.ndarray]:
        """Bodies on the surfaces that they are behind, without a velocity into them."""
        for contact in range(len(self.shares)):
            gap, rate = (part[:, contact] for part in self.gap_and_rate(position, velocity))
            normal = self.rows.normal_of(self.rows.relative(position))[:, contact]
            move = np.where((gap < 0)[:, None], normal, 0.0)[:, None] * self.shares[contact][:, None]
            position = position - gap[:, None, None] * move
            velocity = velocity - np.minimum(rate, 0)[:, None, None] * move
        return position, velocity


def speed_term(speed: np.ndarray, law: Law) -> np.ndarray:
    return {
        "constant": np.zeros_like(speed),
        "linear": speed,
        "logarithmic": np.log(np.maximum(speed, 1e-9)),
    }[law]
