"""Sensitivities of a segment's motion against plain differentiation and differences."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import carom
from carom.estimation.solver.sensitivities import segment_motion
from carom.integrators import BY_GAP
from carom.models import Mechanism, PotentialNetwork
from carom.types import State
from tests.campaign import shortened

SYSTEMS = {
    "ball": carom.systems.BouncingBall(),
    "cradle": carom.systems.NewtonsCradle(),
    "pendulum": carom.systems.Pendulum(),
}


def plain_motion(model: Mechanism, start: State, duration, schedule):
    """The same motion, to be differentiated as it stands."""

    def step(state, inputs):
        after, contact, instant = model.move(state, *inputs)
        return after, (model.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, model.enter(start), (duration, schedule))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest), instants


def _weights(model: Mechanism):
    assert isinstance(model.potential, PotentialNetwork)
    return model.potential.weight, model.potential.output


def setting(name: str, scheme: str, seed: int, hidden: int = 6, steps: int = 40):
    """A random model of a system, a segment with impacts and a random direction."""
    recording = carom.simulate(SYSTEMS[name], steps=steps, step_size=0.02, seed=seed)
    key = jax.random.key(seed)
    model = Mechanism.for_recording(recording, hidden=hidden, scheme=scheme, key=key)
    run = recording.runs[0]
    assert run.velocity is not None
    assert isinstance(model.potential, PotentialNetwork)
    start = State(jnp.asarray(run.position[0]), 0.3 + jnp.asarray(run.velocity[0]))
    if name == "ball":  # low and heavy enough for several impacts
        start = State(0.1 + 0 * start.position, start.velocity)
        weights = 5 + jnp.abs(model.potential.weight), 5 + jnp.abs(model.potential.output)
        model = eqx.tree_at(_weights, model, weights)
    duration = jnp.full((steps,), recording.step_size)
    schedule = jnp.full((steps, model.scene.contacts), BY_GAP)
    return model, start, duration, schedule


@pytest.mark.parametrize(
    ("name", "scheme", "hidden"),
    [
        *shortened(
            itertools.product(SYSTEMS, ["constraint_exact", "cd_lagrange"], [6]),
            [("cradle", "constraint_exact", 6), ("pendulum", "constraint_exact", 6)],
        ),
        ("cradle", "constraint_exact", 1),  # so few unknowns that the derivative is taken forwards
    ],
)
def test_sensitivities_are_the_derivatives(name, scheme, hidden):
    with jax.enable_x64(True):
        model, start, duration, schedule = setting(name, scheme, seed=3, hidden=hidden)
        numbers, others = eqx.partition(model, eqx.is_inexact_array)
        point, unravel = ravel_pytree((numbers, start))

        def by(motion):
            def value(point):
                numbers, start = unravel(point)
                return ravel_pytree(motion(eqx.combine(numbers, others), start, duration, schedule))[0]

            return value(point), jax.jit(jax.jacfwd(value))(point)

        value, derivative = by(segment_motion)
        expected, differentiated = by(plain_motion)
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
        scale = np.abs(differentiated).max()
        assert np.isfinite(differentiated).all()
        assert scale > 0
        np.testing.assert_allclose(derivative, differentiated, rtol=1e-8, atol=1e-10 * scale)


def test_the_segment_has_impacts():
    """Without them the test above would say little."""
    with jax.enable_x64(True):
        model, start, duration, schedule = setting("ball", "constraint_exact", seed=3)
        states, _ = segment_motion(model, start, duration, schedule)
        assert (np.diff(np.sign(states.velocity[:, 0, 0])) > 0).sum() >= 2
