"""One round of the recipe `carom` as a compiled program: least squares, then noise and smoothness anew."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.compilation import full_precision
from carom.estimation.parameters.free import (
    Layout,
    Maps,
    Priors,
    free_leaves,
    roughness,
    with_leaves,
    with_values,
)
from carom.estimation.solver.levenberg_marquardt import Bounds, minimise, settle
from carom.estimation.solver.linear_algebra import inverse
from carom.estimation.solver.normal_equations import (
    Prior,
    Unknowns,
    local_variances,
    scatter_covariance,
    shared_covariance,
)
from carom.estimation.solver.segments import Segments
from carom.estimation.solver.sensitivities import segment_motion
from carom.integrators import CDLagrange
from carom.models import Mechanism
from carom.storage.program_cache import CachedFunction
from carom.types import Scalar, Values

MARGIN = 1e-2
"""The share of a step that a prescribed impact keeps from the ends of the time that the data leave it."""
OVERLAP, OVERLAP_OF_MANY = 0.005, 0.3
"""How far, as a share of the noise, a start state may reach into a surface, softly.

Of many short runs some always start at a surface, and if that were hard, none could move."""
ITERATIONS = 12
"""Steps of least squares between two estimates of noise and smoothness."""
SAMPLES_AT_ONCE, LEAST_AT_ONCE = 640, 8
"""Samples, and segments at least, whose derivatives are worked out at a time: they stay near the processor,
and memory does not grow with them. A recording of the paper's length is worked on as a whole."""
LEAST_SPREAD, GREATEST_SPREAD = 1e-4, 1.0
"""How little and how much restitution may scatter from run to run."""
TELLING = 0.9
"""The share of its prior variance that a restitution keeps where the data say hardly anything of it."""


class Estimate(NamedTuple):
    """What a round starts from and improves."""

    unknowns: Unknowns
    noise: Float[Values, "2"]
    precision: Float[Values, "2"]
    """Of the prior that the force is flat, and that it is straight."""
    spread: Float[Values, "laws"]
    """Standard deviations of restitutions from run to run."""


class Outcome(NamedTuple):
    """An estimate and what is known of it."""

    estimate: Estimate
    log_likelihood: Float[Values, ""]
    covariance: Float[Values, "shared shared"]
    """Of the shared unknowns, the others integrated out."""
    scatter: Float[Values, "shared shared"]
    """The same by how much the segments disagree."""
    local_error: Float[Values, "segments local"]
    """Standard errors of the parameters of the segments."""
    gradient: Float[Values, "shared"]
    """Of the cost; zero but for unknowns that lean on a bound."""

    @classmethod
    def like(cls, estimate: Estimate) -> "Outcome":
        """An outcome of the shapes that improving a batch of estimates gives; its numbers mean nothing."""
        shared, local = estimate.unknowns
        count, size = shared.shape
        square = np.empty((count, size, size))
        return cls(estimate, np.empty(count), square, square, local, shared)


_OUTCOME = Outcome(Estimate(Unknowns(0, 0), 0, 0, 0), 0, 0, 0, 0, 0)  # pyright: ignore[reportArgumentType]
"""The structure of an outcome, which programs from disk do not tell."""


def segment_residuals(
    layout: Layout,
    maps: Maps,
    template: Mechanism,
    hinge: Scalar,
    noise: Float[Values, "2"],
    most: int | None,
    shared: Float[Values, "shared"],
    local: Float[Values, "local"],
    data: Segments,
) -> tuple[Float[Array, "samples channels residuals"], Float[Array, "others"]]:
    """Residuals of one segment over the noise; and how far prescribed impacts lie outside of their time."""
    start = layout.start(jnp.asarray(local))
    leaves = free_leaves(layout, maps, template, shared, local)
    motion, instants = segment_motion(layout, template, leaves, start, data.duration, data.modes, most=most)
    predicted = jnp.stack([motion.position, motion.velocity], axis=1)
    residual = jnp.where(data.known, predicted - data.observed, 0.0) / noise[None, :, None, None]
    # Where no sample counts, nothing else does.
    seen = jnp.any(data.known, axis=(1, 2, 3))
    early = jnp.maximum(data.earliest + MARGIN - instants, 0)
    late = jnp.maximum(instants - data.latest + MARGIN, 0)
    timing = jnp.where(seen[1:, None], (late - early) / hinge, 0).ravel()
    if isinstance(template.stepper, CDLagrange):  # whose bodies overlap for a step at every impact
        return residual.reshape(len(residual), 2, -1), timing
    soft = OVERLAP if most is None else OVERLAP_OF_MANY
    gap = with_leaves(layout, template, leaves).geometry.gap(start.position)
    overlap = jnp.where(seen[0], jnp.minimum(gap, 0) / (soft * noise[0]), 0)
    return residual.reshape(len(residual), 2, -1), jnp.concatenate([timing, overlap])


@partial(jax.jit, static_argnames=("layout", "most", "iterations"))
@full_precision()
def segment_costs(
    layout: Layout,
    maps: Maps,
    template: Mechanism,
    hinge: Scalar,
    estimate: Estimate,
    segments: Segments,
    others: Float[Values, "segments local"] | None = None,
    *,
    most: int | None = None,
    iterations: int = 8,
) -> tuple[Float[Array, "segments"], Float[Array, "segments local"]]:
    """Half the sum of squares of every segment, its own parameters at their best and the shared as they are.

    Also its own parameters. `others` are further start values of them.
    """
    unknowns, noise = estimate[:2]
    residuals = partial(segment_residuals, layout, maps, template, hinge, noise, most)
    nothing = jnp.zeros_like(unknowns.shared)
    first = jnp.asarray(unknowns.local)
    if iterations:
        second = first if others is None else jnp.asarray(others)
        prior = Prior(nothing, nothing, second, jnp.zeros_like(first), lambda shared: nothing[:1])
        first = settle(residuals, unknowns, segments, prior, iterations=iterations)

    def cost(local, data):
        measured, others = residuals(unknowns.shared, local, data)
        return 0.5 * (jnp.sum(measured**2) + jnp.sum(others**2))

    return jax.vmap(cost)(first, segments), first


def improver(layout: Layout, most: int | None) -> CachedFunction:
    """`improve` for many estimations of one shape at once: of the hinge and the stacked rest."""

    def together(hinge, *batch):
        return jax.vmap(partial(improve, layout, hinge, most=most))(*batch)

    return CachedFunction(together, _OUTCOME, ("improve", layout, most))


def improve(
    layout: Layout,
    hinge: Scalar,
    template: Mechanism,
    maps: Maps,
    priors: Priors,
    estimate: Estimate,
    segments: Segments,
    prior_local: tuple[Array, Array],
    *,
    most: int | None = None,
) -> Outcome:
    """Least squares, then noise, smoothness and the scatter of restitution anew.

    Arguments:
        hinge: how softly prescribed impacts are kept within their time, as a share of a step.
        prior_local: means and precisions of the parameters of the segments.
        most: as in `segment_motion`.
    """
    unknowns, noise, precision, spread = estimate
    local_mean, local_precision = prior_local
    local_precision = local_precision.at[:, layout.pooled_slice].set(1 / spread[None] ** 2)
    weights = layout.weights
    counts = jnp.sum(jnp.asarray(segments.known, float), axis=(0, 1, 3, 4))

    residuals = partial(segment_residuals, layout, maps, template, hinge, noise, most)
    mean, precisions = (jnp.asarray(part) for part in (priors.mean, priors.precision))

    def rough(shared):
        return roughness(layout, with_values(layout, maps, template, shared), priors.collocation)

    def rough_residuals(shared):
        return (jnp.sqrt(precision)[:, None] * rough(shared)).ravel()

    prior = Prior(mean, precisions, local_mean, local_precision, rough_residuals)
    solution = minimise(
        residuals,
        unknowns,
        segments,
        prior,
        Bounds(jnp.asarray(priors.lower), jnp.asarray(priors.upper)),
        channels=len(noise),
        size=at_once(segments.observed.shape[1]),
        max_iterations=ITERATIONS,
    )
    covariance = shared_covariance(solution.normal)
    # MacKay: the strength of a prior follows from how much of what it restrains the data determine.
    fitted = solution.unknowns.shared
    bends = jax.jacfwd(rough)(fitted)
    before = inverse(jnp.diag(precisions) + jnp.einsum("g,gip,giq->pq", precision, bends, bends))
    allowed, left = (jnp.einsum("gip,pq,giq->g", bends, c, bends) for c in (before, covariance))
    determined = jnp.clip(precision * (allowed - left), 1e-2, None)
    wanted = determined / jnp.maximum(jnp.sum(rough(fitted) ** 2, axis=1), 1e-300)
    # The fixed point is approached by ever smaller steps; longer ones get there sooner, too long ones swing.
    new_precision = jnp.clip(precision * jnp.clip(wanted / precision, 1e-2, 1e2) ** 1.5, 1e-4, 1e8)
    spent = (
        weights
        - jnp.sum(precisions[:weights] * jnp.diagonal(covariance)[:weights])
        - jnp.sum(precision * left)
    )
    spent = jnp.clip(spent, min(1.0, weights), weights)
    squares = solution.normal.squares * noise**2
    used = spent + unknowns.local.size + (unknowns.shared.size - weights)
    freedom = jnp.maximum(1 - used / jnp.sum(counts), 0.2)
    variance = squares / jnp.maximum(counts * freedom, 1.0)
    new_noise = jnp.where(counts > 0, jnp.maximum(jnp.sqrt(variance), jnp.asarray(priors.resolution)), noise)
    variances = local_variances(solution.normal, covariance)
    new_spread, scattered = _spread(
        solution.unknowns.local[:, layout.pooled_slice], variances[:, layout.pooled_slice], spread
    )
    likelihood = -jnp.sum(counts * jnp.log(new_noise)) - jnp.sum(scattered * jnp.log(new_spread))
    return Outcome(
        Estimate(solution.unknowns, new_noise, new_precision, new_spread),
        likelihood,
        covariance,
        scatter_covariance(solution.normal, covariance),
        jnp.sqrt(jnp.maximum(variances, 0)),
        solution.normal.shared_gradient,
    )


def at_once(length: int) -> int:
    """How many segments of so many samples are worked on at a time."""
    return max(LEAST_AT_ONCE, SAMPLES_AT_ONCE // length)


def _spread(
    away: Float[Values, "segments laws"],
    variance: Float[Values, "segments laws"],
    spread: Float[Values, "laws"],
) -> tuple[Float[Array, "laws"], Float[Array, "laws"]]:
    """How widely restitutions scatter about what holds for all runs, and how many of them say so.

    The expected square of what each adds (EM): MacKay's faster rule falls to zero, and stays there, where the
    first rounds explain little. A segment without an impact says nothing, and one alone does not scatter.
    """
    telling = variance < TELLING * spread[None] ** 2
    count = jnp.sum(telling, axis=0).astype(away.dtype)
    expected = jnp.sum(jnp.where(telling, away**2 + variance, 0), axis=0) / jnp.maximum(count, 1)
    wanted = jnp.clip(jnp.sqrt(expected), LEAST_SPREAD, GREATEST_SPREAD)
    return jnp.where(count > 1, wanted, spread), count
