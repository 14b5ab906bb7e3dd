"""Levenberg–Marquardt for problems whose unknowns are shared by all segments or belong to one.

The normal equations then have the shape of an arrow: the blocks of single segments are eliminated one by one
(Schur complement), and what is left has the size of the shared unknowns alone, however many segments there
are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from carom.types import Values

SegmentResiduals = Callable[
    [Float[Values, "shared"], Float[Values, "local"], Any],
    tuple[Float[Array, "samples channels residuals"], Float[Array, "others"]],
]
"""Residuals of one segment, divided by their standard deviations: from the shared unknowns, its own, its
data. Those of measurements come channel by channel, others after them."""


class Bounds(NamedTuple):
    """Where shared unknowns may lie."""

    low: Float[Array, "shared"]
    high: Float[Array, "shared"]


class Unknowns(NamedTuple):
    """A point of the problem."""

    shared: Float[Values, "shared"]
    local: Float[Values, "segments local"]


class Prior(NamedTuple):
    """Gaussian priors as means and precisions, and residuals of the shared unknowns alone."""

    shared_mean: Float[Array, "shared"]
    shared_precision: Float[Array, "shared"]
    local_mean: Float[Array, "segments local"]
    local_precision: Float[Array, "segments local"]
    residuals: Callable[[Float[Values, "shared"]], Float[Array, "residuals"]]


class Normal(NamedTuple):
    """The normal equations at a point, undamped."""

    shared: Float[Values, "shared shared"]
    mixed: Float[Values, "segments local shared"]
    local: Float[Values, "segments local local"]
    shared_gradient: Float[Values, "shared"]
    pulls: Float[Values, "segments shared"]
    """What each segment adds to the gradient by the shared unknowns."""
    local_gradient: Float[Values, "segments local"]
    cost: Float[Values, ""]
    squares: Float[Values, "channels"]
    """Sums of squared residuals, channel by channel."""


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
        tried_normal = normal_equations(residuals, tried, segments, prior)
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
            damped = hessian + damping * jnp.diag(_scale(jnp.diagonal(hessian)))
            tried = local - jnp.linalg.solve(damped, jacobian.T @ here)
            better = jnp.sum(value(tried) ** 2) < jnp.sum(here**2)
            return (jnp.where(better, tried, local), jnp.where(better, 0.1, 10.0) * damping), None

        def settled(local):
            (local, _), _ = lax.scan(iterate, (local, jnp.asarray(1e-3)), length=iterations)
            return local, jnp.sum(value(local) ** 2)

        # A segment may have been led astray; what is expected of it is always worth another try.
        found, costs = jax.vmap(settled)(jnp.stack([local, mean]))
        return found[jnp.argmin(jnp.where(jnp.isnan(costs), jnp.inf, costs))]

    return jax.vmap(of_segment)(unknowns.local, segments, prior.local_mean, prior.local_precision)


def normal_equations(residuals: SegmentResiduals, unknowns: Unknowns, segments: Any, prior: Prior) -> Normal:
    """Jᵀ J and Jᵀ r by blocks, priors included."""

    def of_segment(local, data):
        def both(shared, local):
            measured, others = residuals(shared, local, data)
            value = jnp.concatenate([measured.ravel(), others])
            return value, (value, measured)

        (by_shared, by_local), (value, measured) = jax.jacfwd(both, argnums=(0, 1), has_aux=True)(
            unknowns.shared, local
        )
        return (
            by_shared.T @ by_shared,
            by_local.T @ by_shared,
            by_local.T @ by_local,
            by_shared.T @ value,
            by_local.T @ value,
            0.5 * jnp.sum(value**2),
            jnp.sum(measured**2, axis=(0, 2)),
        )

    shared, mixed, local, pulls, local_gradient, cost, squares = jax.vmap(of_segment)(
        unknowns.local, segments
    )
    shared_away = unknowns.shared - prior.shared_mean
    local_away = unknowns.local - prior.local_mean
    penalty = jnp.sum(prior.shared_precision * shared_away**2) + jnp.sum(
        prior.local_precision * local_away**2
    )
    rough, by_rough = prior.residuals(unknowns.shared), jax.jacfwd(prior.residuals)(unknowns.shared)
    return Normal(
        shared=jnp.sum(shared, 0) + jnp.diag(prior.shared_precision) + by_rough.T @ by_rough,
        mixed=mixed,
        local=local + jax.vmap(jnp.diag)(prior.local_precision),
        shared_gradient=jnp.sum(pulls, 0) + prior.shared_precision * shared_away + by_rough.T @ rough,
        pulls=pulls,
        local_gradient=local_gradient + prior.local_precision * local_away,
        cost=jnp.sum(cost) + 0.5 * (penalty + jnp.sum(rough**2)),
        squares=jnp.sum(squares, axis=0),
    )


def damped_step(
    normal: Normal, unknowns: Unknowns, bounds: Bounds, damping: Float[Array, ""]
) -> tuple[Unknowns, Float[Array, ""]]:
    """The Levenberg–Marquardt step within bounds, and the decrease it foretells."""
    # An unknown that leans on its bound is left out of the step; the others move as if it were given.
    free = ~(
        ((unknowns.shared <= bounds.low) & (normal.shared_gradient > 0))
        | ((unknowns.shared >= bounds.high) & (normal.shared_gradient < 0))
    )
    reduced, gradient, solved, inverse = _schur(normal, damping)
    reduced = jnp.where(free[:, None] & free[None, :], reduced, 0)
    reduced = reduced + jnp.diag(jnp.where(free, 0, 1.0))
    shared = -_solve(reduced, jnp.where(free, gradient, 0))
    local = -jnp.einsum("sij,sj->si", inverse, normal.local_gradient) - jnp.einsum(
        "slp,p->sl", solved, shared
    )
    scale = _scale(jnp.diagonal(normal.shared))
    local_scale = _scale(jax.vmap(jnp.diagonal)(normal.local))
    predicted = 0.5 * (
        damping * (jnp.sum(scale * shared**2) + jnp.sum(local_scale * local**2))
        - jnp.sum(jnp.where(free, normal.shared_gradient, 0) * shared)
        - jnp.sum(normal.local_gradient * local)
    )
    return Unknowns(shared, local), predicted


def shared_covariance(normal: Normal) -> Float[Array, "shared shared"]:
    """The covariance of the shared unknowns, those of the segments integrated out (Laplace)."""
    reduced = _schur(normal, jnp.zeros(()))[0]
    scale = jnp.sqrt(_scale(jnp.diagonal(reduced)))
    correlation = reduced / scale[:, None] / scale[None, :]
    # A tiny ridge keeps directions that nothing determines finite: their variance comes out huge, as it
    # should.
    inverse = jnp.linalg.inv(correlation + 1e-13 * jnp.eye(len(scale)))
    return inverse / scale[:, None] / scale[None, :]


def scatter_covariance(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "shared shared"]:
    """The covariance of the shared unknowns by how much the segments disagree about them (the sandwich).

    It holds where residuals within a segment are neither white nor of the size of the noise, as long as the
    segments are independent of each other; it takes many of them.
    """
    solved = _schur(normal, jnp.zeros(()))[2]
    pulls = normal.pulls - jnp.einsum("slp,sl->sp", solved, normal.local_gradient)
    count = len(pulls)
    return covariance @ (pulls.T @ pulls) @ covariance * (count / max(count - 1, 1))


def local_variances(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "segments local"]:
    """Variances of the unknowns of the segments, those that are shared integrated out."""
    solved, inverse = _schur(normal, jnp.zeros(()))[2:]
    shared = jnp.einsum("slp,pq,slq->sl", solved, covariance, solved)
    return jax.vmap(jnp.diagonal)(inverse) + shared


def log_determinant(normal: Normal) -> Float[Array, ""]:
    """log det of the whole Hessian, for the evidence."""
    reduced = _schur(normal, jnp.zeros(()))[0]
    return jnp.linalg.slogdet(reduced)[1] + jnp.sum(jnp.linalg.slogdet(normal.local)[1])


def _schur(normal: Normal, damping: Float[Array, ""]):
    """The damped shared block without the segments, its gradient, and what back substitution needs."""
    local = normal.local + damping * jax.vmap(jnp.diag)(_scale(jax.vmap(jnp.diagonal)(normal.local)))
    inverse = jnp.linalg.inv(local)
    solved = jnp.einsum("sij,sjp->sip", inverse, normal.mixed)
    shared = normal.shared + damping * jnp.diag(_scale(jnp.diagonal(normal.shared)))
    reduced = shared - jnp.einsum("slp,slq->pq", normal.mixed, solved)
    gradient = normal.shared_gradient - jnp.einsum("slp,sl->p", solved, normal.local_gradient)
    return reduced, gradient, solved, inverse


def _scale(diagonal: Array) -> Array:
    """Marquardt's scaling, kept from zero for unknowns that the data do not touch."""
    return jnp.maximum(diagonal, 1e-10)


def _solve(matrix: Float[Array, "n n"], vector: Float[Array, "n"]) -> Float[Array, "n"]:
    scale = 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(matrix), 1e-30))
    balanced = matrix * scale[:, None] * scale[None, :] + 1e-13 * jnp.eye(len(vector))
    return scale * jax.scipy.linalg.solve(balanced, scale * vector, assume_a="pos")
