"""The step of decided contacts: the constraint-exact step, at the cost of the contacts that happen."""

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.integrators import EXCLUDED, PRESCRIBED, constraint_exact_step, prescribed_step
from carom.mechanics import ContactGeometry, Masses, Pair, Wall
from carom.types import State

H = 0.05


def geometry(dimension: int, bodies: int) -> ContactGeometry:
    walls = [
        Wall(body, tuple(sign * np.eye(dimension)[axis]), -1.0)
        for body in range(bodies)
        for axis in range(dimension)
        for sign in (1.0, -1.0)
    ]
    joined = (
        combinations(range(bodies), 2)
        if dimension > 1
        else zip(range(bodies), range(1, bodies), strict=False)
    )
    return ContactGeometry(bodies, dimension, (*walls, *(Pair(i, j, 0.3) for i, j in joined)))


def about_to_touch(contacts: ContactGeometry, number: int, random: np.random.Generator) -> State:
    """Random bodies of which one contact closes in the middle of the step."""
    position = random.uniform(-0.6, 0.6, (contacts.bodies, contacts.dimension))
    velocity = random.normal(size=position.shape)
    candidate = contacts.candidates[number]
    if isinstance(candidate, Wall):
        normal = np.asarray(candidate.normal)
        position[candidate.body] += (candidate.offset + 0.02 - normal @ position[candidate.body]) * normal
        velocity[candidate.body] += (-0.9 - normal @ velocity[candidate.body]) * normal
    else:
        unit = np.eye(contacts.dimension)[0]
        if contacts.dimension > 1:
            unit = random.normal(size=contacts.dimension)
            unit /= np.linalg.norm(unit)
        position[candidate.first] = position[candidate.second] + (candidate.offset + 0.02) * unit
        velocity[candidate.first] = (
            velocity[candidate.second] - 0.9 * unit + 0.3 * random.normal(size=len(unit))
        )
        velocity[candidate.first] += (
            -0.9 - unit @ (velocity[candidate.first] - velocity[candidate.second])
        ) * unit
    return State(jnp.asarray(position), jnp.asarray(velocity))


@pytest.mark.parametrize(
    ("dimension", "bodies", "frictions"),
    [
        (1, 3, [None]),
        pytest.param(2, 3, [0.3], marks=pytest.mark.campaign),
        (3, 2, [0.05, 2.0]),
        pytest.param(2, 3, [None], marks=pytest.mark.campaign),
        pytest.param(3, 2, [None], marks=pytest.mark.campaign),
    ],
)
def test_it_is_the_constraint_exact_step(dimension, bodies, frictions):
    """Same state, same instants and same derivatives, for walls and pairs, masses and fields."""
    random = np.random.default_rng(dimension)
    with jax.enable_x64(True):
        contacts = geometry(dimension, bodies)
        rows = contacts.rows
        count = len(contacts.candidates)

        def force(position):
            return -jnp.sin(2 * position)

        def exact(state, law, masses, number, rough):
            after, report = constraint_exact_step(
                state,
                H,
                inertia=Masses(masses),
                force=force,
                geometry=contacts,
                restitution=law,
                friction=rough,
                max_impacts=2,
                modes=jnp.full(count, EXCLUDED).at[number].set(PRESCRIBED),
            )
            return after, report.instant

        def listed(state, law, masses, number, rough):
            # The second of the two listed contacts does not happen.
            index = jnp.array([number, (number + 1) % count])
            after, instants = prescribed_step(
                state,
                H,
                masses=masses,
                force=force,
                contacts=rows.take(index),
                happens=jnp.array([True, False]),
                restitution=lambda rate: law[index],
                friction=None if rough is None else rough[index],
            )
            return after, jnp.full(count, 0.5).at[index].set(instants)

        def with_derivatives(step):
            def twice(*arguments):
                result = step(*arguments)
                return result, result

            # The result comes along with its derivatives, instead of from a program of its own.
            return jax.jit(jax.jacfwd(twice, argnums=(0, 1, 2), has_aux=True))

        ours, theirs = with_derivatives(listed), with_derivatives(exact)
        for number, friction in product(random.permutation(count)[:6], frictions):
            state = about_to_touch(contacts, int(number), random)
            masses, law = (jnp.asarray(random.uniform(0.3, 1, size)) for size in (bodies, count))
            rough = None if friction is None else jnp.full(count, friction)
            results = (step(state, law, masses, number, rough) for step in (ours, theirs))
            for a, b in zip(*map(jax.tree.leaves, results), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8)


def test_one_impact_after_another():
    """A ball that hits the next one, which hits the wall, within one step; equal masses swap velocities."""
    with jax.enable_x64(True):
        contacts = ContactGeometry(2, 1, (Wall(0, (-1.0,), -1.0), Pair(0, 1, 0.2)))
        state = State(jnp.array([[0.98], [0.77]]), jnp.array([[0.0], [2.0]]))
        after, instants = prescribed_step(
            state,
            0.1,
            masses=jnp.ones(2),
            force=jnp.zeros_like,
            contacts=contacts.rows,
            happens=jnp.array([True, True]),
            restitution=lambda rate: jnp.ones(2),
        )
    # The pair meets at 0.005 s, the first ball meets the wall 0.01 s later and comes back at 2 m/s.
    np.testing.assert_allclose(instants, [0.15, 0.05], atol=1e-12)
    np.testing.assert_allclose(after.velocity, [[-2.0], [0.0]], atol=1e-12)
    np.testing.assert_allclose(after.position, [[1.0 - 2 * 0.085], [0.78]], atol=1e-12)


def test_rows_are_the_geometry():
    """Gaps and normals of walls and pairs, whichever are picked."""
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        for dimension in (1, 2, 3):
            contacts = geometry(dimension, 4)
            position = jnp.asarray(random.normal(size=(4, dimension)))
            index = jnp.asarray(random.permutation(len(contacts.candidates))[:5])
            rows = contacts.rows.take(index)

            @jax.jit
            def compared(position, index=index, rows=rows, contacts=contacts):
                gaps = rows.gap(position), contacts.gap(position)[index]
                return gaps, (jax.jacfwd(rows.gap)(position), contacts.jacobian(position)[index])

            for of_rows, of_geometry in compared(position):
                np.testing.assert_allclose(of_rows, of_geometry, atol=1e-12)
