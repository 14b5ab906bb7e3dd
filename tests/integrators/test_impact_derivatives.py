"""Derivatives through impacts by e, μ, masses and start, against central differences of fourth order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from carom.integrators import constraint_exact_step, event_driven_motion
from carom.integrators.event_driven.balls import Balls
from carom.mechanics import ContactGeometry, Masses, Pair, Wall
from carom.types import State
from tests.campaign import shortened
from tests.integrators.ball_scenes import box_planes, examples

seeds = st.integers(0, 2**32 - 1)
BODIES, STEPS, H = 3, 12, 0.05
RADII = np.array([0.12, 0.1, 0.14])


def unpack(parameters):
    """e, μ, masses, positions and velocities from one vector."""
    rest = parameters[2 + BODIES :].reshape(2, BODIES, 2)
    return parameters[0], parameters[1], parameters[2 : 2 + BODIES], State(rest[0], rest[1])


def by_events(parameters, *, field):
    """The last state, and what was touched when."""
    e, mu, masses, start = unpack(parameters)
    normals, offsets = box_planes(2)
    gravity = jnp.array([0.0, -2.0]) if field else None
    planes = jnp.asarray(normals), jnp.asarray(offsets)
    solids = tuple((plane,) for plane in range(4))
    balls = Balls(masses, jnp.asarray(RADII), *planes, e, mu, gravity, solids)
    batch = State(start.position[None], start.velocity[None])
    states, report = event_driven_motion(balls, batch, jnp.full(STEPS, H))
    last = jnp.concatenate([states.position[-1].ravel(), states.velocity[-1].ravel()])
    return last, (report.contact, jnp.any(report.grazing))


BOX = ContactGeometry(
    BODIES,
    2,
    tuple(
        Wall(body, normal, offset + RADII[body])
        for body in range(BODIES)
        for normal, offset in (((1.0, 0.0), 0.0), ((0.0, 1.0), 0.0), ((-1.0, 0.0), -1.0), ((0.0, -1.0), -1.0))
    )
    + tuple(Pair(i, j, float(RADII[i] + RADII[j])) for i, j in ((0, 1), (0, 2), (1, 2))),
)


def by_steps(parameters):
    """The same by the constraint-exact step in a field that is not uniform."""
    e, mu, masses, start = unpack(parameters)
    count = len(BOX.candidates)

    def advance(state, _):
        state, report = constraint_exact_step(
            state,
            H,
            inertia=Masses(masses),
            force=lambda q: -masses[:, None] * (2 * (q - 0.4) + jnp.sin(5 * q)),
            geometry=BOX,
            restitution=jnp.full((count,), e),
            friction=jnp.full((count,), mu),
        )
        return state, (report.contact, report.grazing)

    last, (contact, grazing) = jax.lax.scan(advance, start, length=STEPS)
    return jnp.concatenate([last.position.ravel(), last.velocity.ravel()]), (contact, jnp.any(grazing))


def both(function):
    """The function and its forward derivative, compiled."""
    return jax.jit(function), jax.jit(jax.jacfwd(lambda p: function(p)[0]))


MOTIONS = {
    "events on a free table": both(lambda p: by_events(p, field=False)),
    "events under gravity": both(lambda p: by_events(p, field=True)),
    "constraint-exact steps": both(by_steps),
}


def random_parameters(random):
    places = np.array([[0.25, 0.3], [0.7, 0.35], [0.45, 0.75]]) + random.uniform(-0.05, 0.05, (3, 2))
    speeds = random.normal(size=(3, 2))
    laws = [random.uniform(0.4, 0.95), random.uniform(0.05, 0.4)]
    return np.concatenate([laws, random.uniform(0.5, 2, BODIES), places.ravel(), speeds.ravel()])


@pytest.mark.parametrize("name", shortened(MOTIONS, ["events under gravity", "events on a free table"]))
@examples(3)
@given(seed=seeds)
def test_derivatives_of_the_last_state(name, seed):
    """Away from grazing, and where no neighbour makes other impacts: relative error below 1e-6."""
    evaluate, derivative = MOTIONS[name]
    parameters = random_parameters(np.random.default_rng(seed))
    _, (touched, grazing) = evaluate(parameters)
    assume(np.asarray(touched).any() and not grazing)
    delta, columns = 1e-5, []
    for shift in delta * np.eye(len(parameters)):
        values = []
        for factor in (-2, -1, 1, 2):
            value, (contact, _) = evaluate(parameters + factor * shift)
            assume((contact == touched).all())
            values.append(np.asarray(value))
        columns.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * delta))
    expected = np.stack(columns, axis=1)
    found = np.asarray(derivative(parameters))
    # Impacts multiply derivatives: a slow oblique one may be too bent for differences of this size.
    assume(np.abs(expected).max() < 300)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max())


@jax.jit
def line(parameters):
    """Two balls of radius ½ on a line, positions and velocities after 2 s."""
    start = State(parameters[:2][None, :, None], parameters[2:4][None, :, None])
    none = jnp.zeros((0, 1)), jnp.zeros(0)
    balls = Balls(parameters[4:6], jnp.full(2, 0.5), *none, parameters[6], jnp.zeros(()), None, ())
    states, report = event_driven_motion(balls, start, jnp.array([2.0]))
    return jnp.concatenate([states.position.ravel(), states.velocity.ravel()]), report.grazing[0, 0]


line_derivative = jax.jit(jax.jacfwd(lambda parameters: line(parameters)[0]))


def test_equal_masses_head_on_exchange_their_derivatives():
    """With e = 1 each ball goes on as the other: q₁ = q₂ + 2 v₂ + 1, v₁ = v₂; nothing else is felt."""
    parameters = jnp.array([3.0, 0.0, -1.0, 1.5, 1.0, 1.0, 1.0])
    (value, grazing), derivative = line(parameters), line_derivative(parameters)
    np.testing.assert_allclose(value, [4.0, 0.0, 1.5, -1.0], atol=1e-14)
    assert not grazing
    expected = [[0, 1, 0, 2], [1, 0, 2, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    np.testing.assert_allclose(derivative[:, :4], expected, atol=1e-14)
    # By e: the impact was at 0.8 s with u = −2.5; each velocity changes by ±1.25 per unit of e.
    np.testing.assert_allclose(derivative[:, 6], [1.25 * 1.2, -1.25 * 1.2, 1.25, -1.25], atol=1e-14)


@pytest.mark.parametrize(("speed", "clipped"), [(5e-4, True), (2e-3, False)])
def test_grazing_derivative_is_clipped_and_flagged(speed, clipped):
    """∂q₁⁺/∂q₁ = 1 + (v₁⁻ − v₁⁺) ∂t/∂q₁ with ∂t/∂q₁ = 1/|u|, and |u| at least 10⁻³."""
    parameters = jnp.array([1.0 + speed, 0.0, 0.0, speed, 1.0, 1.0, 1.0])
    (_, grazing), derivative = line(parameters), line_derivative(parameters)
    assert bool(grazing) == clipped
    np.testing.assert_allclose(derivative[0, 0], 1 - speed / max(speed, 1e-3), atol=1e-9)


@jax.jit
def dropped(parameters):
    """A ball dropped from a height with e on a rough floor, moving on: its state after 4 s."""
    height, e, mu, speed = parameters
    floor = jnp.array([[0.0, 1.0]]), jnp.zeros(1)
    balls = Balls(jnp.ones(1), jnp.zeros(1), *floor, e, mu, jnp.array([0.0, -9.81]), ((0,),))
    start = State(
        jnp.stack([jnp.zeros(()), height])[None, None], jnp.stack([speed, jnp.zeros(())])[None, None]
    )
    states, _ = event_driven_motion(balls, start, jnp.full(40, 0.1))
    return jnp.concatenate([states.position[-1].ravel(), states.velocity[-1].ravel()])


@pytest.mark.campaign
def test_derivative_is_zero_through_rest():
    """It rests on the floor: its height and velocities depend on nothing any more, its place still does."""
    parameters = jnp.array([0.8, 0.5, 0.2, 1.0])
    value, derivative = dropped(parameters), np.asarray(jax.jit(jax.jacfwd(dropped))(parameters))
    np.testing.assert_allclose(value[1:], 0, atol=1e-12)
    np.testing.assert_allclose(derivative[1:], 0, atol=1e-9)
    # Every bounce takes μ (1 + e) of its speed; all of them together with the flights make its place.
    shifts = 1e-5 * np.eye(4)
    expected = [float(dropped(parameters + s)[0] - dropped(parameters - s)[0]) / 2e-5 for s in shifts]
    np.testing.assert_allclose(derivative[0], expected, rtol=1e-5, atol=1e-6)
