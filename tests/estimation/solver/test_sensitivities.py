"""Sensitivities of a segment's motion against plain differentiation and differences."""

import itertools
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import carom
from carom.contact_laws import ImpactDeviations
from carom.estimation.parameters.free import FreeParameters, with_leaves
from carom.estimation.solver.sensitivities import segment_motion
from carom.forces import LinearDamping, UniformGravity
from carom.integrators import BY_GAP, AbstractStepper
from carom.mechanics import at, part_named
from carom.models import Mechanism
from carom.types import State
from tests.campaign import shortened

SYSTEMS = {
    "ball": carom.systems.BouncingBall(),
    "cradle": carom.systems.NewtonsCradle(),
    "pendulum": carom.systems.Pendulum(),
}


def plain_motion(model: Mechanism, start: State, duration, modes, impact):
    """The same motion, to be differentiated as it stands."""

    def step(state, inputs):
        length, modes, impact = inputs
        after, contact, instant = model.move(state, length, modes, impact=impact)
        return after, (model.leave(state, after, contact), instant)

    _, (rest, instants) = jax.lax.scan(step, model.enter(start), (duration, modes, impact))
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), start, rest), instants


def setting(name: str, stepper: str, seed: int, hidden: int = 6, steps: int = 40):
    """A random mechanism of a system, a segment with impacts and a random direction."""
    recording = carom.simulate(SYSTEMS[name], steps=steps, step_size=0.02, seed=seed)
    scheme = part_named(AbstractStepper, stepper).for_scene(recording.scene)
    model = Mechanism.for_recording(
        recording,
        hidden=hidden,
        key=jax.random.key(seed),
        stepper=scheme,
        forces=[LinearDamping(np.full(recording.bodies, 0.1))],
    )
    deviations = ImpactDeviations(0.02 * np.arange(4.0), 0.01 * np.arange(4.0), None)
    model = replace(model, deviations=deviations)
    (run,) = recording.runs
    start = State(jnp.asarray(run.position[0]), 0.3 + jnp.asarray(run.velocity[0]))
    if name == "ball":  # low and heavy enough for several impacts
        start = State(0.1 + 0 * start.position, start.velocity)
        network = model.forces[0].network
        strong = tuple(np.sqrt(hidden) * 5 + jnp.abs(part) for part in (network.weight, network.output))
        model = eqx.tree_at(lambda m: (m.forces[0].network.weight, m.forces[0].network.output), model, strong)
    duration = jnp.full((steps,), recording.step_size)
    modes = jnp.full((steps, len(model.geometry)), BY_GAP)
    impact = jnp.minimum(jnp.arange(steps)[:, None] // 10, 3) * jnp.ones_like(modes)
    learn = ("surfaces", "restitution", "masses", "damping")
    layout = FreeParameters.of(model, learn).layout
    assert layout.impacts == (4, 4)
    return layout, model, start, duration, modes, impact


@pytest.mark.parametrize(
    ("name", "stepper", "hidden"),
    [
        *shortened(
            itertools.product(SYSTEMS, ["constraint_exact", "cd_lagrange"], [6]),
            [("cradle", "constraint_exact", 6), ("pendulum", "constraint_exact", 6)],
        ),
        ("cradle", "constraint_exact", 1),  # so few parameters that the derivative is taken in forward mode
    ],
)
def test_sensitivities_are_the_derivatives(name, stepper, hidden):
    with jax.enable_x64(True):
        layout, model, start, *steps = setting(name, stepper, seed=3, hidden=hidden)
        leaves = tuple(jnp.asarray(leaf) for leaf in at(*layout.paths)(model))
        point, unravel = ravel_pytree((leaves, start))

        def by(motion):
            def twice(point):
                value = ravel_pytree(motion(*unravel(point)))[0]
                return value, value

            # The values come along with their derivatives, instead of from programs of their own.
            derivative, value = jax.jit(jax.jacfwd(twice, has_aux=True))(point)
            return value, derivative

        value, derivative = by(lambda leaves, start: segment_motion(layout, model, leaves, start, *steps))
        expected, differentiated = by(
            lambda leaves, start: plain_motion(with_leaves(layout, model, leaves), start, *steps)
        )
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-12)
        scale = np.abs(differentiated).max()
        assert np.isfinite(differentiated).all()
        assert scale > 0
        np.testing.assert_allclose(derivative, differentiated, rtol=1e-8, atol=1e-10 * scale)


def test_the_segment_has_impacts():
    """Without them the test above would say little."""
    with jax.enable_x64(True):
        layout, model, start, *steps = setting("ball", "constraint_exact", seed=3)
        leaves = tuple(jnp.asarray(leaf) for leaf in at(*layout.paths)(model))
        states, _ = jax.jit(partial(segment_motion, layout))(model, leaves, start, *steps)
        assert (np.diff(np.sign(states.velocity[:, 0, 0])) > 0).sum() >= 2


def test_impacts_found_by_the_gap_are_those_of_the_whole_step():
    with jax.enable_x64(True):
        system = carom.systems.Billiards(radii=(0.1,), restitution=0.8, friction=0.2)
        recording = carom.simulate(system, steps=80, step_size=0.05, seed=1)
        model = replace(
            Mechanism.for_recording(recording, potential="none", forces=[LinearDamping(np.full(1, 0.1))]),
            deviations=ImpactDeviations(0.02 * np.arange(4.0), 0.01 * np.arange(4.0), 0.1 * np.ones((4, 2))),
        )
        layout = FreeParameters.of(model, ("surfaces", "restitution", "friction", "damping")).layout
        start = State(jnp.asarray(recording.runs[0].position[0]), jnp.array([[1.3, 0.9]]))
        modes = jnp.full((80, len(model.geometry)), BY_GAP)
        impact = jnp.arange(80)[:, None] // 20 * jnp.ones_like(modes)
        leaves = tuple(jnp.asarray(leaf) for leaf in at(*layout.paths)(model))
        point, unravel = ravel_pytree((leaves, start))
        steps = jnp.full((80,), 0.05), modes, impact

        def motion(point, by_gap):
            most = 1 if by_gap else None
            states, _ = segment_motion(layout, model, *unravel(point), *steps, most=most, by_gap=by_gap)
            states = jnp.stack([states.position, states.velocity])
            return states, states

        with_derivatives = jax.jit(jax.jacfwd(motion, has_aux=True), static_argnums=1)
        (derivative, value), (differentiated, expected) = (
            with_derivatives(point, by_gap) for by_gap in (True, False)
        )
        assert (np.diff(np.sign(expected[1, :, 0]), axis=0) != 0).sum() >= 3
        np.testing.assert_allclose(value, expected, atol=1e-11)
        np.testing.assert_allclose(derivative, differentiated, atol=1e-8 * np.abs(differentiated).max())


def test_a_ball_that_comes_to_rest_makes_no_impacts_by_the_gap():
    with jax.enable_x64(True):
        recording = carom.simulate(carom.systems.BouncingBall(), steps=9, step_size=0.02, seed=1)
        model = Mechanism.for_recording(
            recording, potential="none", forces=[UniformGravity(np.array([-9.8]))]
        )
        layout = FreeParameters.of(model, ("gravity",)).layout
        start = State(jnp.array([[0.01]]), jnp.array([[0.0]]))
        steps = jnp.full((100,), 0.02), jnp.full((100, 1), BY_GAP), jnp.zeros((100, 1), int)
        plastic = eqx.tree_at(lambda m: m.restitution.value, model, np.zeros(1))
        leaves = tuple(jnp.asarray(leaf) for leaf in at(*layout.paths)(plastic))
        motion = jax.jit(partial(segment_motion, layout, most=1, by_gap=True))
        states, _ = motion(plastic, leaves, start, *steps)
        # It falls for two steps.
        np.testing.assert_array_equal(np.isfinite(states.position[:, 0, 0]), np.arange(101) <= 2)
