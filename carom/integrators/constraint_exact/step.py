"""The constraint-exact step: velocity Verlet up to the instant of contact, an impact there, and on.

Inside a step the path is that of velocity Verlet, q(τ) = q + τ v + ½τ² a. Where a gap is negative at its end,
the contact time solves g(q(t_c)) = 0; the derivative of t_c follows from the implicit function theorem, so
that derivatives through an impact are those of the saltation matrix. Contacts are taken one at a time, the
earliest first.

Contacts may be prescribed to happen in a step, or excluded from it. A prescribed impact takes place where the
path meets the surface even if that lies a little before or after the step, so that the motion is a smooth
function of its parameters as long as the same contacts are prescribed.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.errors import InputError
from carom.integrators.base import ConservativeForce
from carom.integrators.constraint_exact.contact_times import (
    BY_GAP,
    EXCLUDED,
    PRESCRIBED,
    Modes,
    affine_contact_times,
    contact_times,
)
from carom.integrators.constraint_exact.resting import (
    Mechanics,
    RestitutionLaw,
    held_acceleration,
    slip_end,
    stopping_impulses,
)
from carom.mechanics import (
    AbstractInertia,
    ContactGeometry,
    Masses,
    contact_compliance,
    contact_rate,
    friction_impulses,
    generalised_impulse,
    impact_impulse,
)
from carom.types import Coordinates, PerContact, Scalar, State


class ImpactReport(NamedTuple):
    """What happened inside one constraint-exact step."""

    contact: Bool[Array, "contacts"]
    """Candidates that carried an impulse or a resting force."""
    exhausted: Bool[Array, ""]
    """More impacts than `max_impacts` were due; the last contact was brought to rest."""
    grazing: Bool[Array, ""]
    """An approach slower than `grazing_speed`: the derivative of its contact time was clipped."""
    instant: PerContact
    """When each prescribed impact took place, as a share of the step; ½ for the other contacts."""


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
    max_impacts: int = 8,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
    modes: Modes | None = None,
) -> tuple[State, ImpactReport]:
    """Advance a state on the sample grid by one step, exactly through its impacts.

    Arguments:
        restitution: e of every contact, or a law that gives it from the rates of the gaps just before.
        friction: μ of every contact, for bodies with masses; None for smooth surfaces.
        max_impacts: impacts resolved within one step. A ball that bounces ever faster (e < 1) exceeds any
            number; it then comes to rest on the surface, and the report says `exhausted`.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a contact that separates more slowly than this stays closed; pressed with a greater
            acceleration than this it counts as touching, less does not (two balls that hang side by side).
        modes: which contacts are prescribed or excluded; by default the gap decides all.
    """
    quiet = jnp.zeros((len(geometry),), bool)
    never = jnp.zeros((), bool)
    gap, jacobian = geometry.gap(state.position), geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    # A step that starts on a surface, at rest there, keeps the contact closed from the first instant.
    resting = (jnp.abs(gap) <= _gap_tolerance(state)) & (jnp.abs(rate) <= rest_speed)
    if modes is None:
        modes = jnp.zeros(quiet.shape, int)
    resting = resting & (modes == BY_GAP)
    law = restitution if callable(restitution) else lambda rate: restitution
    if friction is not None and not isinstance(inertia, Masses):
        raise InputError(
            "Friction needs one mass per body: with a full inertia matrix no law for it is known."
        )
    signs = geometry.signs
    mechanics = Mechanics(
        inertia, force, geometry, law, friction, signs, state.position.shape[1], grazing_speed, rest_speed
    )
    progress = _Progress(
        state,
        mechanics.acceleration(state.position),
        jnp.asarray(step_size, gap.dtype),
        resting,
        modes,
        ImpactReport(quiet, never, never, jnp.full(gap.shape, 0.5, gap.dtype)),
    )

    def advance(progress: _Progress, index: Array) -> tuple[_Progress, None]:
        return _advance_to_impact(mechanics, progress, step_size, index >= max_impacts), None

    # Beyond the bound impacts are plastic. A body that rests on one surface may still slide to another.
    plastic = min(len(quiet), 4) if geometry.coupled else 1
    progress, _ = lax.scan(advance, progress, jnp.arange(max_impacts + plastic))
    return _spend_the_rest(mechanics, progress)


def _gap_tolerance(state: State) -> Float[Array, ""]:
    return 64 * jnp.finfo(state.position.dtype).eps * (1 + jnp.max(jnp.abs(state.position)))


def _spend_the_rest(mechanics: Mechanics, progress: _Progress) -> tuple[State, ImpactReport]:
    """Let the time left when the bound on impacts was hit pass at rest on every surface in the way."""
    state, acceleration, remaining, resting, modes, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    steady, _ = held_acceleration(mechanics, state.position, acceleration, resting)
    heading = state.position + remaining * state.velocity + 0.5 * remaining**2 * steady
    blocked = geometry.gap(heading) < jnp.minimum(geometry.gap(state.position), 0)
    held = (resting | (blocked & (modes == BY_GAP))) & (remaining > 0)
    jacobian = geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    compliance = contact_compliance(inertia, jacobian)
    stop = stopping_impulses(mechanics, compliance, rate, held)
    velocity = state.velocity + inertia.solve(generalised_impulse(jacobian, stop))
    if mechanics.friction is not None and len(held):
        # All that friction can do in the time left, at once: slip may end, but never turn around.
        contacts = mechanics.rough(jacobian)
        reaction = stopping_impulses(mechanics, compliance, contact_rate(jacobian, acceleration), held)
        braking = friction_impulses(contacts, velocity, stop + remaining * reaction)
        velocity = velocity + inertia.solve(contacts.momentum(braking))
    here, _ = held_acceleration(mechanics, state.position, acceleration, held)
    position = state.position + remaining * velocity + 0.5 * remaining**2 * here
    there, _ = held_acceleration(mechanics, position, mechanics.acceleration(position), held)
    final = State(position, velocity + 0.5 * remaining * (here + there))
    return final, report._replace(contact=report.contact | held)


def _advance_to_impact(
    mechanics: Mechanics, progress: _Progress, step_size: Scalar, last: Bool[Array, ""]
) -> _Progress:
    """Glide to the earliest impact in the remaining time, or to its end, and apply that impact."""
    state, acceleration, remaining, resting, modes, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    here, _ = held_acceleration(mechanics, state.position, acceleration, resting, state.velocity)

    search = affine_contact_times if geometry.affine else contact_times
    times, grazing = search(
        geometry,
        state,
        here,
        remaining,
        resting,
        modes,
        step_size=step_size,
        grazing_speed=mechanics.grazing_speed,
    )
    # A prescribed contact that nothing closes yet waits for the impact that will close it.
    waits = grazing & (modes == PRESCRIBED)
    times = jnp.where(waits & jnp.any((times < jnp.inf) & ~waits), jnp.inf, times)
    hit = jnp.argmin(times) if len(times) else jnp.zeros((), int)
    first = jnp.min(times, initial=jnp.inf)
    halt = slip_end(mechanics, state, here, resting)
    due = (first < jnp.inf) & (first <= halt)
    duration = jnp.where(due, first, jnp.minimum(halt, remaining))
    # Velocity Verlet over the duration, resting contacts held.
    position = state.position + duration * state.velocity + 0.5 * duration**2 * here
    arrived = mechanics.acceleration(position)
    there, pull = held_acceleration(mechanics, position, arrived, resting, state.velocity)
    before = state.velocity + 0.5 * duration * (here + there)

    struck = due & (jnp.arange(len(resting)) == hit)
    jacobian = geometry.jacobian(position)
    rate = contact_rate(jacobian, before)
    restitution = mechanics.restitution(rate)
    plastic = last | (-restitution * rate <= mechanics.rest_speed)
    rows = geometry.rows
    impulse = impact_impulse(
        rows.normal_of(rows.relative(position)),
        rows.relative(before),
        jnp.diagonal(contact_compliance(inertia, jacobian)),
        restitution=jnp.where(plastic, 0, restitution),
        friction=mechanics.friction,
    )
    velocity = before + inertia.solve(jnp.asarray(mechanics.signs.T) @ jnp.where(struck[:, None], impulse, 0))

    rest_speed = mechanics.rest_speed
    still_resting = resting & (pull <= 0) & (jnp.abs(contact_rate(jacobian, velocity)) <= rest_speed)
    comes_to_rest = struck & plastic & (modes == BY_GAP)
    return _Progress(
        State(position, velocity),
        arrived,
        remaining - duration,
        still_resting | comes_to_rest,
        # What was prescribed has happened; its surface does not act again within this step.
        jnp.where(struck & (modes == PRESCRIBED), EXCLUDED, modes),
        ImpactReport(
            contact=report.contact | struck | (resting & (pull < -rest_speed)),
            exhausted=report.exhausted | (due & last),
            grazing=report.grazing | (due & jnp.any(struck & grazing)),
            instant=jnp.where(
                struck & (modes == PRESCRIBED), 1 - (remaining - duration) / step_size, report.instant
            ),
        ),
    )
