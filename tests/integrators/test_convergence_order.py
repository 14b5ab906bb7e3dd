"""Measured orders: what halving the step buys, without impacts and through them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.integrate import solve_ivp

from carom.integrators import cd_lagrange_step, constraint_exact_step
from carom.mechanics import ContactGeometry, Wall, chain, unilateral_impulse
from carom.types import State
from tests.integrators.mechanical_problems import (
    compiled_motion,
    coupled_force,
    half_period,
    measured_order,
    pendulum_force,
    pendulum_from_bottom,
    pendulum_from_rest,
    unit_masses,
)

GRAVITY = 9.81


@pytest.mark.parametrize(("grid", "order"), [("sample", 1), ("half", 2), ("verlet", 2)])
def test_pendulum_against_elliptic_functions(grid, order):
    """Measured: sample 0.99, half and velocity Verlet 2.00."""
    duration, counts = 2.0, np.array([50, 100, 200, 400, 800])
    exact = np.array(pendulum_from_rest(1.0, duration))
    errors = []
    for steps in counts:
        q, v = compiled_motion(
            np.ones((1, 1)),
            np.zeros((1, 1)),
            duration / steps,
            steps,
            np.eye(1),
            force=pendulum_force,
            grid=grid,
        )
        errors.append(np.linalg.norm(exact - [q[0, 0], v[0, 0]]))
    assert abs(measured_order(duration / counts, errors) - order) < 0.05


def test_coupled_problem_with_full_inertia_against_dop853():
    """Measured: 2.00 on the half grid."""
    factor, start = np.array([[1.3, 0.0], [-0.4, 0.8]]), np.array([0.9, -0.3, 0.2, 1.1])
    inverse = np.linalg.inv(factor @ factor.T)

    def rate(_, y):
        spring = y[0] - y[1]
        return np.concatenate([y[2:], inverse @ [-np.sin(y[0]) - spring, spring - y[1] ** 3]])

    exact = solve_ivp(rate, (0, 3), start, method="DOP853", rtol=1e-13, atol=1e-13).y[:, -1]
    counts, errors = np.array([60, 120, 240, 480]), []
    for steps in counts:
        q, v = compiled_motion(
            start[:2, None], start[2:, None], 3 / steps, steps, factor, force=coupled_force, grid="half"
        )
        errors.append(np.linalg.norm(exact - np.concatenate([q[:, 0], v[:, 0]])))
    assert abs(measured_order(3 / counts, errors) - 2) < 0.05


@jax.jit
def dropped_balls(heights, h, steps, restitution):
    """CD-Lagrange on the sample grid from rest, one ball per height; the heights reached."""
    floor = ContactGeometry(1, 1, (Wall(0, (1.0,)),))

    def impulse(jacobian, inertia, before, smooth, touching):
        e = jnp.full((1,), restitution)
        return unilateral_impulse(
            jacobian, inertia, before, smooth, restitution=e, touching=touching, sweeps=1
        )

    def advance(_, state):
        return cd_lagrange_step(
            state,
            h,
            inertia=unit_masses(1),
            force=lambda position, velocity: jnp.full((1, 1), -GRAVITY),
            geometry=floor,
            detect=lambda position, velocity: floor.gap(position) < 0,
            impulse=impulse,
            project=lambda position, touching: position,
        )[0]

    def fall(height):
        start = State(height[None, None], jnp.full((1, 1), -0.5 * h * GRAVITY))  # half kick: v(h/2)
        return lax.fori_loop(0, steps, advance, start).position[0, 0]

    return jax.vmap(fall)(heights)


def bounce(height, time, restitution):
    """Height of a ball dropped from rest, and how far `time` is from the nearest impact."""
    impact, speed = np.sqrt(2 * height / GRAVITY), np.sqrt(2 * GRAVITY * height)
    if time < impact:
        return height - 0.5 * GRAVITY * time**2, impact - time
    while True:
        speed *= restitution
        flight = 2 * speed / GRAVITY
        if time < impact + flight:
            since = time - impact
            return speed * since - 0.5 * GRAVITY * since**2, min(since, flight - since)
        impact += flight


@pytest.mark.parametrize("restitution", [1.0, 0.8])
def test_cd_lagrange_is_first_order_through_impacts(restitution):
    """On average over drop heights: where an impact falls inside its step is a matter of luck.

    Measured over 200 heights and h = 0.02 … 0.00125, one to four impacts: 0.998 for e = 1, 1.000 for e = 0.8.
    """
    duration, heights = 3.0, np.linspace(4.0, 6.0, 200)
    exact = np.array([bounce(height, duration, restitution) for height in heights])
    away = exact[:, 1] > 0.1
    counts, errors = np.array([150, 300, 600, 1200, 2400]), []
    for steps in counts:
        reached = np.asarray(dropped_balls(heights, duration / steps, steps, restitution))
        errors.append(np.sqrt(np.mean((reached - exact[:, 0])[away] ** 2)))
    assert abs(measured_order(duration / counts, errors) - 1) < 0.15


@jax.jit
def cradle_motion(h, steps):
    geometry = ContactGeometry(2, 1, chain(2))

    def advance(_, state):
        return constraint_exact_step(
            state,
            h,
            inertia=unit_masses(2),
            force=pendulum_force,
            geometry=geometry,
            restitution=jnp.ones(1),
        )[0]

    return lax.fori_loop(0, steps, advance, State(jnp.zeros((2, 1)), jnp.array([[2.0], [0.0]])))


def test_constraint_exact_cradle_is_second_order_through_impacts():
    """The two-ball cradle is one pendulum handed over at the bottom. Measured: 1.97 over four impacts."""
    duration = 4.5 * half_period(2.0)
    angle, speed = pendulum_from_bottom(2.0, duration)
    exact = np.array([[angle, 0.0], [speed, 0.0]]) if angle > 0 else np.array([[0.0, angle], [0.0, speed]])
    counts, errors = np.array([150, 300, 600, 1200]), []
    for steps in counts:
        state = cradle_motion(duration / steps, steps)
        errors.append(np.linalg.norm(exact - [state.position[:, 0], state.velocity[:, 0]]))
    assert abs(measured_order(duration / counts, errors) - 2) < 0.05
