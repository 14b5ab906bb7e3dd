"""The constraint-exact step: velocity Verlet up to the instant of contact, an impact there, and on.

Inside a step the path is that of velocity Verlet, q(τ) = q + τ v + ½τ² a. Where a gap is negative at its end,
the contact time solves g(q(t_c)) = 0; the derivative of t_c follows from the implicit function theorem, so
that derivatives through an impact are those of the saltation matrix. Contacts are taken one at a time, the
earliest first.

A schedule may say of each contact that it happens in this step, or that it does not. A scheduled impact takes
place where the path meets the surface even if that lies a little before or after the step, so that the motion
is a smooth function of its parameters as long as the schedule stays the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.integrators.base import ConservativeForce
from carom.integrators.contact_times import (
    DECIDED_BY_GAP,
    EXCLUDED,
    SCHEDULED,
    Schedule,
    affine_contact_times,
    contact_times,
)
from carom.mechanics import (
    AbstractInertia,
    Surfaces,
    complementary_impulse,
    contact_compliance,
    contact_rate,
    generalised_impulse,
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
    """When each scheduled impact took place, as a share of the step; ½ for the other contacts."""


RestitutionLaw = Callable[[PerContact], PerContact]


class _Mechanics(NamedTuple):
    """What does not change within a step."""

    inertia: AbstractInertia
    force: ConservativeForce
    geometry: Surfaces
    restitution: RestitutionLaw
    grazing_speed: float
    rest_speed: float

    def acceleration(self, position: Coordinates) -> Coordinates:
        """M⁻¹F, what moves the bodies where no surface holds them."""
        return self.inertia.solve(self.force(position))


class _Progress(NamedTuple):
    state: State
    acceleration: Coordinates
    """M⁻¹F at the state's position."""
    remaining: Float[Array, ""]
    resting: Bool[Array, "contacts"]
    schedule: Schedule
    report: ImpactReport


def time_of_impact_step(
    state: State,
    step_size: Scalar,
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: Surfaces,
    restitution: PerContact | RestitutionLaw,
    max_impacts: int = 8,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
    schedule: Schedule | None = None,
) -> tuple[State, ImpactReport]:
    """Advance a state on the sample grid by one step, exactly through its impacts.

    Arguments:
        restitution: e of every contact, or a law that gives it from the rates of the gaps just before.
        max_impacts: impacts resolved within one step. A ball that bounces ever faster (e < 1) exceeds any
            number; it then comes to rest on the surface, and the report says `exhausted`.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a contact that separates more slowly than this stays closed; pressed with a greater
            acceleration than this it counts as touching, less does not (two balls that hang side by side).
        schedule: contacts that are decided; by default the gap decides all.
    """
    quiet = jnp.zeros((len(geometry.candidates),), bool)
    never = jnp.zeros((), bool)
    gap, jacobian = geometry.gap(state.position), geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    # A step that starts on a surface, at rest there, keeps the contact closed from the first instant.
    resting = (jnp.abs(gap) <= _gap_tolerance(state)) & (jnp.abs(rate) <= rest_speed)
    if schedule is None:
        schedule = jnp.zeros(quiet.shape, int)
    resting = resting & (schedule == DECIDED_BY_GAP)
    law = restitution if callable(restitution) else lambda rate: restitution
    mechanics = _Mechanics(inertia, force, geometry, law, grazing_speed, rest_speed)
    progress = _Progress(
        state,
        mechanics.acceleration(state.position),
        jnp.asarray(step_size, gap.dtype),
        resting,
        schedule,
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


def _held(
    mechanics: _Mechanics,
    position: Coordinates,
    acceleration: Coordinates,
    resting: Bool[Array, "contacts"],
) -> tuple[Coordinates, PerContact]:
    """The acceleration with what presses into resting contacts cancelled, and the pull on every gap.

    The pull is what would accelerate the gap if that contact alone let go: the forces, and the reactions of
    the other contacts (a ball that lies on a ball that lies on the floor).
    """
    jacobian = mechanics.geometry.jacobian(position)
    compliance = contact_compliance(mechanics.inertia, jacobian)
    pull = contact_rate(jacobian, acceleration)
    reaction = _stop(mechanics, compliance, pull, resting)
    pull = pull + compliance @ reaction - jnp.diagonal(compliance) * reaction
    return acceleration + mechanics.inertia.solve(generalised_impulse(jacobian, reaction)), pull


def _stop(
    mechanics: _Mechanics, compliance, rate: PerContact, touching: Bool[Array, "contacts"]
) -> PerContact:
    """The least impulses that keep the touching contacts from closing."""
    nothing = jnp.zeros_like(rate)
    geometry = mechanics.geometry
    sweeps = 2 * len(geometry.candidates) if geometry.coupled else 1
    return complementary_impulse(compliance, rate, nothing, target=nothing, touching=touching, sweeps=sweeps)[
        0
    ]


def _spend_the_rest(mechanics: _Mechanics, progress: _Progress) -> tuple[State, ImpactReport]:
    """Let the time left when the bound on impacts was hit pass at rest on every surface in the way."""
    state, acceleration, remaining, resting, schedule, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    steady, _ = _held(mechanics, state.position, acceleration, resting)
    heading = state.position + remaining * state.velocity + 0.5 * remaining**2 * steady
    blocked = geometry.gap(heading) < jnp.minimum(geometry.gap(state.position), 0)
    held = (resting | (blocked & (schedule == DECIDED_BY_GAP))) & (remaining > 0)
    jacobian = geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    stop = _stop(mechanics, contact_compliance(inertia, jacobian), rate, held)
    velocity = state.velocity + inertia.solve(generalised_impulse(jacobian, stop))
    here, _ = _held(mechanics, state.position, acceleration, held)
    position = state.position + remaining * velocity + 0.5 * remaining**2 * here
    there, _ = _held(mechanics, position, mechanics.acceleration(position), held)
    final = State(position, velocity + 0.5 * remaining * (here + there))
    return final, report._replace(contact=report.contact | held)


def _advance_to_impact(
    mechanics: _Mechanics, progress: _Progress, step_size: Scalar, last: Bool[Array, ""]
) -> _Progress:
    """Glide to the earliest impact in the remaining time, or to its end, and apply that impact."""
    state, acceleration, remaining, resting, schedule, report = progress
    geometry, inertia = mechanics.geometry, mechanics.inertia
    here, _ = _held(mechanics, state.position, acceleration, resting)

    search = affine_contact_times if geometry.affine else contact_times
    times, grazing = search(
        geometry,
        state,
        here,
        remaining,
        resting,
        schedule,
        step_size=step_size,
        grazing_speed=mechanics.grazing_speed,
    )
    # A scheduled contact that nothing closes yet waits for the impact that will close it.
    waits = grazing & (schedule == SCHEDULED)
    times = jnp.where(waits & jnp.any((times < jnp.inf) & ~waits), jnp.inf, times)
    hit = jnp.argmin(times) if len(times) else jnp.zeros((), int)
    due = jnp.min(times, initial=jnp.inf) < jnp.inf
    duration = jnp.where(due, jnp.min(times, initial=jnp.inf), remaining)
    # Velocity Verlet over the duration, resting contacts held.
    position = state.position + duration * state.velocity + 0.5 * duration**2 * here
    arrived = mechanics.acceleration(position)
    there, pull = _held(mechanics, position, arrived, resting)
    before = state.velocity + 0.5 * duration * (here + there)

    struck = due & (jnp.arange(len(resting)) == hit)
    jacobian = geometry.jacobian(position)
    rate = contact_rate(jacobian, before)
    rebound = -mechanics.restitution(rate) * rate
    rebound = jnp.where(last | (rebound <= mechanics.rest_speed), 0, rebound)
    impulse = jnp.where(struck, (rebound - rate) / jnp.diagonal(contact_compliance(inertia, jacobian)), 0)
    velocity = before + inertia.solve(generalised_impulse(jacobian, impulse))

    rest_speed = mechanics.rest_speed
    still_resting = resting & (pull <= 0) & (jnp.abs(contact_rate(jacobian, velocity)) <= rest_speed)
    comes_to_rest = struck & (rebound == 0) & (schedule == DECIDED_BY_GAP)
    return _Progress(
        State(position, velocity),
        arrived,
        remaining - duration,
        still_resting | comes_to_rest,
        # What was scheduled has happened; its surface does not act again within this step.
        jnp.where(struck & (schedule == SCHEDULED), EXCLUDED, schedule),
        ImpactReport(
            contact=report.contact | struck | (resting & (pull < -rest_speed)),
            exhausted=report.exhausted | (due & last),
            grazing=report.grazing | (due & jnp.any(struck & grazing)),
            instant=jnp.where(
                struck & (schedule == SCHEDULED), 1 - (remaining - duration) / step_size, report.instant
            ),
        ),
    )
