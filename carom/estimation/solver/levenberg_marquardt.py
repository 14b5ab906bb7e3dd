"""Block Levenberg–Marquardt for parameters shared by all segments and parameters local to one.

References: Marquardt (1963); Nielsen (1999), Damping parameter in Marquardt's method, IMM-REP-1999-05.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.estimation.solver.linear_algebra import inverse_of_blocks, solve
from carom.estimation.solver.normal_equations import (
    Normal,
    Parameters,
    Prior,
    SegmentResiduals,
    diagonal_scale,
    normal_equations,
    schur,
)


class Bounds(NamedTuple):
    """Bounds of the shared parameters."""

    low: Float[Array, "shared"]
    high: Float[Array, "shared"]


class Solution(NamedTuple):
    """The best point of an iteration."""

    parameters: Parameters
    normal: Normal
    cost: Float[Array, ""]
    """Half the sum of squares, priors included."""
    iterations: Int[Array, ""]


class _Search(NamedTuple):
    solution: Solution
    trial: Parameters
    predicted: Float[Array, ""]
    """Decrease of the cost at the trial point by the quadratic model."""
    damping: Float[Array, ""]
    growth: Float[Array, ""]
    done: Bool[Array, ""]


def minimise(
    residuals: SegmentResiduals,
    start: Parameters,
    segments: Any,
    prior: Prior,
    bounds: Bounds,
    *,
    channels: int,
    block_size: int | None = None,
    max_iterations: int = 30,
    tolerance: float = 1e-9,
) -> Solution:
    """A local minimum of half the sum of squares.

    Arguments:
        residuals: of one segment.
        start: initial values, within the bounds.
        segments: data of all segments, stacked along the first axis of every array.
        prior: of all parameters.
        bounds: of the shared parameters.
        channels: number of channels of the measurements that `residuals` returns.
        block_size: as in `normal_equations`.
        tolerance: a relative decrease of the cost below this ends the iteration.
    """

    search = _Search(
        Solution(start, _placeholder(start, channels), jnp.asarray(jnp.inf), jnp.zeros((), int)),
        start,
        jnp.asarray(jnp.inf),
        jnp.asarray(1e-3),
        jnp.asarray(2.0),
        jnp.zeros((), bool),
    )

    def unfinished(search: _Search) -> Bool[Array, ""]:
        return (search.solution.iterations <= max_iterations) & ~search.done

    def iterate(search: _Search) -> _Search:
        # An iteration evaluates the previous trial point, then proposes a new one: the normal equations
        # occur only once in the program, which halves the compilation time.
        (parameters, normal, cost, count), trial, predicted, damping, growth, _ = search
        trial_normal = normal_equations(residuals, trial, segments, prior, block_size=block_size)
        decrease = cost - trial_normal.cost
        first = count == 0
        # Where derivatives are not finite, as where a contact just closes, there is no way on.
        finite = jnp.isfinite(sum(jnp.sum(part) for part in jax.tree.leaves(trial_normal)))
        accepted = finite & (first | (decrease > 0))
        ratio = decrease / jnp.maximum(predicted, 1e-30)
        # Nielsen's rule: the damping follows how well the quadratic model predicted the decrease.
        reduced = jnp.clip(damping * jnp.maximum(1 / 3, 1 - (2 * ratio - 1) ** 3), 1e-12, 1e12)
        damping = jnp.where(first, damping, jnp.where(accepted, reduced, damping * growth))
        converged = ~first & accepted & (decrease <= tolerance * cost)
        # A start with a cost that is not finite fails at once: no damping can repair it.
        failed = ~accepted & (first | (damping > 1e10) | (predicted <= tolerance * cost))

        def better_of(new, old):
            return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), new, old)

        best = Solution(
            better_of(trial, parameters),
            better_of(trial_normal, normal),
            better_of(trial_normal.cost, cost),
            count + 1,
        )
        step, predicted = damped_step(best.normal, best.parameters, bounds, damping, prior.shared_precision)
        next_trial = Parameters(
            jnp.clip(best.parameters.shared + step.shared, bounds.low, bounds.high),
            best.parameters.local + step.local,
        )
        growth = jnp.where(accepted, 2.0, 2 * growth)
        return _Search(best, next_trial, predicted, damping, growth, converged | failed)

    return lax.while_loop(unfinished, iterate, search).solution


def _placeholder(parameters: Parameters, channels: int) -> Normal:
    """Normal equations of the right shapes; `jax.eval_shape` would trace the whole simulation for these."""
    shared, (segments, local) = len(parameters.shared), parameters.local.shape
    return Normal(
        shared=jnp.zeros((shared, shared)),
        mixed=jnp.zeros((segments, local, shared)),
        local=jnp.zeros((segments, local, local)),
        shared_gradient=jnp.zeros(shared),
        segment_gradients=jnp.zeros((segments, shared)),
        local_gradient=jnp.zeros((segments, local)),
        cost=jnp.asarray(jnp.inf),
        squares=jnp.zeros((segments, channels)),
    )


def fit_local(
    residuals: SegmentResiduals,
    parameters: Parameters,
    segments: Any,
    prior: Prior,
    *,
    iterations: int,
) -> Float[Array, "segments local"]:
    """Improve the local parameters of every segment with the shared ones fixed.

    Each segment has a damping of its own; its few columns cost little compared with the shared ones.
    """

    def of_segment(local, data, mean, precision):
        def value(local):
            measured, others = residuals(parameters.shared, local, data)
            return jnp.concatenate([measured.ravel(), others, jnp.sqrt(precision) * (local - mean)])

        def value_twice(local):
            result = value(local)
            return result, result

        def iterate(carry, _):
            local, damping = carry
            jacobian, residual = jax.jacfwd(value_twice, has_aux=True)(local)
            hessian = jacobian.T @ jacobian
            damped = hessian + damping * jnp.diag(diagonal_scale(jnp.diagonal(hessian)))
            trial = local - inverse_of_blocks(damped) @ (jacobian.T @ residual)
            better = jnp.sum(value(trial) ** 2) < jnp.sum(residual**2)
            return (jnp.where(better, trial, local), jnp.where(better, 0.1, 10.0) * damping), None

        def minimised(local):
            (local, _), _ = lax.scan(iterate, (local, jnp.asarray(1e-3)), length=iterations)
            return local, jnp.sum(value(local) ** 2)

        # A segment may be stuck in another local minimum: start from the prior mean too, and keep the better.
        minima, costs = jax.vmap(minimised)(jnp.stack([local, mean]))
        return minima[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))]

    return jax.vmap(of_segment)(parameters.local, segments, prior.local_mean, prior.local_precision)


def damped_step(
    normal: Normal,
    parameters: Parameters,
    bounds: Bounds,
    damping: Float[Array, ""],
    precision: Float[Array, "shared"],
) -> tuple[Parameters, Float[Array, ""]]:
    """The Levenberg–Marquardt step within bounds, and the decrease of the cost that it predicts.

    Arguments:
        precision: of the priors of the shared parameters.
    """
    # A parameter at an active bound is excluded from the step (projected Newton); the others move as if it
    # were known. So is one of which no residual depends, such as friction where all contacts stick: its prior
    # would move it at once to where they slip.
    free = ~(
        ((parameters.shared <= bounds.low) & (normal.shared_gradient > 0))
        | ((parameters.shared >= bounds.high) & (normal.shared_gradient < 0))
        | (jnp.diagonal(normal.shared) <= (1 + 1e-9) * precision)
    )
    reduced, gradient, solved, inverses = schur(normal, damping)
    reduced = jnp.where(free[:, None] & free[None, :], reduced, 0)
    reduced = reduced + jnp.diag(jnp.where(free, 0, 1.0))
    shared = -_solve(reduced, jnp.where(free, gradient, 0))
    local = -jnp.einsum("sij,sj->si", inverses, normal.local_gradient) - jnp.einsum(
        "slp,p->sl", solved, shared
    )
    scale = diagonal_scale(jnp.diagonal(normal.shared))
    local_scale = diagonal_scale(jax.vmap(jnp.diagonal)(normal.local))
    predicted = 0.5 * (
        damping * (jnp.sum(scale * shared**2) + jnp.sum(local_scale * local**2))
        - jnp.sum(jnp.where(free, normal.shared_gradient, 0) * shared)
        - jnp.sum(normal.local_gradient * local)
    )
    return Parameters(shared, local), predicted


def _solve(matrix: Float[Array, "n n"], vector: Float[Array, "n"]) -> Float[Array, "n"]:
    # Parameters have different units: balancing makes the ridge, and rounding, the same for all.
    scale = 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(matrix), 1e-200))
    balanced = matrix * scale[:, None] * scale[None, :] + 1e-13 * jnp.eye(len(vector))
    return scale * solve(balanced, scale * vector)
