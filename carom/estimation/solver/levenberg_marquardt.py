"""Levenberg–Marquardt for problems whose unknowns are shared by all segments or belong to one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.estimation.solver.linear_algebra import inverse_of_blocks, solve
from carom.estimation.solver.normal_equations import (
    Normal,
    Prior,
    SegmentResiduals,
    Unknowns,
    diagonal_scale,
    normal_equations,
    schur,
)


class Bounds(NamedTuple):
    """Where shared unknowns may lie."""

    low: Float[Array, "shared"]
    high: Float[Array, "shared"]


class Solution(NamedTuple):
    """Where the iteration ended."""

    unknowns: Unknowns
    normal: Normal
    cost: Float[Array, ""]
    """Half the sum of squares, priors included."""
    iterations: Int[Array, ""]


class _Search(NamedTuple):
    solution: Solution
    tried: Unknowns
    predicted: Float[Array, ""]
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    stalled: Bool[Array, ""]


def minimise(
    residuals: SegmentResiduals,
    start: Unknowns,
    segments: Any,
    prior: Prior,
    bounds: Bounds,
    *,
    channels: int,
    size: int | None = None,
    max_iterations: int = 30,
    tolerance: float = 1e-6,
) -> Solution:
    """The nearest minimum of half the sum of squares.

    Arguments:
        residuals: of one segment.
        start: where to begin; within the bounds.
        segments: data of all segments, stacked along the first axis of every array.
        prior: of all unknowns.
        bounds: of the shared unknowns.
        channels: of the measurements, as `residuals` gives them.
        size: segments that are worked on at once, as in `normal_equations`.
        tolerance: a relative decrease of the cost below this ends the search.
    """

    search = _Search(
        Solution(start, _unmade(start, channels), jnp.asarray(jnp.inf), jnp.zeros((), int)),
        start,
        jnp.asarray(jnp.inf),
        jnp.asarray(1e-3),
        jnp.asarray(2.0),
        jnp.zeros((), bool),
    )

    def go_on(search: _Search) -> Bool[Array, ""]:
        return (search.solution.iterations <= max_iterations) & ~search.stalled

    def iterate(search: _Search) -> _Search:
        # Every turn judges the point tried before and tries a new one: the equations stand here only once,
        # which halves what must be compiled.
        (unknowns, normal, cost, count), tried, predicted, damping, growth, _ = search
        tried_normal = normal_equations(residuals, tried, segments, prior, size=size)
        decrease = cost - tried_normal.cost
        first = count == 0
        better = jnp.isfinite(tried_normal.cost) & (first | (decrease > 0))
        ratio = decrease / jnp.maximum(predicted, 1e-30)
        # Nielsen's rule: the damping follows how well the quadratic model foretold the decrease.
        eased = jnp.clip(damping * jnp.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-12, 1e12)
        damping = jnp.where(first, damping, jnp.where(better, eased, damping * growth))
        small = ~first & better & (decrease <= tolerance * cost)
        lost = ~better & (first | (damping > 1e10) | (predicted <= tolerance * cost))

        def chosen(new, old):
            return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, old)

        kept = Solution(
            chosen(tried, unknowns), chosen(tried_normal, normal), chosen(tried_normal.cost, cost), count + 1
        )
        step, predicted = damped_step(kept.normal, kept.unknowns, bounds, damping)
        following = Unknowns(
            jnp.clip(kept.unknowns.shared + step.shared, bounds.low, bounds.high),
            kept.unknowns.local + step.local,
        )
        growth = jnp.where(better, 2.0, 2 * growth)
        return _Search(kept, following, predicted, damping, growth, small | lost)

    return lax.while_loop(go_on, iterate, search).solution


def _unmade(unknowns: Unknowns, channels: int) -> Normal:
    """Normal equations that are still to be made: to ask JAX for their shape would trace all of them."""
    shared, (segments, local) = len(unknowns.shared), unknowns.local.shape
    return Normal(
        shared=jnp.zeros((shared, shared)),
        mixed=jnp.zeros((segments, local, shared)),
        local=jnp.zeros((segments, local, local)),
        shared_gradient=jnp.zeros(shared),
        pulls=jnp.zeros((segments, shared)),
        local_gradient=jnp.zeros((segments, local)),
        cost=jnp.asarray(jnp.inf),
        squares=jnp.zeros(channels),
    )


def settle(
    residuals: SegmentResiduals,
    unknowns: Unknowns,
    segments: Any,
    prior: Prior,
    *,
    iterations: int,
) -> Float[Array, "segments local"]:
    """The unknowns of every segment nearer to their own minimum, the shared ones as they are.

    Each segment has a damping of its own; its few columns cost little beside those of the shared unknowns.
    """

    def of_segment(local, data, mean, precision):
        def value(local):
            measured, others = residuals(unknowns.shared, local, data)
            return jnp.concatenate([measured.ravel(), others, jnp.sqrt(precision) * (local - mean)])

        def both(local):
            found = value(local)
            return found, found

        def iterate(carry, _):
            local, damping = carry
            jacobian, here = jax.jacfwd(both, has_aux=True)(local)
            hessian = jacobian.T @ jacobian
            damped = hessian + damping * jnp.diag(diagonal_scale(jnp.diagonal(hessian)))
            tried = local - inverse_of_blocks(damped) @ (jacobian.T @ here)
            better = jnp.sum(value(tried) ** 2) < jnp.sum(here**2)
            return (jnp.where(better, tried, local), jnp.where(better, 0.1, 10.0) * damping), None

        def settled(local):
            (local, _), _ = lax.scan(iterate, (local, jnp.asarray(1e-3)), length=iterations)
            return local, jnp.sum(value(local) ** 2)

        # A segment may have been led astray; what is expected of it is always worth another try.
        found, costs = jax.vmap(settled)(jnp.stack([local, mean]))
        return found[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))]

    return jax.vmap(of_segment)(unknowns.local, segments, prior.local_mean, prior.local_precision)


def damped_step(
    normal: Normal, unknowns: Unknowns, bounds: Bounds, damping: Float[Array, ""]
) -> tuple[Unknowns, Float[Array, ""]]:
    """The Levenberg–Marquardt step within bounds, and the decrease it foretells."""
    # An unknown that leans on its bound is left out of the step; the others move as if it were given.
    free = ~(
        ((unknowns.shared <= bounds.low) & (normal.shared_gradient > 0))
        | ((unknowns.shared >= bounds.high) & (normal.shared_gradient < 0))
    )
    reduced, gradient, solved, inverses = schur(normal, damping)
    reduced = jnp.where(free[:, None] & free[None, :], reduced, 0)
    reduced = reduced + jnp.diag(jnp.where(free, 0, 1.0))
    shared = -_solve(reduced, jnp.where(free, gradient, 0))
    local = -jnp.einsum("sij,sj->si", inverses, normal.local_gradient) - jnp.einsum(
        "slp,p->sl", solved, shared
    )
    scale = diagonal_scale(jnp.diagonal(normal.shared))
    localdiagonal_scale = diagonal_scale(jax.vmap(jnp.diagonal)(normal.local))
    predicted = 0.5 * (
        damping * (jnp.sum(scale * shared**2) + jnp.sum(localdiagonal_scale * local**2))
        - jnp.sum(jnp.where(free, normal.shared_gradient, 0) * shared)
        - jnp.sum(normal.local_gradient * local)
    )
    return Unknowns(shared, local), predicted


def _solve(matrix: Float[Array, "n n"], vector: Float[Array, "n"]) -> Float[Array, "n"]:
    scale = 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(matrix), 1e-30))
    balanced = matrix * scale[:, None] * scale[None, :] + 1e-13 * jnp.eye(len(vector))
    return scale * solve(balanced, scale * vector)
