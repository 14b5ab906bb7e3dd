"""Systems as a laboratory finds them: air, contacts that last, and restitution that is no constant."""

from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.forces import AbstractForce, QuadraticDrag
from carom.mechanics import ContactGeometry
from carom.systems.base import AbstractSystem
from carom.systems.bouncing_ball import BentBall
from carom.systems.exact import (
    Acceleration,
    Flight,
    Impact,
    by_impacts,
    positions_and_velocities,
    solved_flight,
)
from carom.systems.newtons_cradle import NewtonsCradle
from carom.types import Coordinates, Scalar, State, Trajectory

RestitutionLaw = Literal["linear", "logarithmic"]
HAIR = 1e-12
"""Bodies leave a contact from this distance, so that the event of that contact does not fire again."""
PASSES = 100
"""A body moved out of one contact may come nearer to another: at most so many rounds of moves."""
STILL = 1e-10
"""Closing speed below which touching bodies do not collide; side by side they have rounding for a speed."""
LONGEST_STEP = 0.02
"""Seconds; two balls must not pass through each other within a step of the solver."""
LEFT = 1e-8
"""Speed along the normal that ends a rest; rounding of the solver stays below."""
SLIP = 1e-3
"""Slip speed around which the friction of a sliding body is smoothed."""
LEAST_REBOUND = 0.02
"""The least e of a contact that lasts: a damped oscillation never quite stops."""


class Hit(NamedTuple):
    """An impact as it happened."""

    time: float
    """When the bodies touch first."""
    contact: int
    speed: float
    """Closing speed."""
    restitution: float
    """That of this hit, scatter included; 0 where the bodies stay in contact."""


class Laboratory(AbstractSystem):
    """Another system with the imperfections of real bodies, solved impact by impact.

    A contact that lasts is a damped oscillation of the gap over half a period τ,

        g(s) = −(u/ω) exp(−β s) sin(ω s),   ω = π/τ,   β = −ln(e)/τ,

    which begins at the rate −u and ends at e u (Hunt and Crossley's linear limit); friction acts evenly over
    it. A body whose rebound is slower than `rest_speed`, or shorter than a contact, comes to rest.

    Arguments:
        ideal: bodies, forces and contacts; its restitution is that of slow impacts (linear law) or of impacts
            at 1 unit of speed (logarithmic law).
        drag: quadratic drag of every body, an inverse length.
        restitution_loss: how much e falls per unit of closing speed, or per e-fold of it.
        law: which of the two.
        scatter: relative standard deviation of e from hit to hit.
        contact_time: how long a contact lasts, in seconds.
        rest_speed: of a rebound that is none.
        seed: of the scatter; motions from different starts scatter independently.

    Example:
        >>> from carom.systems import BouncingBall
        >>> ball = Laboratory(BouncingBall(restitution=0.8), scatter=0.05, contact_time=0.01)
        >>> _, hits = ball.motion(ball.start, np.linspace(0, 3, 301))
        >>> [hit.contact for hit in hits]
        [0]
    """

    ideal: AbstractSystem
    drag: float = 0.0
    restitution_loss: float = 0.0
    law: RestitutionLaw = eqx.field(static=True, default="linear")
    scatter: float = 0.0
    contact_time: float = 0.0
    rest_speed: float = 1e-3
    seed: int = eqx.field(static=True, default=0)

    @property
    def restitution(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.ideal.restitution

    @property
    def damping(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.ideal.damping

    @property
    def geometry(self) -> ContactGeometry:
        return self.ideal.geometry

    @property
    def masses(self) -> tuple[Scalar, ...]:
        return self.ideal.masses

    @property
    def contact_friction(self) -> Scalar | None:
        return self.ideal.contact_friction

    @property
    def start(self) -> State:
        return self.ideal.start

    @property
    def forces(self) -> tuple[AbstractForce, ...]:
        return (*self.ideal.forces, QuadraticDrag(jnp.full(self.geometry.bodies, self.drag)))

    def potential(self, position: Coordinates) -> Float[Array, ""]:
        return self.ideal.potential(position)

    def mean_restitution(self, speed: float) -> float:
        """e at a closing speed, without scatter."""
        if not self.restitution_loss:
            return self.restitution
        scale = np.log(max(speed, 1e-6)) if self.law == "logarithmic" else speed
        # Slow impacts of a logarithmic law would gain energy, and those of e = 1 would never end.
        return float(np.clip(self.restitution - self.restitution_loss * scale, 0.05, 0.98))

    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        return self.motion(start, times)[0]

    def motion(self, start: State, times: np.ndarray) -> tuple[Trajectory, list[Hit]]:
        """The motion at `times`, and its impacts."""
        state = positions_and_velocities(start)
        world = _World(self, float(times[-1]), np.random.default_rng([self.seed, *state.view(np.uint32)]))
        moved = by_impacts(world.fly, world.impact, state, times, contacts=len(self.geometry))
        shape = (len(moved.time), self.geometry.bodies, self.geometry.dimension)
        flat = moved._replace(position=moved.position.reshape(shape), velocity=moved.velocity.reshape(shape))
        return flat, world.hits


@lru_cache(maxsize=64)
def _acceleration(system: AbstractSystem) -> Acceleration:
    """That of the forces of a system, in NumPy where that is possible: flights call it thousands of times."""
    if isinstance(system, BentBall | NewtonsCradle):
        return system.acceleration
    masses = np.array(system.masses, float)[:, None]
    shape = (2, 8, system.geometry.bodies, system.geometry.dimension)
    with jax.enable_x64(True):
        force = eqx.filter_jit(system.mechanism(1.0).force)
        tried = np.asarray(jax.vmap(force)(*np.random.default_rng(0).normal(size=shape))) / masses
    if np.ptp(tried, axis=0).max() == 0:  # a uniform field
        return lambda position, velocity: tried[0]

    def compiled(position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(force(jnp.asarray(position), jnp.asarray(velocity))) / masses

    return compiled


class _Push(NamedTuple):
    """A contact that is under way."""

    contact: int
    begin: float
    end: float
    normal: np.ndarray
    speed: float
    restitution: float
    slip_impulse: np.ndarray
    """Of friction, in all."""
    weight: float
    """Acceleration of the gap by other forces, which the contact carries."""

    def acceleration(self, time: float) -> float:
        """Of the gap by the contact."""
        duration, since = self.end - self.begin, time - self.begin
        rate, decay = np.pi / duration, -np.log(self.restitution) / duration
        curve = (decay**2 - rate**2) * np.sin(rate * since) - 2 * decay * rate * np.cos(rate * since)
        return -self.speed / rate * np.exp(-decay * since) * curve - self.weight


@dataclass
class _World:
    """A motion in progress: contacts under way, contacts at rest, and what happened."""

    system: Laboratory
    end: float
    random: np.random.Generator
    hits: list[Hit] = field(default_factory=list)
    pushes: list[_Push] = field(default_factory=list)
    resting: list[int] = field(default_factory=list)
    now: float = 0.0

    def __post_init__(self):
        geometry = self.system.geometry
        self.rows, self.masses = geometry.rows, np.array(self.system.masses, float)
        self.shape = (2, geometry.bodies, geometry.dimension)
        signs = self.rows.signs
        self.shares = signs / self.masses  # what an impulse of 1 does to the velocities of the bodies
        self.compliance = (signs**2) @ (1 / self.masses)
        self.field = _acceleration(self.system.ideal)
        self.friction = float(self.system.contact_friction or 0.0)

    def fly(self, begin: float, state: np.ndarray) -> Flight:
        self.now = begin
        self._release(state)
        limit = min([push.end for push in self.pushes], default=np.inf)
        free = self._free()
        position, velocity = self._apart(state, free)
        if self._due(position, velocity, free) is not None:
            # Moved, or `impact` would not see a contact that the moves have closed.
            apart = np.concatenate([position.ravel(), velocity.ravel()])
            return begin, lambda times: np.repeat(apart[:, None], len(times), axis=1)
        # Not a function defined here: type checking at run time would wrap it anew for every flight.
        least_gap = partial(self._least_gap, free)
        until, state = min(limit, max(self.end, begin)), np.concatenate([position.ravel(), velocity.ravel()])
        options = {"method": "DOP853", "max_step": LONGEST_STEP, "rtol": 1e-9, "atol": 1e-11}
        end, states_at = solved_flight(self._rate, begin, state, until, [least_gap], **options)
        self.now = min(end, limit)
        return self.now, states_at

    def _free(self) -> np.ndarray:
        """Contacts that neither are under way nor rest."""
        return ~np.isin(np.arange(len(self.compliance)), [p.contact for p in self.pushes] + self.resting)

    def _least_gap(self, free: np.ndarray, _: Any, y: np.ndarray) -> float:
        return float(np.min(self.rows.gap(y.reshape(self.shape)[0])[free], initial=1e9))

    def impact(self, state: np.ndarray) -> Impact:
        """The end of a contact, or the beginning of one."""
        struck = np.zeros(len(self.compliance), bool)
        going_on = [push for push in self.pushes if push.end > self.now]
        if len(going_on) < len(self.pushes):
            self.pushes = going_on
            return state, struck, False
        free, (position, velocity) = self._free(), state.reshape(self.shape)
        contact = self._due(position, velocity, free)
        if contact is None:
            contact = int(np.argmin(np.where(free, self.rows.gap(position), np.inf)))
            if self._rates(position, velocity)[contact] >= -STILL:
                return state, struck, False
        struck[contact] = True
        return self._struck(contact, position, velocity), struck, False

    def _struck(self, contact: int, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """The state after a contact begins."""
        system, relative = self.system, self.rows.relative(velocity)[contact]
        normal = self.rows.normal_of(self.rows.relative(position))[contact]
        speed = max(-float(normal @ relative), 0.0)
        flow = self._rate(self.now, np.concatenate([position.ravel(), velocity.ravel()])).reshape(self.shape)
        weight = float(normal @ self.rows.relative(flow[1])[contact])
        scattered = system.mean_restitution(speed) * (1 + system.scatter * self.random.standard_normal())
        e = float(np.clip(scattered, LEAST_REBOUND if system.contact_time else 0.0, 1.0))
        brief = 2 * e * speed < -weight * system.contact_time
        rests = weight < 0 and (e * speed < system.rest_speed or brief)
        e = 0.0 if rests else e
        self.hits.append(Hit(self.now, contact, speed, e))
        # The formula of `carom.mechanics.impact_impulse`, whose compiled form takes longer than a flight.
        push = (1 + e) * speed / self.compliance[contact]
        slip = relative - (normal @ relative) * normal
        stopping = np.linalg.norm(slip) / self.compliance[contact]
        stopped = min(1.0, self.friction * push / max(stopping, 1e-300))
        impulse = push * normal - slip / self.compliance[contact] * stopped
        if rests:
            self.resting.append(contact)
        elif system.contact_time:
            slip = impulse - push * normal
            end = self.now + system.contact_time
            self.pushes.append(_Push(contact, self.now, end, normal, speed, e, slip, weight))
            return np.concatenate([position.ravel(), velocity.ravel()])
        after = velocity + self.shares[contact][:, None] * impulse
        return np.concatenate([position.ravel(), after.ravel()])

    def _due(self, position: np.ndarray, velocity: np.ndarray, free: np.ndarray) -> int | None:
        """A contact that touches and closes already."""
        rate = self._rates(position, velocity)
        due = free & (self.rows.gap(position) <= 0) & (rate < -STILL)
        return int(np.argmin(np.where(due, rate, np.inf))) if due.any() else None

    def _rates(self, position: np.ndarray, velocity: np.ndarray) -> np.ndarray:
        """Of the gaps."""
        normal = self.rows.normal_of(self.rows.relative(position))
        return np.sum(normal * self.rows.relative(velocity), axis=-1)

    def _release(self, state: np.ndarray) -> None:
        """End the rest of bodies that an impact with others has set in motion along the normal."""
        if self.resting:
            rate = self._rates(*state.reshape(self.shape))
            self.resting = [contact for contact in self.resting if abs(rate[contact]) < LEFT]

    def _apart(self, state: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The state with bodies that part, or rest side by side, moved to where they do not touch."""
        position, velocity = state.copy().reshape(self.shape)
        for _ in range(PASSES):
            gap, rate = self.rows.gap(position), self._rates(position, velocity)
            near = np.flatnonzero(free & (gap < HAIR) & (rate > -STILL))
            if not near.size:
                break
            for contact in near:
                relative = self.rows.relative(position)
                normal, gap = self.rows.normal_of(relative)[contact], self.rows.gap_of(relative)[contact]
                move = self.shares[contact][:, None] * normal / self.compliance[contact]
                position += max(2 * HAIR - gap, 0.0) * move
        return position, velocity

    def _rate(self, time: float, y: np.ndarray) -> np.ndarray:
        position, velocity = y.reshape(self.shape)
        acceleration = self.field(position, velocity)
        if self.system.drag:
            speed = np.sqrt(np.sum(velocity**2, axis=1, keepdims=True))
            acceleration = acceleration - self.system.drag * speed * velocity
        for push in self.pushes:
            normal = push.acceleration(time) / self.compliance[push.contact] * push.normal
            impulse = normal + push.slip_impulse / (push.end - push.begin)
            acceleration = acceleration + self.shares[push.contact][:, None] * impulse
        for contact in self.resting:
            normal = self.rows.normal_of(self.rows.relative(position))[contact]
            load = -float(normal @ self.rows.relative(acceleration)[contact]) / self.compliance[contact]
            if load > 0:
                slip = self.rows.relative(velocity)[contact]
                slip = slip - (normal @ slip) * normal
                drag = self.friction * slip / np.sqrt(slip @ slip + SLIP**2)
                acceleration = acceleration + self.shares[contact][:, None] * load * (normal - drag)
        return np.concatenate([velocity.ravel(), acceleration.ravel()])
