"""Steps of many motions at once are those of the constraint-exact step of each."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.forces import LinearDamping, QuadraticDrag, UniformGravity
from carom.integrators import BY_GAP, EXCLUDED, step_many
from carom.mechanics import Pair, Scene, Wall
from carom.models import Mechanism
from carom.types import State

MOTIONS, STEPS = 6, 240


def dropped_ball() -> tuple[Mechanism, State]:
    """It bounces more and more quickly, and rests."""
    scene = Scene(1, 1, (Wall(0, (1.0,)),), restitution=0.5)
    height = jnp.linspace(0.3, 1.0, MOTIONS)[:, None, None]
    forces = [UniformGravity(np.array([-9.81])), QuadraticDrag(np.array([0.1]))]
    return Mechanism.of(scene, 0.01, forces=forces), State(height, jnp.zeros_like(height))


def rough_box() -> tuple[Mechanism, State]:
    """Two pucks on a slope among walls: they hit each other, slide along walls and stop in a corner."""
    planes = (((1.0, 0.0), 0.1), ((0.0, 1.0), 0.1), ((-1.0, 0.0), -0.9), ((0.0, -1.0), -0.9))
    walls = tuple(Wall(body, normal, offset) for body in range(2) for normal, offset in planes)
    scene = Scene(2, 2, (*walls, Pair(0, 1, 0.2)), masses=(1.0, 2.0), restitution=0.4, friction=0.2)
    forces = [UniformGravity(np.array([-1.0, -2.0])), LinearDamping(np.array([0.1, 0.2]))]
    velocity = np.random.default_rng(3).normal(size=(MOTIONS, 2, 2))
    place = np.broadcast_to([[0.3, 0.4], [0.7, 0.6]], velocity.shape)
    return Mechanism.of(scene, 0.02, forces=forces), State(jnp.asarray(place), jnp.asarray(velocity))


@pytest.mark.parametrize("make", [dropped_ball, rough_box])
def test_many_motions_are_those_of_each(make, float64):
    mechanism, starts = make()
    lengths = 0.01 + 0.01 * np.random.default_rng(1).random((STEPS, MOTIONS))
    each, contact = alone(mechanism, starts, jnp.asarray(lengths))
    many, touched = together(mechanism, starts, jnp.asarray(lengths), BY_GAP)
    # Equal but for rounding, as both take the same steps, until friction acts in several contacts at once:
    # its forces are then found by sweeps alone.
    until = 30 if mechanism.friction is not None else STEPS
    np.testing.assert_allclose(many.position[:until], each.position[:until], atol=1e-9)
    np.testing.assert_allclose(many.velocity[:until], each.velocity[:until], atol=1e-8)
    np.testing.assert_array_equal(touched[:until], contact[:until])
    assert np.abs(many.velocity[-1]).max() < (
        1e-6 if until == STEPS else 0.1
    )  # they have come to rest, or slide


def test_without_contacts_motions_can_be_reversed(float64):
    mechanism, starts = rough_box()
    lengths = jnp.full((STEPS, MOTIONS), 0.01)
    there, touched = together(mechanism, starts, lengths, EXCLUDED)
    end = State(there.position[-1], there.velocity[-1])
    back, _ = together(mechanism, end, -lengths, EXCLUDED)
    assert not touched.any()
    np.testing.assert_allclose(back.position[-1], starts.position, atol=1e-9)
    np.testing.assert_allclose(back.velocity[-1], starts.velocity, atol=1e-9)


def together(mechanism, starts, lengths, mode):
    stacked = jax.tree.map(
        lambda x: jnp.asarray(np.repeat(np.asarray(x, float)[None], MOTIONS, axis=0)), mechanism
    )
    return _together(stacked, starts, lengths, np.full((MOTIONS, len(mechanism.geometry)), mode))


@eqx.filter_jit
def _together(stacked, starts, lengths, modes):
    def step(carry, length):
        after, contact, settled = step_many(stacked, carry[0], length, modes, carry[1])
        return (after, settled), (after, contact)

    return jax.lax.scan(step, (starts, jnp.zeros(modes.shape, bool)), lengths)[1]


def alone(mechanism, starts, lengths):
    mechanism = jax.tree.map(lambda x: jnp.asarray(x, float), mechanism)
    modes = jnp.full((len(mechanism.geometry),), BY_GAP)

    @eqx.filter_jit
    def run(start, lengths):
        def step(state, length):
            after, contact, _ = mechanism.move(state, length, modes)
            return after, (after, contact)

        return jax.lax.scan(step, start, lengths)[1]

    # One after the other: batched linear solves may wait for each other (see `solver.linear_algebra`).
    found = [run(jax.tree.map(lambda x, i=i: x[i], starts), lengths[:, i]) for i in range(MOTIONS)]
    return jax.tree.map(lambda *x: np.stack(x, axis=1), *found)
