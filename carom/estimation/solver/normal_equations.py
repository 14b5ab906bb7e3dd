"""Normal equations of problems whose unknowns are shared by all segments or belong to one; covariances.

They have the shape of an arrow: the blocks of single segments are eliminated one by one (Schur complement),
and what is left has the size of the shared unknowns alone, however many segments there are.
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
"""Residuals of one segment, divided by their standard deviations: from the shared unknowns, its own, its
data. Those of measurements come channel by channel, others after them."""


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


def normal_equations(
    residuals: SegmentResiduals, unknowns: Unknowns, segments: Any, prior: Prior, *, size: int | None = None
) -> Normal:
    """Jᵀ J and Jᵀ r by blocks, priors included.

    Arguments:
        size: segments that are worked on at once, all of them by default. Fewer need less memory, and are
            quicker where what they need stays near the processor.
    """

    def of_segment(local, data):
        def both(shared, local):
            measured, others = residuals(shared, local, data)
            value = jnp.concatenate([measured.ravel(), others])
            return value, (value, measured)

        (by_shared, by_local), (value, measured) = jax.jacfwd(both, argnums=(0, 1), has_aux=True)(
            unknowns.shared, local
        )
        return (
            (by_shared.T @ by_shared, 0.5 * jnp.sum(value**2), jnp.sum(measured**2, axis=(0, 2))),
            (
                by_local.T @ by_shared,
                by_local.T @ by_local,
                by_shared.T @ value,
                by_local.T @ value,
            ),
        )

    totals, (mixed, local, pulls, local_gradient) = _by_blocks(of_segment, unknowns.local, segments, size)
    shared, cost, squares = totals
    shared_away = unknowns.shared - prior.shared_mean
    local_away = unknowns.local - prior.local_mean
    penalty = jnp.sum(prior.shared_precision * shared_away**2) + jnp.sum(
        prior.local_precision * local_away**2
    )
    rough, by_rough = prior.residuals(unknowns.shared), jax.jacfwd(prior.residuals)(unknowns.shared)
    return Normal(
        shared=shared + jnp.diag(prior.shared_precision) + by_rough.T @ by_rough,
        mixed=mixed,
        local=local + jax.vmap(jnp.diag)(prior.local_precision),
        shared_gradient=jnp.sum(pulls, 0) + prior.shared_precision * shared_away + by_rough.T @ rough,
        pulls=pulls,
        local_gradient=local_gradient + prior.local_precision * local_away,
        cost=cost + 0.5 * (penalty + jnp.sum(rough**2)),
        squares=squares,
    )


def _by_blocks(of_segment: Callable, local: Float[Values, "segments local"], segments: Any, size: int | None):
    """The first of what is found for every segment summed over all, the rest as it is."""
    count = len(local)
    size = count if size is None else min(size, count)
    if size == count:
        totals, own = jax.vmap(of_segment)(local, segments)
        return jax.tree.map(lambda part: jnp.sum(part, 0), totals), own
    blocks = -(-count // size)
    # The last block is filled up with a segment that counts nothing.
    rows = jnp.arange(blocks * size).reshape(blocks, size)

    def of_block(sums, block):
        chosen, counts = jnp.minimum(block, count - 1), block < count
        found, own = jax.vmap(of_segment)(*jax.tree.map(lambda x: jnp.asarray(x)[chosen], (local, segments)))
        added = jax.tree.map(lambda part: jnp.tensordot(counts.astype(part.dtype), part, 1), found)
        return jax.tree.map(jnp.add, sums, added), own

    like = jax.eval_shape(of_segment, *jax.tree.map(lambda x: jnp.asarray(x)[0], (local, segments)))[0]
    nothing = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), like)
    totals, own = jax.lax.scan(of_block, nothing, rows)
    return totals, jax.tree.map(lambda part: part.reshape(blocks * size, *part.shape[2:])[:count], own)


def shared_covariance(normal: Normal) -> Float[Array, "shared shared"]:
    """The covariance of the shared unknowns, those of the segments integrated out (Laplace)."""
    reduced = schur(normal, jnp.zeros(()))[0]
    scale = jnp.sqrt(diagonal_scale(jnp.diagonal(reduced)))
    correlation = reduced / scale[:, None] / scale[None, :]
    # A tiny ridge keeps directions that nothing determines finite: their variance comes out huge, as it
    # should.
    found = inverse(correlation + 1e-13 * jnp.eye(len(scale)))
    return found / scale[:, None] / scale[None, :]


def scatter_covariance(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "shared shared"]:
    """The covariance of the shared unknowns by how much the segments disagree about them (the sandwich).

    It holds where residuals within a segment are neither white nor of the size of the noise, as long as the
    segments are independent of each other; it takes many of them.
    """
    solved = schur(normal, jnp.zeros(()))[2]
    pulls = normal.pulls - jnp.einsum("slp,sl->sp", solved, normal.local_gradient)
    count = len(pulls)
    return covariance @ (pulls.T @ pulls) @ covariance * (count / max(count - 1, 1))


def local_variances(
    normal: Normal, covariance: Float[Array, "shared shared"]
) -> Float[Array, "segments local"]:
    """Variances of the unknowns of the segments, those that are shared integrated out."""
    solved, inverses = schur(normal, jnp.zeros(()))[2:]
    shared = jnp.einsum("slp,pq,slq->sl", solved, covariance, solved)
    return jax.vmap(jnp.diagonal)(inverses) + shared


def schur(normal: Normal, damping: Float[Array, ""]):
    """The damped shared block without the segments, its gradient, and what back substitution needs."""
    local = normal.local + damping * jax.vmap(jnp.diag)(diagonal_scale(jax.vmap(jnp.diagonal)(normal.local)))
    inverses = inverse_of_blocks(local)
    solved = jnp.einsum("sij,sjp->sip", inverses, normal.mixed)
    shared = normal.shared + damping * jnp.diag(diagonal_scale(jnp.diagonal(normal.shared)))
    reduced = shared - jnp.einsum("slp,slq->pq", normal.mixed, solved)
    gradient = normal.shared_gradient - jnp.einsum("slp,sl->p", solved, normal.local_gradient)
    return reduced, gradient, solved, inverses


def diagonal_scale(diagonal: Array) -> Array:
    """Marquardt's scaling, kept from zero for unknowns that the data do not touch."""
    return jnp.maximum(diagonal, 1e-10)
