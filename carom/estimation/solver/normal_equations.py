"""Normal equations of problems with parameters shared by all segments and parameters of single segments.

The matrix has the shape of an arrow: the blocks of the segments are eliminated one by one (Schur complement),
which leaves a system of the size of the shared parameters, however many segments there are.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from carom.estimation.solver.linear_algebra import inverse, inverse_of_blocks
from carom.types import Values

SegmentResiduals = Callable[
    [Float[Values, "shared"], Float[Values, "local"], Any],
    tuple[Float[Array, "samples channels residuals"], Float[Array, "others"]],
]
"""Residuals of one segment over their standard deviations, as a function of the shared parameters, its local
ones and its data: those of the measurements by channel, and all others."""


class Parameters(NamedTuple):
    """Values of all parameters: shared by all segments, and local to each."""

    shared: Float[Values, "shared"]
    local: Float[Values, "segments local"]


class Prior(NamedTuple):
    """Gaussian priors as means and precisions, and further residuals of the shared parameters."""

    shared_mean: Float[Array, "shared"]
    shared_precision: Float[Array, "shared"]
    local_mean: Float[Array, "segments local"]
    local_precision: Float[Array, "segments local"]
    residuals: Callable[[Float[Values, "shared"]], Float[Array, "residuals"]]


class Normal(NamedTuple):
    """The undamped normal equations at a point: blocks of Jᵀ J, the gradient Jᵀ r and the cost ½ rᵀ r."""

    shared: Float[Values, "shared shared"]
    mixed: Float[Values, "segments local shared"]
    local: Float[Values, "segments local local"]
    shared_gradient: Float[Values, "shared"]
    segment_gradients: Float[Values, "segments shared"]
    """Contribution of each segment to the gradient with respect to the shared parameters."""
    local_gradient: Float[Values, "segments local"]
    cost: Float[Values, ""]
    squares: Float[Values, "segments channels"]
    """Sums of squared residuals."""


def normal_equations(
    residuals: SegmentResiduals,
    parameters: Parameters,
    segments: Any,
    prior: Prior,
    *,
    block_size: int | None = None,
) -> Normal:
    """Jᵀ J and Jᵀ r by blocks, priors included.

    Arguments:
        block_size: segments evaluated at once, all by default. Smaller blocks need less memory, and are
            faster where their Jacobians fit into the processor's cache.
    """

    def of_segment(local, data):
        def both(shared, local):
            measured, others = residuals(shared, local, data)
            value = jnp.concatenate([measured.ravel(), others])
            return value, (value, measured)

        (by_shared, by_local), (value, measured) = jax.jacfwd(both, argnums=(0, 1), has_aux=True)(
            parameters.shared, local
        )
        return (
            (by_shared.T @ by_shared, 0.5 * jnp.sum(value**2)),
            (
                by_local.T @ by_shared,
                by_local.T @ by_local,
                by_shared.T @ value,
                by_local.T @ value,
                jnp.sum(measured**2, axis=(0, 2)),
            ),
        )

    totals, (mixed, local, segment_gradients, local_gradient, squares) = _by_blocks(
        of_segment, parameters.local, segments, block_size
    )
    shared, cost = totals
    shared_deviation = parameters.shared - prior.shared_mean
    local_deviation = parameters.local - prior.local_mean
    penalty = jnp.sum(prior.shared_precision * shared_deviation**2) + jnp.sum(
        prior.local_precision * local_deviation**2
    )
    further, jacobian = prior.residuals(parameters.shared), jax.jacfwd(prior.residuals)(parameters.shared)
    return Normal(
        shared=shared + jnp.diag(prior.shared_precision) + jacobian.T @ jacobian,
        mixed=mixed,
        local=local + jax.vmap(jnp.diag)(prior.local_precision),
        shared_gradient=jnp.sum(segment_gradients, 0)
        + prior.shared_precision * shared_deviation
        + jacobian.T @ further,
        segment_gradients=segment_gradients,
        local_gradient=local_gradient + prior.local_precision * local_deviation,
        cost=cost + 0.5 * (penalty + jnp.sum(further**2)),
        squares=squares,
    )


def _by_blocks(
    of_segment: Callable, local: Float[Values, "segments local"], segments: Any, block_size: int | None
):
    """Evaluate `of_segment` on all segments: its first output summed over them, its second one stacked."""
    count = len(local)
    size = count if block_size is None else min(block_size, count)
    if size == count:
        terms, stacked = jax.vmap(of_segment)(local, segments)
        return jax.tree.map(lambda part: jnp.sum(part, 0), terms), stacked
    blocks = -(-count // size)
    # The last block is padded with copies of the last segment, whose weight is 0.
    rows = jnp.arange(blocks * size).reshape(blocks, size)

    def of_block(sums, block):
        chosen, weight = jnp.minimum(block, count - 1), block < count
        terms, stacked = jax.vmap(of_segment)(
            *jax.tree.map(lambda x: jnp.asarray(x)[chosen], (local, segments))
        )
        added = jax.tree.map(lambda part: jnp.tensordot(weight.astype(part.dtype), part, 1), terms)
        return jax.tree.map(jnp.add, sums, added), stacked

    like = jax.eval_shape(of_segment, *jax.tree.map(lambda x: jnp.asarray(x)[0], (local, segments)))[0]
    zero = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), like)
    totals, stacked = jax.lax.scan(of_block, zero, rows)
    return totals, jax.tree.map(lambda part: part.reshape(blocks * size, *part.shape[2:])[:count], stacked)


def shared_covariance(normal: Normal) -> Float[Array, "shared shared"]:
    """Covariance of the shared parameters, the local ones marginalised (Laplace approximation)."""
    reduced = schur(normal, jnp.zeros(()))[0]
    scale = jnp.sqrt(diagonal_scale(jnp.diagonal(reduced)))
    correlation = reduced / scale[:, None] / scale[None, :]
    # The ridge keeps undetermined directions finite; their variance is huge, as it should be.
    scaled = inverse(correlation + 1e-13 * jnp.eye(len(scale)))
    return scaled / scale[:, None] / scale[None, :]


def scatter_covariance(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "shared shared"]:
    """Sandwich estimate of the covariance of the shared parameters, from the scatter of segment gradients.

    Valid also if the residuals within a segment are correlated or larger than the noise, provided that the
    segments are independent of each other and many.
    """
    solved = schur(normal, jnp.zeros(()))[2]
    # The score of a segment: its gradient with its local parameters profiled out.
    score = normal.segment_gradients - jnp.einsum("slp,sl->sp", solved, normal.local_gradient)
    # Segments without data have no score and are not counted.
    count = jnp.sum(jnp.any(normal.segment_gradients != 0, axis=1).astype(score.dtype))
    return covariance @ (score.T @ score) @ covariance * (count / jnp.maximum(count - 1, 1))


def local_variances(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "segments local"]:
    """Variances of the local parameters, the shared ones marginalised."""
    solved, inverses = schur(normal, jnp.zeros(()))[2:]
    shared = jnp.einsum("slp,pq,slq->sl", solved, covariance, solved)
    return jax.vmap(jnp.diagonal)(inverses) + shared


def schur(normal: Normal, damping: Float[Array, ""]):
    """The damped Schur complement of the shared block, its gradient, and factors for back substitution."""
    local = normal.local + damping * jax.vmap(jnp.diag)(diagonal_scale(jax.vmap(jnp.diagonal)(normal.local)))
    inverses = inverse_of_blocks(local)
    solved = jnp.einsum("sij,sjp->sip", inverses, normal.mixed)
    shared = normal.shared + damping * jnp.diag(diagonal_scale(jnp.diagonal(normal.shared)))
    reduced = shared - jnp.einsum("slp,slq->pq", normal.mixed, solved)
    gradient = normal.shared_gradient - jnp.einsum("slp,sl->p", solved, normal.local_gradient)
    return reduced, gradient, solved, inverses


def diagonal_scale(diagonal: Array) -> Array:
    """Marquardt's scaling, bounded away from zero for parameters that no residual depends on."""
    return jnp.maximum(diagonal, 1e-200)
