"""Problems with known answers, and the library's steps compiled once for any number of steps."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ellipj, ellipkinc

from carom.integrators import cd_lagrange_step, to_half_grid, to_sample_grid, velocity_verlet_step
from carom.mechanics import ContactGeometry, InertiaMatrix, Masses
from carom.types import State

FREQUENCY = np.sqrt(9.81)


def pendulum_from_rest(amplitude, time):
    """θ̈ = −ω² sin θ from θ(0) = amplitude at rest: θ = 2 arcsin(k cd(ω t | k²)) with k = sin(amplitude/2)."""
    k = np.sin(amplitude / 2)
    sn, cn, dn, _ = ellipj(FREQUENCY * np.asarray(time), k**2)
    return 2 * np.arcsin(k * cn / dn), -2 * k * FREQUENCY * np.sqrt(1 - k**2) * sn / dn


def pendulum_from_bottom(speed, time):
    """The same from θ(0) = 0 with the given speed: θ = 2 arcsin(k sn(ω t | k²)) with k = speed/(2ω)."""
    k = speed / (2 * FREQUENCY)
    sn, cn, _, _ = ellipj(FREQUENCY * np.asarray(time), k**2)
    return 2 * np.arcsin(k * sn), 2 * k * FREQUENCY * cn


def half_period(speed):
    """Time from the bottom and back to it: 2 K(k²)/ω."""
    return 2 * ellipkinc(np.pi / 2, (speed / (2 * FREQUENCY)) ** 2) / FREQUENCY


def pendulum_force(position):
    return -(FREQUENCY**2) * jnp.sin(position)


def coupled_force(position):
    """−∂U/∂q of U = 1 − cos q₁ + ½ (q₁ − q₂)² + ¼ q₂⁴: nonlinear and coupled."""
    first, second = position[0], position[1]
    spring = first - second
    return jnp.stack([-jnp.sin(first) - spring, spring - second**3])


def free_step(state, h, *, inertia, force):
    """The CD-Lagrange step with nothing to touch."""
    return cd_lagrange_step(
        state,
        h,
        inertia=inertia,
        force=lambda position, velocity: force(position),
        geometry=ContactGeometry(state.position.shape[0], state.position.shape[1]),
        detect=lambda position, velocity: jnp.zeros((0,), bool),
        impulse=lambda jacobian, inertia, before, smooth, touching: (jnp.zeros((0,)), jnp.ones((), bool)),
        project=lambda position, touching: position,
    )[0]


def free_motion(position, velocity, h, steps, factor, *, force, grid):
    """`steps` steps by "sample" or "half" grid CD-Lagrange, or by "verlet"; (q, v) on the sample grid."""
    inertia = InertiaMatrix(factor)

    def step(_, pair):
        _, state = pair
        if grid == "verlet":
            return state, velocity_verlet_step(state, h, inertia=inertia, force=force)
        return state, free_step(state, h, inertia=inertia, force=force)

    state = State(position, velocity)
    if grid == "half":
        state = to_half_grid(state, h, inertia=inertia, force=lambda position, velocity: force(position))
    before, state = lax.fori_loop(0, steps, step, (state, state))
    if grid == "half":
        none = ContactGeometry(*position.shape)
        state = to_sample_grid(before, state, inertia=inertia, geometry=none, touching=jnp.zeros((0,)))
    return state.position, state.velocity


compiled_motion = jax.jit(free_motion, static_argnames=("force", "grid"))


def measured_order(step_sizes, errors) -> float:
    """Slope of log error over log step size."""
    return float(np.polyfit(np.log(step_sizes), np.log(errors), 1)[0])


def unit_masses(bodies: int) -> Masses:
    return Masses(jnp.ones(bodies))
