"""The four lines of the step, written out in NumPy, and the conversions between velocity grids."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from carom.integrators import cd_lagrange_step, rollout, to_half_grid, to_sample_grid
from carom.mechanics import ContactGeometry, Masses, Pair, Wall, project_overlap, unilateral_impulse
from carom.types import State
from tests.integrators.mechanical_problems import unit_masses

SCENE = ContactGeometry(3, 2, (Wall(2, (0.0, 1.0)), Pair(0, 1, offset=1.0)))
DAMPING = 0.3


@jax.jit
def one_step(position, velocity, h, masses, restitution, projected):
    inertia = Masses(masses)

    def impulse(jacobian, inertia, before, smooth, touching):
        return unilateral_impulse(
            jacobian, inertia, before, smooth, restitution=restitution, touching=touching
        )

    def project(position, touching):
        moved = project_overlap("inverse_mass", SCENE, inertia, position, touching)
        return jnp.where(projected, moved, position)

    state, report = cd_lagrange_step(
        State(position, velocity),
        h,
        inertia=inertia,
        force=lambda q, v: -(q**3) - DAMPING * v,
        geometry=SCENE,
        detect=lambda q, v: SCENE.gap(q) < 0,
        impulse=impulse,
        project=project,
    )
    return state.position, state.velocity, report.impulse


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), projected=st.booleans())
def test_step_by_hand(seed, projected):
    """A pair in the plane and a body on a floor, each body with one contact; random overlaps and forces."""
    random = np.random.default_rng(seed)
    position, velocity = random.normal(size=(2, 3, 2))
    masses, restitution, h = random.uniform(0.2, 5, 3), random.uniform(size=2), random.uniform(0.01, 0.3)
    reached, after, impulses = one_step(position, velocity, h, masses, restitution, projected)

    q = position + h * velocity
    apart = q[0] - q[1]
    distance = np.linalg.norm(apart)
    touching = np.array([q[2, 1] < 0, distance < 1])
    normal = apart / distance
    if projected and touching[1]:
        excess = (1 - distance) * normal / (1 / masses[0] + 1 / masses[1])
        q = q + np.array([excess / masses[0], -excess / masses[1], [0, 0]])
    smooth = velocity + h * (-(q**3) - DAMPING * velocity) / masses[:, None]
    pushes = np.zeros((3, 2))
    floor = max(0.0, -masses[2] * (restitution[0] * velocity + smooth)[2, 1]) if touching[0] else 0.0
    pushes[2, 1] = floor
    closing = restitution[1] * velocity + smooth
    reduced = masses[0] * masses[1] / (masses[0] + masses[1])
    pair = max(0.0, -reduced * normal @ (closing[0] - closing[1])) if touching[1] else 0.0
    pushes[0], pushes[1] = pair * normal, -pair * normal

    np.testing.assert_allclose(impulses, [floor, pair], atol=1e-11)
    np.testing.assert_allclose(reached, q, atol=1e-12)
    np.testing.assert_allclose(after, smooth + pushes / masses[:, None], atol=1e-11)


def test_half_kick_on_entry():
    state = State(jnp.array([[0.5]]), jnp.array([[2.0]]))
    kicked = to_half_grid(state, 0.1, inertia=Masses(jnp.array([4.0])), force=lambda q, v: -3 * q - v)
    np.testing.assert_allclose(kicked.velocity, [[2.0 + 0.05 * (-1.5 - 2.0) / 4]], rtol=1e-15)
    np.testing.assert_array_equal(kicked.position, state.position)


def test_read_out_takes_no_kick_back_along_a_touching_normal():
    """A ball on a slope: what changed along the floor is averaged, what changed against it is kept."""
    normal = (0.6, 0.8)
    floor = ContactGeometry(1, 2, (Wall(0, normal),))
    before = State(jnp.array([[1.0, -0.75]]), jnp.array([[1.0, -2.0]]))
    after = State(jnp.array([[1.1, -0.9]]), jnp.array([[1.4, 0.5]]))
    for touching in (0.0, 1.0):
        read = to_sample_grid(
            before, after, inertia=unit_masses(1), geometry=floor, touching=jnp.array([touching])
        )
        change = np.array([0.4, 2.5])
        kick = 0.5 * (change - touching * np.array(normal) * (change @ normal))
        np.testing.assert_allclose(read.velocity, [np.array([1.4, 0.5]) - kick], atol=1e-15)


def test_ball_at_rest_reads_out_at_rest_and_a_bounce_as_newtons_law():
    floor = ContactGeometry(1, 1, (Wall(0, (1.0,)),))
    for incoming, outgoing in ((0.0, 0.0), (-3.0, 1.5)):
        before, after = (State(jnp.zeros((1, 1)), jnp.full((1, 1), v)) for v in (incoming, outgoing))
        read = to_sample_grid(before, after, inertia=unit_masses(1), geometry=floor, touching=jnp.ones(1))
        np.testing.assert_array_equal(read.velocity, [[outgoing]])


def test_rollout_keeps_the_start_and_feeds_the_inputs():
    states, outputs = rollout(
        lambda state, given: (2 * state + given, -state), jnp.array(1.0), inputs=jnp.arange(3.0)
    )
    np.testing.assert_array_equal(states, [1, 2, 5, 12])
    np.testing.assert_array_equal(outputs, [-1, -2, -5])
    states, _ = rollout(lambda state, _: (state + 1, None), jnp.array(0.0), steps=4, unroll=2)
    np.testing.assert_array_equal(states, np.arange(5))
