"""Contact times: roots of the gaps along the parabola q + τ v + ½τ² a, differentiated implicitly."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.integrators.implicit_root import implicit_root
from carom.mechanics import ContactGeometry, contact_rate
from carom.types import Coordinates, PerContact, Scalar, State

BY_GAP, PRESCRIBED, EXCLUDED = 0, 1, -1
"""Modes of a contact in one step: determined by its gap, certain to occur, or certain not to."""
Modes = Int[Array, "contacts"]
Times = Float[Array, "*any"]


def contact_times(
    geometry: ContactGeometry,
    state: State,
    acceleration: Coordinates,
    remaining: Float[Array, ""],
    resting: Bool[Array, "contacts"],
    modes: Modes,
    *,
    step_size: Scalar,
    grazing_speed: float,
) -> tuple[PerContact, Bool[Array, "contacts"]]:
    """The time within `remaining` at which each gap closes, ∞ if it does not; and whether it is a graze."""

    def path(state, acceleration, geometry):
        def gap_at(time):
            return geometry.gap(state.position + time * state.velocity + 0.5 * time**2 * acceleration)

        return gap_at

    gap_at = path(state, acceleration, geometry)
    # The root search is not differentiated: `implicit_root` below supplies the derivative.
    fixed_gap_at = path(*lax.stop_gradient((state, acceleration)), _fixed(geometry))
    limit = lax.stop_gradient(remaining)
    initial = fixed_gap_at(jnp.zeros_like(limit))
    if not len(initial):
        return initial, jnp.zeros((0,), bool)
    prescribed = modes == PRESCRIBED
    rounding = jnp.where(prescribed, 0, jnp.minimum(initial, 0))  # overlap left by the previous impact
    contacts = jnp.arange(len(initial))

    def gaps_at(times, gap_at=fixed_gap_at):
        return jax.vmap(lambda t, j: gap_at(t)[j])(times, contacts) - rounding

    def rates_at(times):
        return jax.vmap(lambda t, j: jax.jvp(fixed_gap_at, (t,), (jnp.ones_like(t),))[1][j])(times, contacts)

    end = jnp.broadcast_to(limit, initial.shape)
    bracket = first_dip(gaps_at, rates_at, end)
    closes = (modes == BY_GAP) & ~resting & (gaps_at(bracket) < 0) & (limit > 0)
    root = bracketed_root(gaps_at, rates_at, jnp.maximum(initial, 0), bracket, closes)

    low_end, high_end = end - 2 * step_size, end + step_size

    def approach(_, time):
        rate = jnp.minimum(rates_at(time), -grazing_speed)
        return jnp.clip(time - gaps_at(time) / rate, low_end, high_end)

    # A prescribed root may lie slightly outside the step: plain Newton, since there is no bracket.
    root = jnp.where(prescribed, lax.fori_loop(0, 6, approach, 0.5 * end), root)

    rate = rates_at(root)
    time = implicit_root(root, gaps_at(root, gap_at), jnp.minimum(rate, -grazing_speed))
    time = jnp.where(prescribed, jnp.clip(time, low_end, high_end), time)
    due = closes | prescribed
    return jnp.where(due, time, jnp.inf), due & (rate > -grazing_speed)


def affine_contact_times(
    geometry: ContactGeometry,
    state: State,
    acceleration: Coordinates,
    remaining: Float[Array, ""],
    resting: Bool[Array, "contacts"],
    modes: Modes,
    *,
    step_size: Scalar,
    grazing_speed: float,
) -> tuple[PerContact, Bool[Array, "contacts"]]:
    """As `contact_times`, in closed form: along the path an affine gap is the parabola g + uτ + ½aτ²."""
    jacobian = geometry.jacobian(state.position)
    gap = geometry.gap(state.position)
    rate, curvature = contact_rate(jacobian, state.velocity), contact_rate(jacobian, acceleration)
    prescribed = modes == PRESCRIBED
    # Overlap left by rounding at the previous impact counts as contact, not as distance.
    gap = gap - jnp.where(prescribed, 0, jnp.minimum(lax.stop_gradient(gap), 0))
    limit, g, u, a = lax.stop_gradient((remaining, gap, rate, curvature))
    # The gap is least at the end, or before that at the vertex of a parabola that opens upwards.
    lowest = jnp.where((a > 0) & (u < 0), jnp.minimum(limit, -u / jnp.where(a > 0, a, 1)), limit)
    closes = (g + lowest * (u + 0.5 * lowest * a) < 0) & (limit > 0)
    closes = closes & (modes == BY_GAP) & ~resting
    due = closes | prescribed
    root = closing_time(g, u, a)
    low, high = limit - 2 * step_size, limit + step_size
    root = jnp.where(
        due, jnp.clip(root, jnp.where(prescribed, low, 0), jnp.where(prescribed, high, jnp.abs(limit))), 0
    )
    rate_at_root = u + a * root
    slope = jnp.minimum(rate_at_root, -grazing_speed)
    time = implicit_root(root, gap + root * (rate + 0.5 * root * curvature), slope)
    time = jnp.where(prescribed, jnp.clip(time, low, high), time)
    return jnp.where(due, time, jnp.inf), due & (rate_at_root > -grazing_speed)


def closing_time(
    gap: Float[Array, "*any"], rate: Float[Array, "*any"], acceleration: Float[Array, "*any"]
) -> Float[Array, "*any"]:
    """The time at which gap + rate τ + ½ acceleration τ² falls through 0; meaningless if it never does.

    The rate there is −√(rate² − 2 acceleration gap). Of the two forms of the quadratic formula, the one
    without cancellation is used.
    """
    speed = jnp.sqrt(jnp.maximum(rate**2 - 2 * acceleration * gap, 0))
    falling, rising = speed - rate, jnp.where(acceleration < 0, -acceleration, 1)
    return jnp.where(rate > 0, (rate + speed) / rising, 2 * gap / jnp.where(falling > 0, falling, 1))


def bracketed_root(
    gaps_at: Callable[[Times], Times],
    rates_at: Callable[[Times], Times],
    opening: Times,
    end: Times,
    closes: Bool[Array, "*any"],
) -> Times:
    """The root of each gap that `closes` between 0 and `end`, to rounding (Newton with bisection).

    Arguments:
        gaps_at: the gap of every contact, each at a time of its own.
        rates_at: the same for the rates of the gaps.
        opening: the gaps at time 0, none negative.
        end: a time at which the gaps that close are negative.
        closes: which gaps to solve for; without any, no iteration is spent.
    """
    tolerance = 4 * jnp.finfo(opening.dtype).eps
    iterations = 3 + jnp.finfo(opening.dtype).nmant

    def refine(search):
        # Newton on g(τ)/τ within the bracket: dividing by τ removes the root at τ = 0 of a step that begins
        # on the surface, and keeps the sign, positive before contact and negative after.
        count, low, high, time, _ = search
        gap = gaps_at(time)
        low, high = jnp.where(gap > 0, time, low), jnp.where(gap > 0, high, time)
        slope = rates_at(time) - gap / time
        newton = time - gap / jnp.where(slope == 0, 1, slope)
        inside = (newton >= low) & (newton <= high) & (newton > 0)
        better = jnp.where(inside, newton, 0.5 * (low + high))
        return count + 1, low, high, better, jnp.abs(better - time) <= tolerance * end

    def unfinished(search):
        return (search[0] < iterations) & jnp.any(closes & ~search[-1])

    chord = opening / jnp.where(closes, opening - gaps_at(end), 1)
    guess = jnp.where(closes & (chord > 0), chord, 0.5) * jnp.where(end > 0, end, 1)
    search = 0, jnp.zeros_like(end), end, guess, jnp.zeros(end.shape, bool)
    return lax.while_loop(unfinished, refine, search)[3]


def first_dip(gaps_at: Callable[[Times], Times], rates_at: Callable[[Times], Times], end: Times) -> Times:
    """Approximate minimum of a gap that first closes and then opens, by two secant steps; else the end.

    Without it a contact that closes and opens again within a step would be missed.
    """
    low, falling, rising = jnp.zeros_like(end), rates_at(jnp.zeros_like(end)), rates_at(end)
    dips = (falling < 0) & (rising > 0)
    high = dip = end
    for _ in range(2):
        middle = low + (high - low) * falling / jnp.where(dips, falling - rising, 1)
        rate = rates_at(jnp.where(dips, middle, end))
        below = rate < 0
        low, falling = jnp.where(below, middle, low), jnp.where(below, rate, falling)
        high, rising = jnp.where(below, high, middle), jnp.where(below, rising, rate)
        dip = jnp.where(below, low, high)
    return jnp.where(dips & (gaps_at(jnp.where(dips, dip, end)) < 0), dip, end)


def _fixed(geometry: ContactGeometry) -> ContactGeometry:
    """The same geometry as a constant of differentiation."""
    return jax.tree.map(lambda x: lax.stop_gradient(x) if isinstance(x, Array) else x, geometry)
