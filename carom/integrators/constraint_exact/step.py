"""The constraint-exact step: velocity Verlet with impacts at the exact time of contact.

Inside a step the path is that of velocity Verlet, q(τ) = q + τ v + ½τ² a. Where a gap is negative at its end,
the contact time solves g(q(t_c)) = 0; the derivative of t_c follows from the implicit function theorem, so
that derivatives through an impact are those of the saltation matrix. Contacts are resolved one at a time,
the earliest first.

Contacts may be prescribed in a step, or excluded from it. A prescribed impact occurs where the path meets the
surface even if that is slightly before or after the step, so that the motion is a smooth function of its
parameters as long as the prescribed contacts are the same.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.errors import InputError
from carom.integrators.base import AbstractStepper, ConservativeForce, Mechanical, Stepped, Touching
from carom.integrators.constraint_exact.contact_times import (
    BY_GAP,
    EXCLUDED,
    PRESCRIBED,
    Modes,
    contact_times,
)
from carom.integrators.constraint_exact.prescribed import Kick, prescribed_step
from carom.mechanics import (
    AbstractInertia,
    ContactGeometry,
    Masses,
    Scene,
    contact_compliance,
    contact_rate,
    generalised_impulse,
    impact_impulse,
    lasting_contact,
    length,
)
from carom.mechanics.friction import Frictional, friction_impulses, frictional, holding_forces
from carom.mechanics.impact import complementary_impulse
from carom.types import Coordinates, Jacobian, PerContact, Scalar, State, Values

RestitutionLaw = Callable[[PerContact], PerContact]

MAX_IMPACTS = 8
"""Default upper bound on the impacts resolved within one step."""
GRAZING, REST = 1e-3, 1e-9
"""Speeds below which an approach is a graze, and a body at rest on a surface, in units of speed."""


class ImpactReport(NamedTuple):
    """Contacts of one constraint-exact step."""

    contact: Bool[Array, "contacts"]
    """Candidates that carried an impulse or a resting force."""
    exhausted: Bool[Array, ""]
    """More than `max_impacts` impacts occurred; the last contact was brought to rest."""
    grazing: Bool[Array, ""]
    """An approach slower than `grazing_speed`: the derivative of its contact time was clipped."""
    instant: PerContact
    """Instant of each prescribed impact as a fraction of the step; ½ for other contacts."""


class _Mechanics(NamedTuple):
    """Quantities that are constant within a constraint-exact step."""

    inertia: AbstractInertia
    force: ConservativeForce
    geometry: ContactGeometry
    restitution: RestitutionLaw
    friction: PerContact | None
    kick: Kick | None
    duration: PerContact | None
    grazing_speed: Scalar
    rest_speed: Scalar
    differentiable: bool

    def acceleration(self, position: Coordinates) -> Coordinates:
        """M⁻¹F, the acceleration without contact forces."""
        return self.inertia.solve(self.force(position))

    def rough(self, jacobian: Jacobian) -> Frictional:
        """The contacts in vector form; only valid with friction."""
        assert self.friction is not None
        return frictional(jacobian, self.inertia, self.geometry.signs, friction=self.friction)


class Limits(NamedTuple):
    """What is slow or closed, in the units of a motion."""

    grazing_speed: Scalar
    rest_speed: Scalar
    extent: Scalar


class _Progress(NamedTuple):
    state: State
    acceleration: Coordinates
    """M⁻¹F at the state's position."""
    remaining: Float[Array, ""]
    resting: Bool[Array, "contacts"]
    modes: Modes
    report: ImpactReport


def constraint_exact_step(
    state: State,
    step_size: Scalar,
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
    restitution: PerContact | RestitutionLaw,
    friction: PerContact | None = None,
    kick: Kick | None = None,
    duration: PerContact | None = None,
    max_impacts: int = MAX_IMPACTS,
    grazing_speed: Scalar = GRAZING,
    rest_speed: Scalar = REST,
    extent: Scalar = 1.0,
    modes: Modes | None = None,
    differentiable: bool = True,
) -> tuple[State, ImpactReport]:
    """Advance a state on the sample grid by one step, with impacts at their exact times.

    Arguments:
        restitution: e of every contact, or a law that gives it from the rates of the gaps before the impact.
        friction: μ of every contact, for bodies with masses; None for smooth surfaces.
        kick: gives what impacts add to the relative velocities, from the same rates.
        duration: of every contact; None if they are instantaneous.
        max_impacts: impacts resolved within one step. A bouncing ball with e < 1 has infinitely many in
            finite time (Zeno); it then comes to rest on the surface, and the report says `exhausted`.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a contact that separates more slowly than this stays closed. Also the least acceleration
            into a contact that counts as touching (two balls that hang side by side do not touch).
        extent: of the motion; a gap below the rounding of such a length is closed.
        modes: which contacts are prescribed or excluded; by default all are determined by the gap.
        differentiable: whether derivatives are right at contacts that last, which takes linear solves.
    """
    none = jnp.zeros((len(geometry),), bool)
    no = jnp.zeros((), bool)
    gap, jacobian = geometry.gap(state.position), geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    # A body that is at rest on a surface at the beginning of the step stays in contact.
    resting = (jnp.abs(gap) <= gap_tolerance(state, extent)) & (jnp.abs(rate) <= rest_speed)
    if modes is None:
        modes = jnp.zeros(none.shape, int)
    resting = resting & (modes == BY_GAP)
    law = restitution if callable(restitution) else lambda rate: restitution
    if friction is not None and not isinstance(inertia, Masses):
        raise InputError("Friction needs one mass per body; with a full inertia matrix use smooth surfaces.")
    limits = (grazing_speed, rest_speed, differentiable)
    mechanics = _Mechanics(inertia, force, geometry, law, friction, kick, duration, *limits)
    report = ImpactReport(none, no, no, jnp.full(gap.shape, 0.5, gap.dtype))
    acceleration, remaining = mechanics.acceleration(state.position), jnp.asarray(step_size, gap.dtype)
    progress = _Progress(state, acceleration, remaining, resting, modes, report)

    def advance(progress: _Progress, index: Array) -> tuple[_Progress, None]:
        return _advance_to_impact(mechanics, progress, step_size, index >= max_impacts), None

    # A scan of fixed length, not a while loop, which would have no derivatives in reverse mode.
    # Beyond the bound, impacts are plastic; a body that rests on one surface may still slide to another.
    plastic = min(len(none), 4) if geometry.coupled else 1
    progress, _ = lax.scan(advance, progress, jnp.arange(max_impacts + plastic))
    return _finish_at_rest(mechanics, progress)


def gap_tolerance(state: State, extent: Scalar) -> Float[Array, ""]:
    return 64 * jnp.finfo(state.position.dtype).eps * (extent + jnp.max(jnp.abs(state.position)))


def _finish_at_rest(mechanics: _Mechanics, progress: _Progress) -> tuple[State, ImpactReport]:
    """Advance by the time that remains after the last impact, at rest on every surface in the way."""
    state, acceleration, remaining, resting, modes, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    steady, _ = _held_acceleration(mechanics, state.position, acceleration, resting)
    end = state.position + remaining * state.velocity + 0.5 * remaining**2 * steady
    blocked = geometry.gap(end) < jnp.minimum(geometry.gap(state.position), 0)
    held = (resting | (blocked & (modes == BY_GAP))) & (remaining > 0)
    jacobian = geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    compliance = contact_compliance(inertia, jacobian)
    stop = _stopping_impulses(mechanics, compliance, rate, held)
    velocity = state.velocity + inertia.solve(generalised_impulse(jacobian, stop))
    if mechanics.friction is not None and len(held):
        # The friction impulse of the remaining time, applied at once: slip may end, but never reverses.
        contacts = mechanics.rough(jacobian)
        reaction = _stopping_impulses(mechanics, compliance, contact_rate(jacobian, acceleration), held)
        braking = friction_impulses(contacts, velocity, stop + remaining * reaction)
        velocity = velocity + inertia.solve(contacts.momentum(braking))
    start, _ = _held_acceleration(mechanics, state.position, acceleration, held)
    position = state.position + remaining * velocity + 0.5 * remaining**2 * start
    end, _ = _held_acceleration(mechanics, position, mechanics.acceleration(position), held)
    final = State(position, velocity + 0.5 * remaining * (start + end))
    return final, report._replace(contact=report.contact | held)


def _advance_to_impact(
    mechanics: _Mechanics, progress: _Progress, step_size: Scalar, last: Bool[Array, ""]
) -> _Progress:
    """Advance to the earliest impact within the remaining time, or to its end, and apply that impact."""
    state, acceleration, remaining, resting, modes, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    start, _ = _held_acceleration(mechanics, state.position, acceleration, resting, state.velocity)

    delay = None
    if mechanics.duration is not None:
        gap, rows = geometry.gap(state.position), geometry.jacobian(state.position)
        closing, pull = contact_rate(rows, state.velocity), contact_rate(rows, start)
        delay = lasting_contact(mechanics.restitution(closing), mechanics.duration, gap, closing, pull).delay
    times, grazing = contact_times(
        geometry, state, start, remaining, resting, modes, step_size, mechanics.grazing_speed, delay
    )
    # A prescribed contact that does not close yet waits for the impact that makes it close.
    waits = grazing & (modes == PRESCRIBED)
    times = jnp.where(waits & jnp.any((times < jnp.inf) & ~waits), jnp.inf, times)
    hit = jnp.argmin(times) if len(times) else jnp.zeros((), int)
    first = jnp.min(times, initial=jnp.inf)
    sticking = _slip_end(mechanics, state, start, resting)
    due = (first < jnp.inf) & (first <= sticking)
    duration = jnp.where(due, first, jnp.minimum(sticking, remaining))
    # Velocity Verlet over the duration, with reactions at resting contacts.
    position = state.position + duration * state.velocity + 0.5 * duration**2 * start
    arrived = mechanics.acceleration(position)
    end, gap_acceleration = _held_acceleration(mechanics, position, arrived, resting, state.velocity)
    before = state.velocity + 0.5 * duration * (start + end)

    struck = due & (jnp.arange(len(resting)) == hit)
    jacobian = geometry.jacobian(position)
    rate = contact_rate(jacobian, before)
    restitution = mechanics.restitution(rate)
    carried, slowest = None, mechanics.rest_speed
    if mechanics.duration is not None:
        pull = contact_rate(jacobian, arrived)
        carried = lasting_contact(restitution, mechanics.duration, geometry.gap(position), rate, pull).carried
        # Bodies that would be back before the contact ends do not part.
        slowest = jnp.maximum(slowest, -0.5 * pull * mechanics.duration)
    plastic = last | (-restitution * rate <= slowest)
    rows, S = geometry.rows, jnp.diagonal(contact_compliance(inertia, jacobian))
    normal, relative = rows.normal_of(rows.relative(position)), rows.relative(before)
    e, kick = jnp.where(plastic, 0, restitution), None if mechanics.kick is None else mechanics.kick(rate)
    carried = None if carried is None else jnp.where(plastic, 0, carried)
    impulse = impact_impulse(
        normal, relative, S, restitution=e, friction=mechanics.friction, kick=kick, carried=carried
    )
    # One contact at a time: simultaneous impacts follow each other at intervals of 0.
    velocity = before + inertia.solve(jnp.asarray(geometry.signs.T) @ jnp.where(struck[:, None], impulse, 0))
    if mechanics.duration is not None:
        # Bodies that come to rest do so at the surface, not where paths before and after would have met.
        out = -jnp.where(struck & plastic, geometry.gap(position), 0) / S
        position = position + inertia.solve(generalised_impulse(jacobian, out))

    rest_speed = mechanics.rest_speed
    slow = jnp.abs(contact_rate(jacobian, velocity)) <= rest_speed
    still_resting = resting & (gap_acceleration <= 0) & slow
    comes_to_rest, occurs = struck & plastic & (modes == BY_GAP), struck & (modes == PRESCRIBED)
    # A prescribed impact occurs once; its contact is inactive for the rest of the step.
    modes, remaining = jnp.where(occurs, EXCLUDED, modes), remaining - duration
    report = ImpactReport(
        contact=report.contact | struck | (resting & (gap_acceleration < -rest_speed)),
        exhausted=report.exhausted | (due & last),
        grazing=report.grazing | (due & jnp.any(struck & grazing)),
        instant=jnp.where(occurs, 1 - remaining / step_size, report.instant),
    )
    resting = still_resting | comes_to_rest
    return _Progress(State(position, velocity), arrived, remaining, resting, modes, report)


def _held_acceleration(
    mechanics: _Mechanics,
    position: Coordinates,
    acceleration: Coordinates,
    resting: Bool[Array, "contacts"],
    velocity: Coordinates | None = None,
) -> tuple[Coordinates, PerContact]:
    """The acceleration with reactions at resting contacts, and the free acceleration of every gap.

    The free acceleration of a gap is the one without the reaction of that contact itself, but with the
    reactions of all others (a ball on top of a ball on the floor): a contact opens if it is positive.
    Friction acts if a velocity is given.
    """
    jacobian = mechanics.geometry.jacobian(position)
    if velocity is not None and mechanics.friction is not None and len(resting):
        contacts = mechanics.rough(jacobian)
        relative = contacts.relative(acceleration)
        slip = contacts.across(contacts.relative(velocity))
        how = {"rest_speed": mechanics.rest_speed, "differentiable": mechanics.differentiable}
        force = holding_forces(contacts, relative, slip, closed=resting, **how)
        held = contacts.along(relative + contacts.mobility @ force)
        gap_acceleration = held - jnp.diagonal(contacts.mobility) * contacts.along(force)
        return acceleration + mechanics.inertia.solve(contacts.momentum(force)), gap_acceleration
    # Without friction the scalar form is enough, and much smaller.
    compliance = contact_compliance(mechanics.inertia, jacobian)
    gap_acceleration = contact_rate(jacobian, acceleration)
    reaction = _stopping_impulses(mechanics, compliance, gap_acceleration, resting)
    gap_acceleration = gap_acceleration + compliance @ reaction - jnp.diagonal(compliance) * reaction
    return acceleration + mechanics.inertia.solve(generalised_impulse(jacobian, reaction)), gap_acceleration


def _stopping_impulses(
    mechanics: _Mechanics, compliance, rate: PerContact, touching: Bool[Array, "contacts"]
) -> PerContact:
    """Complementary impulses that keep the touching contacts from closing."""
    zero, geometry = jnp.zeros_like(rate), mechanics.geometry
    sweeps = 2 * len(geometry) if geometry.coupled else 1
    # Geometry limits the number of simultaneous contacts: few neighbours fit around each body.
    capacity = (2 * geometry.dimension - 1) * geometry.bodies + 1
    solve = partial(complementary_impulse, target=zero, touching=touching, capacity=capacity)
    return solve(compliance, rate, zero, sweeps=sweeps, differentiable=mechanics.differentiable)[0]


def _slip_end(
    mechanics: _Mechanics, state: State, acceleration: Coordinates, resting: Bool[Array, "contacts"]
) -> Float[Array, ""]:
    """The time at which the first sliding contact starts to stick, ∞ without friction; forces change then."""
    if mechanics.friction is None or not len(resting):
        return jnp.asarray(jnp.inf, state.position.dtype)
    contacts = mechanics.rough(mechanics.geometry.jacobian(state.position))
    slip = contacts.across(contacts.relative(state.velocity))
    speed = length(slip)
    slides = resting & (speed > mechanics.rest_speed) & (mechanics.friction > 0)
    slowing = -jnp.sum(slip * contacts.relative(acceleration), axis=1) / jnp.where(slides, speed, 1)
    slows = slides & (slowing > 0)
    return jnp.min(jnp.where(slows, speed / jnp.where(slows, slowing, 1), jnp.inf))


class ConstraintExact(AbstractStepper):
    """Velocity Verlet with impacts at the exact time of contact.

    Velocity-dependent forces act in half steps before and after (Strang splitting), so that the path within
    the step is that of a conservative force. What counts as slow or as closed is relative to the natural
    units of the motion, so that results do not depend on the units of a recording.
    """

    name: ClassVar[str] = "constraint_exact"
    max_impacts: int | None = eqx.field(static=True, default=None)
    """Within one step; by default the number of bodies plus one, at most `MAX_IMPACTS`: a body with more
    impacts is taken to rest on the surface."""
    # Arrays, so that motions of different size share compiled programs.
    length: Float[Values, ""] = eqx.field(default_factory=lambda: np.ones(()))
    speed: Float[Values, ""] = eqx.field(default_factory=lambda: np.ones(()))

    @classmethod
    def for_scene(cls, scene: Scene, *, max_impacts: int | None = None) -> "ConstraintExact":
        return cls(max_impacts)

    def in_units(self, length: float, time: float) -> "ConstraintExact":
        """The same for motions of this length and duration."""
        return ConstraintExact(self.max_impacts, np.asarray(length), np.asarray(length / time))

    def limits(self, dtype) -> Limits:
        """In the units of the motion; no derivative moves them."""
        extent, speed = (lax.stop_gradient(jnp.asarray(part, dtype)) for part in (self.length, self.speed))
        return Limits(GRAZING * speed, REST * speed, extent)

    def most_impacts(self, bodies: int) -> int:
        """Within one step."""
        return self.max_impacts or min(bodies + 1, MAX_IMPACTS)

    def stated(self) -> dict[str, Any]:
        return {}

    def enter(self, mechanism: Mechanical, state: State, step_size: Scalar) -> State:
        return state

    def leave(self, mechanism: Mechanical, before: State, after: State, contact: Touching) -> State:
        return after

    def step(
        self, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes, *, most: int | None = None
    ) -> Stepped:
        started = State(state.position, mechanism.dissipate(state.velocity, 0.5 * step_size))
        if most is None:
            after, report = self.conservative_step(mechanism, started, step_size, modes)
            contact, instant = report.contact, report.instant
        else:
            after, instant = self._prescribed(mechanism, started, step_size, modes, most)
            contact = modes == PRESCRIBED
        return State(after.position, mechanism.dissipate(after.velocity, 0.5 * step_size)), contact, instant

    def conservative_step(
        self,
        mechanism: Mechanical,
        state: State,
        step_size: Scalar,
        modes: Modes,
        *,
        differentiable: bool = True,
    ) -> tuple[State, ImpactReport]:
        """A step without the forces that depend on the velocity."""
        return constraint_exact_step(
            state,
            step_size,
            inertia=mechanism.inertia(),
            force=mechanism.conservative_force,
            geometry=mechanism.geometry,
            restitution=mechanism.restitution_at,
            friction=mechanism.friction_coefficient(),
            kick=mechanism.slip_kick,
            duration=mechanism.contact_duration(),
            max_impacts=self.most_impacts(len(state.position)),
            modes=modes,
            differentiable=differentiable,
            **self.limits(state.position.dtype)._asdict(),
        )

    def _prescribed(
        self, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes, most: int
    ) -> tuple[State, PerContact]:
        """A step whose contacts are all prescribed or excluded; the cost does not grow with their number."""
        happens, chosen = lax.top_k((modes == PRESCRIBED).astype(int), most)
        inertia, friction = mechanism.inertia(), mechanism.friction_coefficient()
        duration = mechanism.contact_duration()
        assert isinstance(inertia, Masses)

        def every(rate: Float[Array, "chosen"]) -> PerContact:
            # The other contacts need some rate at which the law is finite.
            return jnp.full(modes.shape, -1.0, rate.dtype).at[chosen].set(rate)

        def kick(rate: Float[Array, "chosen"]) -> Float[Array, "chosen dimension"] | None:
            found = mechanism.slip_kick(every(rate))
            return None if found is None else found[chosen]

        after, instants = prescribed_step(
            state,
            step_size,
            masses=inertia.masses,
            force=mechanism.conservative_force,
            contacts=mechanism.geometry.rows.take(chosen),
            happens=happens > 0,
            restitution=lambda rate: mechanism.restitution_at(every(rate))[chosen],
            friction=None if friction is None else friction[chosen],
            kick=kick,
            duration=None if duration is None else duration[chosen],
            grazing_speed=self.limits(state.position.dtype).grazing_speed,
        )
        return after, jnp.full(modes.shape, 0.5, instants.dtype).at[chosen].set(instants)
