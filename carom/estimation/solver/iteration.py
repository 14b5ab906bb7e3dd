"""One round of the estimation as a compiled program: least squares, then noise, smoothness and scatter.

The hyperparameters are updated by MacKay's evidence approximation (Bayesian Interpolation, 1992) and, for the
scatter between runs, by expectation maximisation.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.estimation.parameters.free import (
    Layout,
    Maps,
    Priors,
    free_leaves,
    roughness,
    with_leaves,
    with_values,
)
from carom.estimation.solver.levenberg_marquardt import Bounds, fit_local, minimise
from carom.estimation.solver.linear_algebra import inverse
from carom.estimation.solver.normal_equations import (
    Parameters,
    Prior,
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
"""Distance of a prescribed impact from the ends of its time interval, as a fraction of a step."""
OVERLAP, OVERLAP_OF_MANY = 0.005, 0.3
"""Standard deviation of the overlap of start states with surfaces, as a fraction of the noise.

Among many short runs some always start at a surface; a hard constraint there would stall the iteration."""
ITERATIONS = 12
"""Levenberg–Marquardt iterations per round."""
SAMPLES_PER_BLOCK, MIN_SEGMENTS_PER_BLOCK = 640, 8
"""Size of the blocks of segments whose Jacobians are evaluated at once: they fit into the processor's cache,
and memory does not grow with the recording. A recording of the paper's length is a single block."""
MIN_SPREAD, MAX_SPREAD = 1e-4, 1.0
"""Bounds on the standard deviations from impact to impact and from run to run, relative to the prior's."""
ODD, WIDER = 0.02, 5.0
"""Prior probability that an impact is odd (mistaken, disturbed), and how much wider such impacts scatter."""
FREEDOM = 50.0
"""Degrees of freedom of Student's t for the noise of segments: as many samples tell what it is in one."""
EPSILON = 1e-12
"""Least posterior variance of a deviation, relative to the prior's."""
UNINFORMATIVE = 0.9
"""Ratio of posterior to prior variance above which the data hardly determine a restitution."""


class Estimate(NamedTuple):
    """Parameters and hyperparameters, which every round improves."""

    parameters: Parameters
    noise: Float[Values, "2"]
    """Standard deviations of positions and velocities."""
    precision: Float[Values, "2"]
    """Precisions of the priors that the learned force is uniform, and that it is linear."""
    spread: Float[Values, "pools"]
    """Standard deviations of deviations from impact to impact and from run to run."""
    weight: Float[Values, "segments 2"]
    """Of the squared residuals of every segment: less than 1 where they are larger than usual."""


class Outcome(NamedTuple):
    """An estimate with its likelihood and covariances."""

    estimate: Estimate
    log_likelihood: Float[Values, ""]
    covariance: Float[Values, "shared shared"]
    """Of the shared parameters, the local ones marginalised (Laplace)."""
    scatter: Float[Values, "shared shared"]
    """The same by the sandwich estimator."""
    local_error: Float[Values, "segments local"]
    """Standard errors of the local parameters."""
    gradient: Float[Values, "shared"]
    """Of the cost; nonzero only for parameters at an active bound."""

    @classmethod
    def like(cls, estimate: Estimate) -> "Outcome":
        """An uninitialised outcome of the shapes that a batch of estimates yields."""
        shared, local = estimate.parameters
        count, size = shared.shape
        square = np.empty((count, size, size))
        return cls(estimate, np.empty(count), square, square, local, shared)


_OUTCOME = Outcome(Estimate(Parameters(0, 0), 0, 0, 0, 0), 0, 0, 0, 0, 0)  # pyright: ignore[reportArgumentType]
"""The tree structure of an outcome, which programs loaded from disk do not store."""


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
    *,
    by_gap: bool = False,
) -> tuple[Float[Array, "samples channels residuals"], Float[Array, "others"]]:
    """Residuals of one segment over the noise; and penalties for mistimed impacts and initial overlap."""
    start = layout.start(jnp.asarray(local))
    leaves = free_leaves(layout, maps, template, shared, local)
    motion, instants = segment_motion(
        layout, template, leaves, start, data.duration, data.modes, data.impact, most=most, by_gap=by_gap
    )
    predicted = jnp.stack([motion.position, motion.velocity], axis=1)
    residual = jnp.where(data.known, predicted - data.observed, 0.0) / noise[None, :, None, None]
    # Padded and masked samples exert no penalty either.
    used = jnp.any(data.known, axis=(1, 2, 3))
    early = jnp.maximum(data.earliest + MARGIN - instants, 0)
    late = jnp.maximum(instants - data.latest + MARGIN, 0)
    timing = jnp.where(used[1:, None], (late - early) / hinge, 0).ravel()
    if isinstance(template.stepper, CDLagrange):  # its bodies overlap for a step at every impact
        return residual.reshape(len(residual), 2, -1), timing
    gap = with_leaves(layout, template, leaves).geometry.gap(start.position)
    soft = OVERLAP if by_gap or most is None or most == len(gap) else OVERLAP_OF_MANY
    overlap = jnp.where(used[0], jnp.minimum(gap, 0) / (soft * noise[0]), 0)
    return residual.reshape(len(residual), 2, -1), jnp.concatenate([timing, overlap])


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
    """Half the sum of squares of every segment, minimised over its local parameters; and these parameters.

    Arguments:
        others: further initial values of the local parameters.
        iterations: of the minimisation; with 0 the local parameters stay as they are.
    """

    def minimised(maps, template, hinge, estimate, segments, others):
        parameters, noise = estimate[:2]
        residuals = partial(segment_residuals, layout, maps, template, hinge, noise, most)
        local = jnp.asarray(parameters.local)
        if iterations:
            # A prior of precision 0 whose mean is a second starting point.
            zero = jnp.zeros_like(parameters.shared)
            prior = Prior(zero, zero, others, jnp.zeros_like(local), lambda shared: zero[:1])
            local = fit_local(residuals, parameters, segments, prior, iterations=iterations)

        def cost(local, data):
            measured, penalties = residuals(parameters.shared, local, data)
            return 0.5 * (jnp.sum(measured**2) + jnp.sum(penalties**2))

        return jax.vmap(cost)(local, segments), local

    others = estimate.parameters.local if others is None else others
    program = CachedFunction(minimised, (0, 0), ("segment costs", layout, most, iterations))
    return program(maps, template, hinge, estimate, segments, others)


def improver(layout: Layout, most: int | None, by_gap: bool = False) -> CachedFunction:
    """`improve` for a batch of estimates: a function of the hinge and of the other arguments, stacked."""

    def improve_batch(hinge, *batch):
        return jax.vmap(partial(improve, layout, hinge, most=most, by_gap=by_gap))(*batch)

    return CachedFunction(improve_batch, _OUTCOME, ("improve", layout, most, by_gap))


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
    by_gap: bool = False,
) -> Outcome:
    """Least squares, followed by updates of the noise, the smoothness and the scatter of restitution.

    Arguments:
        layout: which entries of the parameter vectors belong to which field of the mechanism.
        hinge: standard deviation of a prescribed impact beyond its time interval, as a fraction of a step.
        template: the mechanism, with the values of all fields that are not estimated.
        maps: matrices from free values to fields, such as one restitution for all contacts.
        priors: of the shared parameters, with their bounds.
        estimate: the result of the previous round.
        segments: the data.
        prior_local: means and precisions of the local parameters.
        most, by_gap: as in `segment_motion`.
    """
    parameters, noise, precision, spread, importance = estimate
    local_mean, local_precision = prior_local
    expected = jnp.repeat(spread, np.array(layout.pools, int), total_repeat_length=sum(layout.pools))
    deviation = jnp.asarray(parameters.local)[:, layout.pooled_slice]
    # Of runs there are too few to tell the odd ones.
    single = jnp.arange(len(expected)) < sum(layout.impacts)
    weight = jnp.where(single[None], _regularity(deviation / expected[None]), 1.0)
    pooled_precision = weight / expected[None] ** 2
    local_precision = local_precision.at[:, layout.pooled_slice].set(pooled_precision)
    weights = layout.weights
    count = jnp.sum(jnp.asarray(segments.known, float), axis=(1, 3, 4))
    counts = jnp.sum(count, axis=0)
    of_segment = partial(segment_residuals, layout, maps, template, hinge, noise, most, by_gap=by_gap)

    def residuals(shared, local, data):
        segment, importance = data
        measured, others = of_segment(shared, local, segment)
        return measured * jnp.sqrt(importance)[None, :, None], others

    mean, precisions = (jnp.asarray(part) for part in (priors.mean, priors.precision))

    def rough(shared):
        return roughness(with_values(layout, maps, template, shared), priors.collocation)

    def rough_residuals(shared):
        return (jnp.sqrt(precision)[:, None] * rough(shared)).ravel()

    prior = Prior(mean, precisions, local_mean, local_precision, rough_residuals)
    solution = minimise(
        residuals,
        parameters,
        (segments, jnp.asarray(importance)),
        prior,
        Bounds(jnp.asarray(priors.lower), jnp.asarray(priors.upper)),
        channels=len(noise),
        block_size=segments_per_block(segments.observed.shape[1]),
        max_iterations=ITERATIONS,
    )
    covariance = shared_covariance(solution.normal)
    new_precision, effective = _update_precision(
        rough, solution.parameters.shared, covariance, precisions, precision, weights
    )
    # Segments without data, among them those added as padding, cost no degree of freedom.
    with_data = jnp.sum(jnp.any(segments.known, axis=(1, 2, 3, 4)).astype(noise.dtype))
    # Rounding makes small variances beside large ones negative.
    least = EPSILON / pooled_precision
    variances = jnp.maximum(local_variances(solution.normal, covariance)[:, layout.pooled_slice], least)
    # Deviations that their prior determines cost no degree of freedom.
    deviations = jnp.sum(jnp.clip(1 - variances * pooled_precision, 0))
    own = with_data * (layout.local_size - sum(layout.pools)) + deviations
    used = effective + own + (parameters.shared.size - weights)
    freedom = jnp.maximum(1 - used / jnp.sum(counts), 0.2)
    squares = jnp.sum(solution.normal.squares, axis=0)
    measured = jnp.sqrt(squares * noise**2 / jnp.maximum(counts * freedom, 1.0))
    new_noise = jnp.where(counts > 0, jnp.maximum(measured, jnp.asarray(priors.resolution)), noise)
    new_spread = _update_spread(
        layout.pools,
        solution.parameters.local[:, layout.pooled_slice],
        variances,
        weight,
        spread,
        priors.spread,
    )
    # At the estimated noise the squares sum to the degrees of freedom, a constant, which is left out; and so
    # are deviations that the data do not determine.
    marginal = 0.5 * jnp.sum(jnp.log(jnp.minimum(variances * pooled_precision, 1)))
    # Student's t for segments: what the model lacks, or a poor recording, makes the residuals of some larger.
    square = solution.normal.squares / importance * (noise / new_noise)[None] ** 2 / freedom
    larger = (FREEDOM + square) / (FREEDOM + count)
    each = count * jnp.log(new_noise)[None] + 0.5 * (FREEDOM + count) * jnp.log(larger)
    likelihood = marginal - jnp.sum(each)
    return Outcome(
        Estimate(solution.parameters, new_noise, new_precision, new_spread, 1 / larger),
        likelihood,
        covariance,
        scatter_covariance(solution.normal, covariance),
        jnp.sqrt(jnp.maximum(local_variances(solution.normal, covariance), 0)),
        solution.normal.shared_gradient,
    )


def segments_per_block(length: int) -> int:
    """Number of segments of this length whose Jacobians are evaluated at once."""
    return max(MIN_SEGMENTS_PER_BLOCK, SAMPLES_PER_BLOCK // length)


def _update_precision(
    rough: Callable[[Float[Values, "shared"]], Float[Array, "2 points"]],
    fitted: Float[Values, "shared"],
    covariance: Float[Array, "shared shared"],
    precisions: Float[Array, "shared"],
    precision: Float[Values, "2"],
    weights: int,
) -> tuple[Float[Array, "2"], Float[Array, ""]]:
    """Precisions of the smoothness priors by MacKay's rule, and the effective number of network weights.

    The rule: precision = (number of directions that the data determine) / (squared roughness).
    """
    slope = jax.jacfwd(rough)(fitted)
    prior_covariance = inverse(jnp.diag(precisions) + jnp.einsum("g,gip,giq->pq", precision, slope, slope))
    by_prior, variance = (
        jnp.einsum("gip,pq,giq->g", slope, c, slope) for c in (prior_covariance, covariance)
    )
    determined = jnp.clip(precision * (by_prior - variance), 1e-2, None)
    fixed_point = determined / jnp.maximum(jnp.sum(rough(fitted) ** 2, axis=1), 1e-300)
    # Over-relaxation: the plain fixed-point iteration converges slowly; much greater exponents oscillate.
    updated = jnp.clip(precision * jnp.clip(fixed_point / precision, 1e-2, 1e2) ** 1.5, 1e-4, 1e8)
    # Weights that the priors determine cost no degree of freedom.
    effective = (
        weights
        - jnp.sum(precisions[:weights] * jnp.diagonal(covariance)[:weights])
        - jnp.sum(precision * variance)
    )
    return updated, jnp.clip(effective, min(1.0, weights), weights)


def _regularity(deviation: Float[Array, "..."]) -> Float[Array, "..."]:
    """The expected precision of a deviation in units of its standard deviation, relative to a regular one.

    A scale mixture of two normal distributions, by expectation maximisation.
    """
    log_odds = np.log(ODD / (1 - ODD) / WIDER) + 0.5 * deviation**2 * (1 - WIDER**-2)
    odd = jax.nn.sigmoid(log_odds)
    return 1 - odd + odd / WIDER**2


def _update_spread(
    pools: tuple[int, ...],
    deviation: Float[Values, "segments pooled"],
    variance: Float[Values, "segments pooled"],
    weight: Float[Values, "segments pooled"],
    spread: Float[Values, "pools"],
    scale: Float[Values, "pools"],
) -> Float[Array, "pools"]:
    """Standard deviations of deviations by expectation maximisation.

    MacKay's rule is faster, but collapses to zero for good if the first rounds explain little. Segments
    without an impact carry no information, and a single one has no scatter.
    """
    updated, first = [], 0
    for size, known, unit in zip(pools, spread, scale, strict=True):
        columns = slice(first, first + size)
        informative = variance[:, columns] < UNINFORMATIVE * known**2
        count = jnp.sum(informative.astype(spread.dtype))
        squares = weight[:, columns] * (deviation[:, columns] ** 2 + variance[:, columns])
        squares = jnp.where(informative, squares, 0)
        found = jnp.sqrt(jnp.sum(squares) / jnp.maximum(count, 1))
        updated.append(jnp.where(count > 1, jnp.clip(found, MIN_SPREAD * unit, MAX_SPREAD * unit), known))
        first += size
    return jnp.stack(updated) if updated else jnp.asarray(spread)
