"""The constraint-exact step: velocity Verlet up to the instant of contact, an impact there, and on.

Inside a step the path is that of velocity Verlet, q(τ) = q + τ v + ½τ² a. Where a gap is negative at its end,
the contact time solves g(q(t_c)) = 0; the derivative of t_c follows from the implicit function theorem, so
that derivatives through an impact are those of the saltation matrix. Contacts are taken one at a time, the
earliest first.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.integrators.base import ConservativeForce
from carom.mechanics import (
    AbstractInertia,
    ContactGeometry,
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


class _Progress(NamedTuple):
    state: State
    remaining: Float[Array, ""]
    resting: Bool[Array, "contacts"]
    report: ImpactReport


def time_of_impact_step(
    state: State,
    step_size: Scalar,
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
    restitution: PerContact,
    max_impacts: int = 8,
    grazing_speed: float = 1e-3,
    rest_speed: float = 1e-9,
) -> tuple[State, ImpactReport]:
    """Advance a state on the sample grid by one step, exactly through its impacts.

    Arguments:
        max_impacts: impacts resolved within one step. A ball that bounces ever faster (e < 1) exceeds any
            number; it then comes to rest on the surface, and the report says `exhausted`.
        grazing_speed: below it the derivative of the contact time, which grows like 1/speed, is clipped.
        rest_speed: a contact that separates more slowly than this stays closed; pressed with a greater
            acceleration than this it counts as touching, less does not (two balls that hang side by side).
    """
    quiet = jnp.zeros((len(geometry.candidates),), bool)
    never = jnp.zeros((), bool)
    gap, jacobian = geometry.gap(state.position), geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    # A step that starts on a surface, at rest there, keeps the contact closed from the first instant.
    resting = (jnp.abs(gap) <= _gap_tolerance(state)) & (jnp.abs(rate) <= rest_speed)
    progress = _Progress(state, jnp.asarray(step_size, gap.dtype), resting, ImpactReport(quiet, never, never))

    def advance(progress: _Progress, index: Array) -> tuple[_Progress, None]:
        last = index == max_impacts
        return _advance_to_impact(
            progress,
            last,
            inertia=inertia,
            force=force,
            geometry=geometry,
            restitution=restitution,
            grazing_speed=grazing_speed,
            rest_speed=rest_speed,
        ), None

    progress, _ = lax.scan(advance, progress, jnp.arange(max_impacts + 1))
    return _spend_the_rest(progress, inertia=inertia, force=force, geometry=geometry)


def _gap_tolerance(state: State) -> Float[Array, ""]:
    return 64 * jnp.finfo(state.position.dtype).eps * (1 + jnp.max(jnp.abs(state.position)))


def _acceleration(
    position: Coordinates,
    resting: Bool[Array, "contacts"],
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
) -> tuple[Coordinates, PerContact]:
    """M⁻¹F with what presses into resting contacts cancelled by their surfaces, and the pull on every gap.

    The pull is what would accelerate the gap if that contact alone let go: the forces, and the reactions of
    the other contacts (a ball that lies on a ball that lies on the floor).
    """
    free = inertia.solve(force(position))
    jacobian = geometry.jacobian(position)
    compliance = contact_compliance(inertia, jacobian)
    pull = contact_rate(jacobian, free)
    nothing = jnp.zeros_like(pull)
    reaction, _ = complementary_impulse(
        compliance, pull, nothing, target=nothing, touching=resting, sweeps=_sweeps(geometry)
    )
    pull = pull + compliance @ reaction - jnp.diagonal(compliance) * reaction
    return free + inertia.solve(generalised_impulse(jacobian, reaction)), pull


def _glide(
    progress: _Progress,
    duration: Float[Array, ""],
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
) -> State:
    """Velocity Verlet over `duration`, resting contacts held."""

    def acceleration(position):
        return _acceleration(position, progress.resting, inertia=inertia, force=force, geometry=geometry)[0]

    q, v = progress.state.position, progress.state.velocity
    here = acceleration(q)
    q_next = q + duration * v + 0.5 * duration**2 * here
    return State(q_next, v + 0.5 * duration * (here + acceleration(q_next)))


def _spend_the_rest(
    progress: _Progress,
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
) -> tuple[State, ImpactReport]:
    """Let the time left when the bound on impacts was hit pass at rest on every surface in the way."""
    state, remaining, resting, report = progress
    heading = _glide(progress, remaining, inertia=inertia, force=force, geometry=geometry)
    blocked = geometry.gap(heading.position) < jnp.minimum(geometry.gap(state.position), 0)
    held = (resting | blocked) & (remaining > 0)
    jacobian = geometry.jacobian(state.position)
    rate = contact_rate(jacobian, state.velocity)
    nothing = jnp.zeros_like(rate)
    stop, _ = complementary_impulse(
        contact_compliance(inertia, jacobian),
        rate,
        nothing,
        target=nothing,
        touching=held,
        sweeps=_sweeps(geometry),
    )
    velocity = state.velocity + inertia.solve(generalised_impulse(jacobian, stop))
    settled = progress._replace(state=State(state.position, velocity), resting=held)
    final = _glide(settled, remaining, inertia=inertia, force=force, geometry=geometry)
    return final, report._replace(contact=report.contact | held)


def _sweeps(geometry: ContactGeometry) -> int:
    return 2 * len(geometry.candidates) if geometry.coupled else 1


def _advance_to_impact(
    progress: _Progress,
    last: Bool[Array, ""],
    *,
    inertia: AbstractInertia,
    force: ConservativeForce,
    geometry: ContactGeometry,
    restitution: PerContact,
    grazing_speed: float,
    rest_speed: float,
) -> _Progress:
    """Glide to the earliest impact in the remaining time, or to its end, and apply that impact."""
    state, remaining, resting, report = progress
    acceleration, _ = _acceleration(state.position, resting, inertia=inertia, force=force, geometry=geometry)

    def gap_at(time):
        path = state.position + time * state.velocity + 0.5 * time**2 * acceleration
        return geometry.gap(path)

    times, grazing = _contact_times(gap_at, remaining, resting, grazing_speed)
    hit = jnp.argmin(times) if len(times) else jnp.zeros((), int)
    due = jnp.min(times, initial=jnp.inf) < jnp.inf
    duration = jnp.where(due, jnp.min(times, initial=jnp.inf), remaining)
    arrived = _glide(progress, duration, inertia=inertia, force=force, geometry=geometry)

    struck = due & (jnp.arange(len(resting)) == hit)
    jacobian = geometry.jacobian(arrived.position)
    rate = contact_rate(jacobian, arrived.velocity)
    rebound = jnp.where(last | (-restitution * rate <= rest_speed), 0, -restitution * rate)
    impulse = jnp.where(struck, (rebound - rate) / jnp.diagonal(contact_compliance(inertia, jacobian)), 0)
    velocity = arrived.velocity + inertia.solve(generalised_impulse(jacobian, impulse))

    _, pull = _acceleration(arrived.position, resting, inertia=inertia, force=force, geometry=geometry)
    still_resting = resting & (pull <= 0) & (jnp.abs(contact_rate(jacobian, velocity)) <= rest_speed)
    comes_to_rest = struck & (rebound == 0)
    return _Progress(
        State(arrived.position, velocity),
        remaining - duration,
        still_resting | comes_to_rest,
        ImpactReport(
            contact=report.contact | struck | (resting & (pull < -rest_speed)),
            exhausted=report.exhausted | (due & last),
            grazing=report.grazing | (due & jnp.any(struck & grazing)),
        ),
    )


def _contact_times(gap_at, remaining, resting, grazing_speed) -> tuple[PerContact, Bool[Array, "contacts"]]:
    """When each gap closes within `remaining`, ∞ where it does not; and whether it does so at a graze."""
    initial = lax.stop_gradient(gap_at(jnp.zeros_like(remaining)))
    if not len(initial):
        return initial, jnp.zeros((0,), bool)
    rounding = jnp.minimum(initial, 0)  # what an impact just made left of its overlap
    contacts = jnp.arange(len(initial))

    def gaps_at(times):
        return jax.vmap(lambda t, j: gap_at(t)[j])(times, contacts) - rounding

    def rates_at(times):
        return jax.vmap(lambda t, j: jax.jvp(gap_at, (t,), (jnp.ones_like(t),))[1][j])(times, contacts)

    end = jnp.broadcast_to(remaining, initial.shape)
    closes = ~resting & (gaps_at(end) < 0) & (remaining > 0)

    def refine(_, bracket):
        # Newton on g(τ)/τ, kept inside the bracket: dividing by τ removes the root at the start that a step
        # which begins on the surface has, and leaves the sign positive before contact, negative after.
        low, high, time = bracket
        gap = gaps_at(time)
        low, high = jnp.where(gap > 0, time, low), jnp.where(gap > 0, high, time)
        slope = rates_at(time) - gap / time
        newton = time - gap / jnp.where(slope == 0, 1, slope)
        inside = (newton >= low) & (newton <= high) & (newton > 0)
        return low, high, jnp.where(inside, newton, 0.5 * (low + high))

    opening = jnp.maximum(initial, 0)
    chord = opening / jnp.where(closes, opening - gaps_at(end), 1)
    guess = jnp.where(closes & (chord > 0), chord, 0.5) * jnp.where(remaining > 0, end, 1)
    iterations = 3 + jnp.finfo(initial.dtype).nmant
    _, _, root = lax.fori_loop(0, iterations, refine, (jnp.zeros_like(end), end, guess))
    root = lax.stop_gradient(root)

    rate = lax.stop_gradient(rates_at(root))
    # One more Newton step at a fixed slope carries the derivative −(∂g/∂θ)/(dg/dt) of the root.
    time = root - gaps_at(root) / jnp.minimum(rate, -grazing_speed)
    return jnp.where(closes, time, jnp.inf), closes & (rate > -grazing_speed)
