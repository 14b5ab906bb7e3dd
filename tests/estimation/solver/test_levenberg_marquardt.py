"""Least squares with an arrow-shaped Hessian against the dense problem, solved by NumPy and SciPy."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares, lsq_linear

from carom.estimation.solver.levenberg_marquardt import Bounds, fit_local, minimise
from carom.estimation.solver.normal_equations import (
    Normal,
    Parameters,
    Prior,
    local_variances,
    normal_equations,
    scatter_covariance,
    shared_covariance,
)

pytestmark = pytest.mark.usefixtures("float64")

SHARED, LOCAL, SEGMENTS, SAMPLES = 4, 3, 5, 6


class Linear(NamedTuple):
    """Data of r = A x + B y − c, stacked over segments; the last rows stand for what is not measured."""

    by_shared: np.ndarray
    by_local: np.ndarray
    value: np.ndarray


def linear_residuals(shared, local, data):
    residual = data.by_shared @ shared + data.by_local @ local - data.value
    return residual[:-2].reshape(SAMPLES, 2, 2), residual[-2:]


class Beliefs(NamedTuple):
    """Gaussian priors, and rows C x − d of the shared parameters."""

    shared_mean: np.ndarray
    shared_precision: np.ndarray
    local_mean: np.ndarray
    local_precision: np.ndarray
    matrix: np.ndarray
    target: np.ndarray

    def prior(self) -> Prior:
        return Prior(*self[:4], lambda shared: self.matrix @ shared - self.target)


def no_beliefs(shared, local) -> Beliefs:
    nothing = np.zeros(shared)
    return Beliefs(nothing, nothing, np.zeros(local), np.zeros(local), np.zeros((3, shared)), np.zeros(3))


class Case(NamedTuple):
    """A random linear problem, and the same as one dense matrix with the priors as further rows."""

    data: Linear
    beliefs: Beliefs
    matrix: np.ndarray
    target: np.ndarray


def random_case(seed, *, priors=True) -> Case:
    random = np.random.default_rng(seed)
    rows = SAMPLES * 4 + 2
    data = Linear(
        random.normal(size=(SEGMENTS, rows, SHARED)),
        random.normal(size=(SEGMENTS, rows, LOCAL)) * 10 ** random.uniform(-1, 1, LOCAL),
        random.normal(size=(SEGMENTS, rows)),
    )
    beliefs = no_beliefs(SHARED, (SEGMENTS, LOCAL))
    if priors:
        beliefs = Beliefs(
            random.normal(size=SHARED),
            random.uniform(0, 5, SHARED),
            random.normal(size=(SEGMENTS, LOCAL)),
            random.uniform(0, 5, (SEGMENTS, LOCAL)),
            random.normal(size=(3, SHARED)),
            random.normal(size=3),
        )
    size = SHARED + SEGMENTS * LOCAL
    matrix = np.zeros((SEGMENTS, rows, size))
    matrix[..., :SHARED] = data.by_shared
    for s in range(SEGMENTS):
        matrix[s, :, SHARED + s * LOCAL : SHARED + (s + 1) * LOCAL] = data.by_local[s]
    mean, precision = (
        np.concatenate([shared, local.ravel()]) for shared, local in (beliefs[:3:2], beliefs[1:4:2])
    )
    further = np.pad(beliefs.matrix, ((0, 0), (0, size - SHARED)))
    return Case(
        data,
        beliefs,
        np.concatenate([matrix.reshape(-1, size), np.diag(np.sqrt(precision)), further]),
        np.concatenate([data.value.ravel(), np.sqrt(precision) * mean, beliefs.target]),
    )


def random_start(seed, bounds=None) -> Parameters:
    random = np.random.default_rng(seed)
    shared = random.normal(size=SHARED) * 3
    if bounds is not None:
        shared = np.clip(shared, bounds.low, bounds.high)
    return Parameters(jnp.asarray(shared), jnp.asarray(random.normal(size=(SEGMENTS, LOCAL)) * 3))


@partial(jax.jit, static_argnames=("residuals", "iterations"))
def solve_within(residuals, start, data, beliefs, bounds, *, iterations=100):
    prior = jax.tree.map(jnp.asarray, beliefs).prior()
    of_first = jax.tree.map(lambda x: x[0], (start.local, data))
    channels = jax.eval_shape(residuals, start.shared, *of_first)[0].shape[1]
    return minimise(
        residuals, start, data, prior, bounds,
        channels=channels, max_iterations=iterations, tolerance=1e-14,
    )  # fmt: skip


def solve(residuals, start, data, beliefs, **options):
    infinite = jnp.full_like(start.shared, jnp.inf)
    return solve_within(residuals, start, data, beliefs, Bounds(-infinite, infinite), **options)


@partial(jax.jit, static_argnames="residuals")
def equations(residuals, parameters, data, beliefs):
    return normal_equations(residuals, parameters, data, jax.tree.map(jnp.asarray, beliefs).prior())


covariance_of, scatter_of = jax.jit(shared_covariance), jax.jit(scatter_covariance)


def flat(parameters: Parameters) -> np.ndarray:
    return np.concatenate([parameters.shared, np.ravel(parameters.local)])


@pytest.mark.parametrize("priors", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_linear_problems(seed, priors):
    case = random_case(seed, priors=priors)
    found = solve(linear_residuals, random_start(seed), case.data, case.beliefs)
    expected = np.linalg.lstsq(case.matrix, case.target)[0]
    np.testing.assert_allclose(flat(found.parameters), expected, rtol=1e-6, atol=1e-6)
    residual = case.matrix @ expected - case.target
    np.testing.assert_allclose(found.cost, 0.5 * np.sum(residual**2), rtol=1e-12)
    # The sums of squares are those of the measurements alone, by segment and channel.
    rows = residual[: SEGMENTS * (SAMPLES * 4 + 2)].reshape(SEGMENTS, -1)[:, :-2]
    channels = np.sum(rows.reshape(SEGMENTS, SAMPLES, 2, 2) ** 2, axis=(1, 3))
    np.testing.assert_allclose(found.normal.squares, channels, rtol=1e-5)


@partial(jax.jit, static_argnames=("residuals", "iterations"))
def fitted_local(residuals, parameters, data, beliefs, *, iterations):
    return fit_local(
        residuals, parameters, data, jax.tree.map(jnp.asarray, beliefs).prior(), iterations=iterations
    )


@pytest.mark.parametrize("seed", range(4))
def test_segments_settle_where_the_shared_unknowns_leave_them(seed):
    case = random_case(seed)
    start = random_start(seed)
    found = fitted_local(linear_residuals, start, case.data, case.beliefs, iterations=4)
    given = case.target - case.matrix[:, :SHARED] @ np.asarray(start.shared)
    expected = np.linalg.lstsq(case.matrix[:, SHARED:], given)[0]
    np.testing.assert_allclose(np.ravel(found), expected, rtol=1e-6, atol=1e-6)


def test_a_segment_led_astray_returns_to_its_first_guess():
    """r = y³ − 3y − c has a minimum of r² near y = 1 that is none of the problem's, and a root below −2."""

    def residuals(shared, local, data):
        return (local**3 - 3 * local - data + shared[0])[:, None, None], jnp.zeros((0,))

    beliefs = no_beliefs(1, (2, 1))._replace(local_mean=np.full((2, 1), -2.5))
    astray = Parameters(jnp.zeros(1), jnp.full((2, 1), 1.1))
    data = jnp.array([[-4.0], [-6.0]])
    found = fitted_local(residuals, astray, data, beliefs, iterations=8)
    np.testing.assert_allclose(found**3 - 3 * found, data, atol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_active_bounds(seed):
    """Boxes that the free solution lies outside of: the others move as if the clamped ones were given."""
    case = random_case(seed)
    random = np.random.default_rng(seed)
    free = np.linalg.lstsq(case.matrix, case.target)[0][:SHARED]
    outside = random.permuted([True, True, False, False]) * random.choice([-1, 1], SHARED)
    width = random.uniform(0.1, 1, SHARED)
    low = np.where(outside == 0, -np.inf, free + outside * 0.3 - (outside < 0) * width)
    high = np.where(outside == 0, np.inf, free + outside * 0.3 + (outside > 0) * width)
    bounds = Bounds(jnp.asarray(low), jnp.asarray(high))
    found = solve_within(linear_residuals, random_start(seed, bounds), case.data, case.beliefs, bounds)
    local = np.full(SEGMENTS * LOCAL, np.inf)
    box = (np.concatenate([low, -local]), np.concatenate([high, local]))
    expected = lsq_linear(case.matrix, case.target, bounds=box, method="bvls", tol=1e-15)
    assert np.any(expected.active_mask)
    np.testing.assert_allclose(flat(found.parameters), expected.x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-10)


DECAYS, TIMES = 6, np.linspace(0, 3, 15)


def decay_residuals(shared, local, data):
    """a exp(−k t) + c + b sin(ωt) with k and ω shared, in units of the noise."""
    rate, frequency = shared
    height, level, wave = local
    value = height * jnp.exp(-rate * data["time"]) + level + wave * jnp.sin(frequency * data["time"])
    return ((value - data["value"]) / 0.1)[:, None, None], jnp.zeros((0,))


def random_decays(seed):
    random = np.random.default_rng(seed)
    shared = np.array([random.uniform(0.5, 2), random.uniform(2, 4)])
    local = random.uniform(0.5, 2, (DECAYS, 3))
    exact = np.stack(
        [a * np.exp(-shared[0] * TIMES) + c + b * np.sin(shared[1] * TIMES) for a, c, b in local]
    )
    data = {"time": np.tile(TIMES, (DECAYS, 1)), "value": exact + 0.1 * random.normal(size=exact.shape)}
    start = np.concatenate([shared * random.uniform(0.8, 1.2, 2), np.ones(3 * DECAYS)])
    return data, start


NO_BELIEFS = no_beliefs(2, (DECAYS, 3))


def parameters_of(vector) -> Parameters:
    return Parameters(jnp.asarray(vector[:2]), jnp.asarray(vector[2:].reshape(DECAYS, 3)))


@pytest.mark.parametrize(
    ("seed", "highest_rate"), [(0, np.inf), (1, np.inf), (2, np.inf), (3, 0.4), (4, 0.4)]
)
def test_decays_with_a_shared_rate(seed, highest_rate):
    """A nonlinear problem by SciPy; with a bound below the true rate, too."""
    data, start = random_decays(seed)
    start[0] = min(start[0], highest_rate)

    def dense(x):
        return np.concatenate(
            [
                (a * np.exp(-x[0] * TIMES) + c + b * np.sin(x[1] * TIMES) - value) / 0.1
                for (a, c, b), value in zip(x[2:].reshape(-1, 3), data["value"], strict=True)
            ]
        )

    # SciPy wants to begin strictly inside.
    inside = start - np.eye(len(start))[0] * 1e-3
    box = (-np.inf, np.where(np.arange(len(start)) == 0, highest_rate, np.inf))
    expected = least_squares(dense, inside, bounds=box, xtol=1e-15, ftol=1e-15, gtol=1e-12)
    bounds = Bounds(jnp.full(2, -jnp.inf), jnp.array([highest_rate, jnp.inf]))
    found = solve_within(decay_residuals, parameters_of(start), data, NO_BELIEFS, bounds)
    np.testing.assert_allclose(found.cost, expected.cost, rtol=1e-8)
    np.testing.assert_allclose(flat(found.parameters), expected.x, rtol=1e-4, atol=1e-5)
    assert found.iterations < 100


@pytest.mark.parametrize("seed", range(4))
def test_covariance(seed):
    """That of the dense Hessian Jᵀ J, whatever the point."""
    case = random_case(seed)
    normal = equations(linear_residuals, random_start(seed), case.data, case.beliefs)
    hessian = case.matrix.T @ case.matrix
    covariance = np.linalg.inv(hessian)[:SHARED, :SHARED]
    np.testing.assert_allclose(covariance_of(normal), covariance, rtol=1e-9, atol=1e-12)


def test_covariance_by_simulation():
    """The spread of estimates over repeated noise is the covariance that the solution states."""
    case = random_case(0, priors=False)
    noise = np.random.default_rng(0).normal(size=(2000, *case.data.value.shape))

    def estimate(value):
        data = case.data._replace(value=value)
        return solve(linear_residuals, random_start(0), data, case.beliefs).parameters.shared

    estimates = np.asarray(jax.vmap(estimate)(jnp.asarray(noise)))
    normal = equations(linear_residuals, random_start(0), case.data, case.beliefs)
    stated = np.asarray(covariance_of(normal))
    scale = np.sqrt(np.diagonal(stated))
    np.testing.assert_allclose(
        np.cov(np.asarray(estimates).T) / np.outer(scale, scale), stated / np.outer(scale, scale), atol=0.12
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_segments_does_not_matter(seed):
    data, start = random_decays(seed)
    order = np.random.default_rng(seed).permutation(DECAYS)
    start = parameters_of(start)
    one = solve(decay_residuals, start, data, NO_BELIEFS)
    mixed = {name: values[order] for name, values in data.items()}
    other = solve(decay_residuals, start._replace(local=start.local[order]), mixed, NO_BELIEFS)
    np.testing.assert_allclose(one.cost, other.cost, rtol=1e-10)
    np.testing.assert_allclose(one.parameters.shared, other.parameters.shared, rtol=1e-6)
    np.testing.assert_allclose(one.parameters.local[order], other.parameters.local, rtol=1e-6)
    covariances = [np.asarray(covariance_of(found.normal)) for found in (one, other)]
    np.testing.assert_allclose(*covariances, rtol=1e-6)


def test_a_batch_of_problems_is_each_by_itself():
    """One that is done waits for the others under `vmap`, unchanged."""
    problems = [random_decays(seed) for seed in range(3)]
    starts = [parameters_of(start) for _, start in problems]
    data = [data for data, _ in problems]
    together = [jax.tree.map(lambda *x: jnp.stack(x), *group) for group in (starts, data)]
    found = jax.vmap(lambda start, data: solve(decay_residuals, start, data, NO_BELIEFS))(*together)
    for index in range(3):
        alone = solve(decay_residuals, starts[index], data[index], NO_BELIEFS)
        np.testing.assert_allclose(found.parameters.shared[index], alone.parameters.shared, rtol=1e-6)
        np.testing.assert_allclose(found.cost[index], alone.cost, rtol=1e-10)


def test_cost_never_rises():
    """From the start to a point on the way to the minimum."""
    data, start = random_decays(7)
    parameters = parameters_of(start)
    costs = [
        float(equations(decay_residuals, parameters, data, NO_BELIEFS).cost),
        *(float(solve(decay_residuals, parameters, data, NO_BELIEFS, iterations=n).cost) for n in (2, 100)),
    ]
    assert costs[0] > costs[1] > costs[2]
    # What is left is noise: half of χ² with so many degrees of freedom.
    freedom = data["value"].size - len(start)
    assert abs(2 * costs[2] - freedom) < 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_start_without_a_cost_is_given_back(bad):
    """It ends at once, with an infinite cost."""
    case, start = random_case(0), random_start(0)
    case.data.value[0, 0] = bad
    found = solve(linear_residuals, start, case.data, case.beliefs)
    assert found.iterations <= 2
    assert not np.isfinite(found.cost)
    np.testing.assert_array_equal(flat(found.parameters), flat(start))


def test_a_cliff_is_not_stepped_over():
    """The logarithm of a negative number is NaN: the search turns back and still finds the minimum."""

    def residuals(shared, local, data):
        return (5 * jnp.log(shared[0]) + local - data)[:, None, None], jnp.zeros((0,))

    beliefs = no_beliefs(1, (2, 1))._replace(local_precision=np.ones((2, 1)))
    start = Parameters(jnp.array([3.0]), jnp.zeros((2, 1)))
    found = solve(residuals, start, jnp.array([[-4.0], [-6.0]]), beliefs)
    # By symmetry the local parameters are ±½ and the shared one fits the mean: 5 log x = −5.
    np.testing.assert_allclose(found.parameters.shared, [np.exp(-1)], rtol=1e-6)
    np.testing.assert_allclose(found.parameters.local, [[0.5], [-0.5]], atol=1e-6)


def test_unknowns_that_nothing_determines_stay():
    """A shared and a local unknown that no residual depends on do not spoil the others."""

    def residuals(shared, local, data):
        return (shared[0] + local[0] - data)[:, None, None], jnp.zeros((0,))

    data = jnp.asarray(np.random.default_rng(0).normal(size=(3, 4)))
    start = Parameters(jnp.array([1.0, 7.0]), jnp.tile(jnp.array([0.0, 5.0]), (3, 1)))
    beliefs = no_beliefs(2, (3, 2))._replace(local_precision=np.tile([1.0, 0.0], (3, 1)))
    found = solve(residuals, start, data, beliefs)
    # Balanced groups: the shared mean is the mean of all, each group shrinks by 4/(4 + 1).
    mean = float(jnp.mean(data))
    np.testing.assert_allclose(found.parameters.shared, [mean, 7.0], rtol=1e-6)
    np.testing.assert_allclose(
        found.parameters.local,
        np.stack([0.8 * (np.mean(data, axis=1) - mean), np.full(3, 5.0)], 1),
        atol=1e-6,
    )


@pytest.mark.parametrize("seed", range(3))
def test_scatter_and_local_variances_by_the_dense_problem(seed):
    """The sandwich of the dense problem, segment by segment, at a point that is no minimum."""
    case = random_case(seed)
    parameters = random_start(seed)
    normal = equations(linear_residuals, parameters, case.data, case.beliefs)
    dense = np.linalg.inv(case.matrix.T @ case.matrix)
    rows = SAMPLES * 4 + 2
    residual = case.matrix @ flat(parameters) - case.target
    segment_gradients = []
    for s in range(SEGMENTS):
        mine = np.arange(s * rows, (s + 1) * rows)
        # The priors of a segment's own parameters belong to it; those of the shared ones to nobody.
        first = SEGMENTS * rows + SHARED + s * LOCAL
        mine = np.concatenate([mine, np.arange(first, first + LOCAL)])
        segment_gradients.append(case.matrix[mine].T @ residual[mine])
    expected = sum(np.outer(dense @ g, dense @ g) for g in segment_gradients) * SEGMENTS / (SEGMENTS - 1)
    covariance = covariance_of(normal)
    np.testing.assert_allclose(
        scatter_of(normal, covariance), expected[:SHARED, :SHARED], rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(
        np.ravel(local_variances(normal, covariance)), np.diagonal(dense)[SHARED:], rtol=1e-6
    )


def test_scatter_holds_where_residuals_of_a_segment_go_together():
    """An offset that the model does not know, other in every segment: the scatter tells of it."""
    random = np.random.default_rng(7)
    segments, samples, tries = 40, 20, 200
    estimates, by_noise, by_scatter = [], [], []
    for _ in range(tries):
        value = 2.0 + 0.5 * random.normal(size=(segments, 1)) + 0.1 * random.normal(size=(segments, samples))
        segment_gradients = -(value - value.mean()).sum(axis=1)[:, None]
        # r = x − y with one shared unknown, at its minimum; the data do not see the segment's own.
        normal = Normal(
            shared=np.full((1, 1), float(segments * samples)),
            mixed=np.zeros((segments, 1, 1)),
            local=np.ones((segments, 1, 1)),
            shared_gradient=segment_gradients.sum(axis=0),
            segment_gradients=segment_gradients,
            local_gradient=np.zeros((segments, 1)),
            cost=np.zeros(()),
            squares=np.zeros(1),
        )
        covariance = np.asarray(covariance_of(normal)) * np.var(value)
        estimates.append(value.mean())
        by_noise.append(covariance[0, 0])
        by_scatter.append(float(scatter_of(normal, covariance_of(normal))[0, 0]))
    true = np.var(estimates)
    np.testing.assert_allclose(np.mean(by_scatter), true, rtol=0.3)
    assert np.mean(by_noise) < 0.2 * true
