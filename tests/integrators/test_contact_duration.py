"""Contacts that last: before and after them bodies move as those of an independent solution do."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.contact_laws import ContactDuration, LinearRestitution
from carom.estimation.forecasting.motions import follow, stack_models
from carom.forces import UniformGravity
from carom.integrators import PRESCRIBED
from carom.mechanics import Scene, Wall
from carom.models import Mechanism, forecast
from carom.systems import Billiards, BouncingBall, Laboratory
from carom.types import State

STEP = 0.005
LASTING = 0.031


def lasting(mechanism: Mechanism, duration: float) -> Mechanism:
    lasts = replace(mechanism, duration=ContactDuration(np.full(len(mechanism.geometry), duration)))
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float) if eqx.is_inexact_array(leaf) else leaf, lasts)


def apart_from_contacts(times: np.ndarray, hits, margin: float) -> np.ndarray:
    """Which times are neither in a contact nor next to one."""
    away = np.ones(len(times), bool)
    for hit in hits:
        away &= (times < hit.time - margin) | (times > hit.time + LASTING + margin)
    return away


def test_a_ball_moves_as_one_on_a_spring_with_a_damper(float64):
    """The laboratory's contact is a damped oscillation of the gap, which other forces do not disturb."""
    ball = BouncingBall(restitution=0.8)
    times = STEP * np.arange(800)
    exact, hits = Laboratory(ball, contact_time=LASTING).motion(ball.start, times)
    model = lasting(ball.mechanism(STEP), LASTING)
    ahead = forecast(model, ball.start, len(times) - 1)
    away = apart_from_contacts(times, hits, STEP)
    assert len(hits) >= 2
    np.testing.assert_allclose(ahead.position[away], exact.position[away], atol=1e-8)
    np.testing.assert_allclose(ahead.velocity[away], exact.velocity[away], atol=1e-8)


def test_discs_in_the_plane_meet_behind_their_surfaces(float64):
    """Head on, where the direction of the impulse does not depend on how deep they meet."""
    table = Billiards(size=(50.0, 50.0), radii=(0.1, 0.1), ball_masses=(1.0, 3.0), restitution=0.7)
    start = State(jnp.array([[20.0, 25.0], [21.0, 25.0]]), jnp.array([[1.0, 0.0], [-0.5, 0.0]]))
    times = STEP * np.arange(300)
    exact, hits = Laboratory(table, contact_time=LASTING).motion(start, times)
    ahead = forecast(lasting(table.mechanism(STEP), LASTING), start, len(times) - 1)
    away = apart_from_contacts(times, hits, STEP)
    np.testing.assert_allclose(ahead.position[away], exact.position[away], atol=1e-7)


def double(state: State) -> State:
    return State(jnp.asarray(state.position, float), jnp.asarray(state.velocity, float))


def floor(duration: float, **laws) -> Mechanism:
    scene = Scene(1, 2, (Wall(0, (0.0, 1.0)),), restitution=0.75, friction=0.2)
    gravity = UniformGravity(np.array([0.5, -9.81]))
    return lasting(Mechanism.of(scene, STEP, forces=[gravity], **laws), duration)


START = State(jnp.array([[0.0, 0.011]]), jnp.array([[1.0, -2.0]]))


@pytest.mark.parametrize("law", [None, LinearRestitution(np.array([[0.8, -0.05]]))])
def test_prescribed_impacts_are_those_by_the_gap(law, float64):
    laws = {} if law is None else {"restitution": law}
    model, state = floor(LASTING, **laws), double(START)
    by_gap, contacts = [state], []
    step = jax.jit(lambda state: model.advance(state))
    for _ in range(12):
        after, contact = step(by_gap[-1])
        by_gap.append(after)
        contacts.append(bool(contact[0] > 0))
    assert sum(contacts) == 1
    prescribed, move = state, jax.jit(lambda state, modes: model.move(state, STEP, modes, most=1)[0])
    for happens in contacts:
        prescribed = move(prescribed, jnp.full(1, PRESCRIBED if happens else -PRESCRIBED))
    np.testing.assert_allclose(prescribed.position, by_gap[-1].position, atol=1e-12)
    np.testing.assert_allclose(prescribed.velocity, by_gap[-1].velocity, atol=1e-12)


def test_many_motions_are_those_of_each(float64):
    model = floor(LASTING)
    position, velocity = (
        np.stack([part, 1.1 * part, 0.7 * part])[:, None]
        for part in (np.asarray(START.position, float), np.asarray(START.velocity, float))
    )
    step, ends = jax.jit(lambda state: model.advance(state)[0]), []
    for number in range(3):
        now = State(jnp.asarray(position[number, 0]), jnp.asarray(velocity[number, 0]))
        for _ in range(200):
            now = step(now)
        ends.append(np.asarray(now.position))
    many = follow(stack_models(model), position, velocity, np.full((3, 200), STEP))
    np.testing.assert_allclose(many.position[:, 0, -1], ends, atol=1e-9)


def test_derivatives_by_duration_and_restitution(float64):
    """Against central differences of the end of a motion with one impact."""
    state = double(START)

    def end(values):
        model, now = floor(0.0), state
        model = replace(model, duration=ContactDuration(values[:1]))
        model = replace(model, restitution=LinearRestitution(values[1:3][None]))
        now, _ = jax.lax.scan(lambda now, _: (model.advance(now)[0], None), now, length=10)
        return jnp.concatenate([now.position.ravel(), now.velocity.ravel()])

    values, width, moved = jnp.array([LASTING, 0.8, -0.05]), 1e-6, jax.jit(end)
    derivative = jax.jit(jax.jacfwd(end))(values)
    for column, unit in enumerate(np.eye(3)):
        difference = moved(values + width * unit) - moved(values - width * unit)
        np.testing.assert_allclose(derivative[:, column], difference / (2 * width), rtol=1e-6, atol=1e-8)


def test_a_ball_comes_to_rest_when_it_would_be_back_before_the_contact_ends():
    ball = lasting(BouncingBall(restitution=0.5).mechanism(0.02), LASTING)
    ahead = forecast(ball, State(jnp.array([[0.5]]), jnp.array([[0.0]])), 300)
    assert float(jnp.abs(ahead.velocity[-1, 0, 0])) < 1e-3
    # Not deeper than the last of the impacts that ended the motion.
    assert -2e-3 < float(ahead.position[-1, 0, 0]) < 1e-3
    assert float(jnp.max(jnp.abs(jnp.diff(ahead.position[-50:, 0, 0])))) < 1e-4
