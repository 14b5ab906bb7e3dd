"""Motions known in closed form, in NumPy and SciPy, and start states in float64."""

import jax.numpy as jnp
import numpy as np
from scipy.special import ellipj, ellipk

from carom.types import State


def start_state(position, velocity) -> State:
    """Bodies on a line."""
    return State(jnp.asarray(position, float)[:, None], jnp.asarray(velocity, float)[:, None])


def pendulum_from_rest(amplitude, frequency, time):
    """θ̈ = −ω² sin θ from rest at `amplitude`: θ = 2 arcsin(k cd(ω t | k²)), k = sin(amplitude/2)."""
    k = np.sin(amplitude / 2)
    sn, cn, dn, _ = ellipj(frequency * time, k**2)
    return 2 * np.arcsin(k * cn / dn), -2 * k * frequency * np.sqrt(1 - k**2) * sn / dn


def pendulum_from_bottom(speed, frequency, time):
    """The same from the bottom at `speed`: θ = 2 arcsin(k sn(ω t | k²)), k = speed/(2ω)."""
    k = speed / (2 * frequency)
    sn, cn, _, _ = ellipj(frequency * time, k**2)
    return 2 * np.arcsin(k * sn), 2 * k * frequency * cn


def time_between_bottoms(speed, frequency):
    """Half a period: 2 K(k²)/ω."""
    return 2 * ellipk((speed / (2 * frequency)) ** 2) / frequency


def damped_oscillation(amplitude, frequency, decay, time):
    """θ̈ = −ω² θ − 2γ θ̇ from rest at `amplitude`, for γ < ω."""
    shifted = np.sqrt(frequency**2 - decay**2)
    angle = (
        amplitude
        * np.exp(-decay * time)
        * (np.cos(shifted * time) + decay / shifted * np.sin(shifted * time))
    )
    speed = -amplitude * np.exp(-decay * time) * frequency**2 / shifted * np.sin(shifted * time)
    return angle, speed


def bounces(height, gravity, restitution, count):
    """Instants of the first impacts of a ball dropped from rest, and the speeds just after them."""
    fall, landing = np.sqrt(2 * height / gravity), np.sqrt(2 * gravity * height)
    speeds = landing * restitution ** np.arange(1, count + 1)
    instants = fall + np.concatenate([[0.0], np.cumsum(2 * speeds[:-1] / gravity)])
    return instants, speeds
