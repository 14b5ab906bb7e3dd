"""Where impacts are slow, endless or simultaneous: clipped derivatives, rest on surfaces, no sinking."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carom.integrators import constraint_exact_step
from carom.mechanics import ContactGeometry, Masses, Pair, Wall
from carom.types import State
from tests.integrators.impact_problems import (
    GRAVITY,
    ball_batch,
    ball_derivative,
    ball_flow,
    ball_step,
    pair_derivative,
    pair_step,
)

H = 0.1
NO_FORCE = (np.ones(2), np.zeros(2), np.zeros(2))


@pytest.mark.parametrize(("speed", "clipped"), [(5e-4, True), (2e-3, False)])
def test_grazing_derivative_is_clipped_and_flagged(speed, clipped):
    """Two equal balls without forces: ∂q₁⁺/∂q₁ = 1 + (v₁⁻ − v₁⁺) ∂t_c/∂q₁ with ∂t_c/∂q₁ = −1/u, u ≥ 10⁻³."""
    y = np.array([0.0, -0.5 * H * speed, 0.0, speed])
    state, report = pair_step(y, H, 1.0, *NO_FORCE)
    np.testing.assert_allclose(state, [0.5 * H * speed, 0.0, speed, 0.0], atol=1e-15)
    assert bool(report.grazing) == clipped
    # Gap q₁ − q₂ closes at rate −speed, so ∂t_c/∂q₁ = 1/speed, and v₁ jumps from 0 to speed.
    slope = 1 / max(speed, 1e-3)
    derivative = np.asarray(pair_derivative(y, H, 1.0, *NO_FORCE))
    np.testing.assert_allclose(derivative[0, :2], [1 - speed * slope, speed * slope], atol=1e-9)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_derivative_is_finite_everywhere(seed):
    """In flight, into the floor, on it, leaving it, just above it, at rest."""
    random = np.random.default_rng(seed)
    height = random.choice([0.0, 1e-16, 1e-9, random.uniform(0, 0.5)])
    speed = random.choice([0.0, 1e-12, -1e-12, -1e-4, random.normal()])
    e = random.choice([0.0, 1.0, random.uniform()])
    derivative = np.asarray(ball_derivative(np.array([height, speed]), H, e))
    assert np.isfinite(derivative).all()
    reached, _ = ball_step(np.array([height, speed]), H, e)
    assert np.isfinite(np.asarray(reached)).all()
    assert (
        reached[0] >= -1e-9 * H
    )  # a contact that moves by less than the rest speed of 10⁻⁹ counts as closed


def test_gradient_through_rest_is_finite_in_reverse():
    """A dropped ball with e = ½ rests after 1.2 s; the derivative of where it is after 2 s, backwards."""

    @jax.jit
    @jax.grad
    def sensitivity(y, restitution):
        def advance(y, _):
            return ball_flow(y, H, restitution)[0], None

        return jnp.sum(jax.lax.scan(advance, y, length=20)[0])

    assert np.isfinite(np.asarray(sensitivity(jnp.array([0.8, 0.0]), 0.5))).all()
    # With e = 1 it still bounces.
    assert np.isfinite(np.asarray(sensitivity(jnp.array([0.8, 0.0]), 1.0))).all()


@pytest.mark.parametrize("restitution", [0.0, 0.5, 0.9])
def test_the_zeno_point_ends_at_rest(restitution):
    y = jnp.array([1.0, 0.0])
    fall = np.sqrt(2 / GRAVITY)
    rest = fall * (1 + restitution) / (1 - restitution)
    touched = []
    for _ in range(int(rest / H) + 10):
        y, report = ball_step(y, H, restitution)
        touched.append(bool(report.contact[0]))
        assert y[0] >= -1e-14
    np.testing.assert_allclose(y, [0, 0], atol=1e-14)
    assert all(touched[-8:])
    assert not bool(report.exhausted)


def test_a_batch_with_mixed_impacts():
    """In one vmap: in flight, one bounce, several bounces, at rest, leaving; each as if alone."""
    starts = np.array([[1.0, 0.0], [0.1, -3.0], [0.0, 0.2], [0.0, 0.0], [0.0, 2.0], [1e-3, -0.01]])
    together, reports = ball_batch(starts, H, 0.7)
    for start, reached, contact in zip(starts, together, reports.contact, strict=True):
        alone, report = ball_step(start, H, 0.7)
        np.testing.assert_allclose(reached, alone, atol=1e-14)
        assert contact == report.contact
    np.testing.assert_array_equal(reports.contact[:, 0], [False, True, True, True, False, True])


def settle(geometry, masses, position, *, steps, restitution=0.5):
    """Let bodies fall under gravity for `steps` steps; the last state, the last report, the least gap."""
    down = np.zeros(position.shape)
    down[:, -1] = -GRAVITY
    weight = jnp.asarray(down * np.asarray(masses)[:, None])

    @jax.jit
    def fall(start):
        def advance(state, _):
            state, report = constraint_exact_step(
                state,
                0.02,
                inertia=Masses(jnp.asarray(masses)),
                force=lambda q: weight,
                geometry=geometry,
                restitution=jnp.full((len(geometry.candidates),), restitution),
            )
            return state, (geometry.gap(state.position), report.contact)

        return jax.lax.scan(advance, start, length=steps)

    state, (gaps, contacts) = fall(State(jnp.asarray(position), jnp.zeros(position.shape)))
    return state, np.asarray(contacts[-1]), float(gaps.min())


@pytest.mark.parametrize("slope", [45, 70])
def test_ball_comes_to_rest_in_a_corner(slope):
    """Two surfaces hold it together; each alone would let it slide or throw it off."""
    sine, cosine = float(np.sin(np.radians(slope))), float(np.cos(np.radians(slope)))
    corner = ContactGeometry(1, 2, (Wall(0, (sine, cosine)), Wall(0, (-sine, cosine))))
    state, contact, least_gap = settle(corner, [2.0], np.array([[0.1, 1.0]]), steps=600)
    np.testing.assert_allclose(state.position, [[0, 0]], atol=1e-9)
    np.testing.assert_allclose(state.velocity, [[0, 0]], atol=1e-9)
    assert contact.all()
    assert least_gap > -1e-10


def test_stack_of_balls_does_not_sink():
    """The lower ball carries the upper one, which nothing but that ball keeps from falling."""
    stack = ContactGeometry(2, 1, (Wall(0, (1.0,)), Pair(1, 0, offset=1.0)))
    at_rest, contact, least_gap = settle(stack, [1.0, 3.0], np.array([[0.0], [1.0]]), steps=100)
    np.testing.assert_allclose(at_rest.position, [[0], [1]], atol=1e-13)
    assert contact.all()
    assert least_gap > -1e-13
    _, _, least_gap = settle(stack, [1.0, 3.0], np.array([[0.5], [2.0]]), steps=300)
    assert least_gap > -1e-9


def test_without_candidates_it_is_velocity_verlet():
    state, report = constraint_exact_step(
        State(jnp.ones((1, 1)), jnp.zeros((1, 1))),
        H,
        inertia=Masses(jnp.ones(1)),
        force=lambda q: -q,
        geometry=ContactGeometry(1, 1),
        restitution=jnp.zeros(0),
    )
    position = 1 - 0.5 * H**2
    np.testing.assert_allclose(state.position, [[position]], rtol=1e-15)
    np.testing.assert_allclose(state.velocity, [[-0.5 * H * (1 + position)]], rtol=1e-15)
    assert not report.exhausted
