"""Contact times: roots of the gaps along the parabola q + τ v + ½τ² a, differentiated implicitly."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.mechanics import ContactGeometry, Contacts
from carom.types import Coordinates, PerContact, Scalar, State

BY_GAP, PRESCRIBED, EXCLUDED = 0, 1, -1
"""Modes of a contact in one step: determined by its gap, certain to occur, or certain not to."""
Modes = Int[Array, "contacts"]
Times = Float[Array, "*any"]
NEWTON_STEPS = 6
"""Newton iterations for the instant at which a path meets the surface of a prescribed contact."""


class Paths(NamedTuple):
    """r + τ v + ½τ² a of every contact, relative to its surface or to its second body."""

    contacts: Contacts
    position: Float[Array, "contacts dimension"]
    velocity: Float[Array, "contacts dimension"]
    acceleration: Float[Array, "contacts dimension"]

    @classmethod
    def of(
        cls, contacts: Contacts, state: State, acceleration: Coordinates, delay: PerContact | None = None
    ) -> "Paths":
        """The paths of bodies from a state; with a delay, as they were by that much earlier."""
        r, v, a = map(contacts.relative, (state.position, state.velocity, acceleration))
        if delay is not None:
            t = delay[:, None]
            r, v = r - t * v + 0.5 * t**2 * a, v - t * a
        return cls(contacts, r, v, a)

    def gaps(self, times: PerContact) -> PerContact:
        """The gap of every contact, each at a time of its own."""
        return self.contacts.gap_of(self._position(times))

    def rates(self, times: PerContact) -> PerContact:
        """The same for the rates of the gaps."""
        velocity = self.velocity + times[:, None] * self.acceleration
        return jnp.sum(self.contacts.normal_of(self._position(times)) * velocity, axis=1)

    def meeting_times(
        self, start: Scalar, window: tuple[Scalar, Scalar], grazing_speed: Scalar
    ) -> PerContact:
        """Where all gaps close within a window of time, by Newton's method."""

        def approach(_, t):
            return jnp.clip(t - self.gaps(t) / jnp.minimum(self.rates(t), -grazing_speed), *window)

        return lax.fori_loop(0, NEWTON_STEPS, approach, jnp.broadcast_to(start, self.position.shape[:1]))

    def _position(self, times: PerContact) -> Float[Array, "contacts dimension"]:
        t = times[:, None]
        return self.position + t * self.velocity + 0.5 * t**2 * self.acceleration


Roots = tuple[PerContact, Bool[Array, "contacts"], PerContact, PerContact]
"""Of every gap: its root, whether it closes there, its value with derivatives, and its rate."""


def contact_times(
    geometry: ContactGeometry,
    state: State,
    acceleration: Coordinates,
    remaining: Float[Array, ""],
    resting: Bool[Array, "contacts"],
    modes: Modes,
    step_size: Scalar,
    grazing_speed: Scalar,
    delay: PerContact | None = None,
) -> tuple[PerContact, Bool[Array, "contacts"]]:
    """The time within `remaining` at which each gap closes, ∞ if it does not; and whether it is a graze.

    With a delay, the time at which it closed by that much earlier.
    """
    prescribed, limit = modes == PRESCRIBED, lax.stop_gradient(remaining)
    possible = (modes == BY_GAP) & ~resting & (limit > 0)
    # A prescribed root may lie slightly outside the step.
    window = limit - 2 * step_size, limit + step_size
    paths = Paths.of(geometry.rows, state, acceleration, delay)
    if geometry.affine:
        root, closes, gap, rate = _parabola_roots(paths, limit, possible, prescribed, window)
    else:
        root, closes, gap, rate = _searched_roots(paths, limit, possible, prescribed, window, grazing_speed)
    time = implicit_root(root, gap, jnp.minimum(rate, -grazing_speed))
    time = jnp.where(prescribed, jnp.clip(time, *window), time)
    due = closes | prescribed
    return jnp.where(due, time, jnp.inf), due & (rate > -grazing_speed)


def _searched_roots(paths: Paths, limit, possible, prescribed, window, grazing_speed: Scalar) -> Roots:
    """Roots of any gaps along their paths, by a search that is not differentiated."""
    fixed = lax.stop_gradient(paths)
    initial = fixed.gaps(jnp.zeros_like(paths.position[:, 0]))
    rounding = jnp.where(prescribed, 0, jnp.minimum(initial, 0))  # overlap left by the previous impact

    def gaps_at(times):
        return fixed.gaps(times) - rounding

    bracket = first_dip(gaps_at, fixed.rates, jnp.broadcast_to(limit, initial.shape))
    closes = possible & (gaps_at(bracket) < 0)
    root = bracketed_root(gaps_at, fixed.rates, jnp.maximum(initial, 0), bracket, closes)
    # Plain Newton for a prescribed root, since it has no bracket.
    root = jnp.where(prescribed, fixed.meeting_times(0.5 * limit, window, grazing_speed), root)
    return root, closes, paths.gaps(root) - rounding, fixed.rates(root)


def _parabola_roots(paths: Paths, limit, possible, prescribed, window) -> Roots:
    """The same in closed form: along its path an affine gap is the parabola g + uτ + ½aτ²."""
    normal, gap = paths.contacts.normal_of(paths.position), paths.contacts.gap_of(paths.position)
    rate, curvature = (jnp.sum(normal * x, axis=1) for x in (paths.velocity, paths.acceleration))
    g, u, a = lax.stop_gradient((gap, rate, curvature))
    # A contact that lasts may still be open at its end, and close again when the gap has been positive.
    emerges = (g < 0) & (u > 0) & (a < 0) & (u**2 > 2 * a * g)
    # Other overlap is left by rounding at the previous impact, and counts as contact, not as distance.
    rounding = jnp.where(prescribed | emerges, 0, jnp.minimum(g, 0))
    gap, g = gap - rounding, g - rounding
    # The gap is least at the end, or before that at the vertex of a parabola that opens upwards.
    lowest = jnp.where((a > 0) & (u < 0), jnp.minimum(limit, -u / jnp.where(a > 0, a, 1)), limit)
    ends = g + lowest * (u + 0.5 * lowest * a) < 0
    closes = possible & jnp.where(emerges, closing_time(g, u, a) < limit, ends)
    low, high = (jnp.where(prescribed, x, y) for x, y in zip(window, (0, jnp.abs(limit)), strict=True))
    root = jnp.where(closes | prescribed, jnp.clip(closing_time(g, u, a), low, high), 0)
    return root, closes, gap + root * (rate + 0.5 * root * curvature), u + a * root


def implicit_root(
    root: Float[Array, "..."], value: Float[Array, "..."], slope: Float[Array, "..."]
) -> Float[Array, "..."]:
    """A root t of g(t, θ) = 0 with the derivative dt/dθ = −(∂g/∂θ)/(∂g/∂t) of the implicit function theorem.

    This is one Newton step with a constant slope, t − g(t, θ)/ġ, which also removes most of the remaining
    error of the iteration.

    Arguments:
        root: the root; the iteration that found it is not differentiated.
        value: g(t, θ) at that root held fixed, with its derivatives by θ.
        slope: ∂g/∂t there, bounded away from 0 by the caller (the derivative diverges at a grazing contact).

    Example:
        >>> import jax
        >>> def fall_time(gravity):     # from a height of 1 m: t = √(2/g), dt/dg = −t/2g
        ...     time = jnp.sqrt(2 / lax.stop_gradient(gravity))
        ...     return implicit_root(time, 1 - 0.5 * gravity * time**2, -gravity * time)
        >>> jax.grad(fall_time)(2.0)
        Array(-0.25, dtype=float32, weak_type=True)
    """
    return lax.stop_gradient(root) - value / lax.stop_gradient(slope)


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
