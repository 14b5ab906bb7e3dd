"""The constraint-exact step for a ball, a pair and a batch, compiled once per shape."""

import jax
import jax.numpy as jnp
import numpy as np

from carom.integrators import constraint_exact_step
from carom.mechanics import ContactGeometry, Masses, Wall, chain
from carom.types import State

GRAVITY = 9.81
FLOOR = ContactGeometry(1, 1, (Wall(0, (1.0,)),))
PAIR = ContactGeometry(2, 1, chain(2))


def ball_flow(y, h, restitution):
    """(q, v) one step later, and the report."""
    state, report = constraint_exact_step(
        State(y[:1, None], y[1:, None]),
        h,
        inertia=Masses(jnp.array([2.0])),
        force=lambda q: jnp.full((1, 1), -2 * GRAVITY),
        geometry=FLOOR,
        restitution=jnp.full((1,), restitution),
    )
    return jnp.concatenate([state.position[:, 0], state.velocity[:, 0]]), report


def pair_flow(y, h, restitution, masses, forces, springs):
    """(q₁, q₂, v₁, v₂) one step later under F = forces − springs q³, and the report."""
    state, report = constraint_exact_step(
        State(y[:2, None], y[2:, None]),
        h,
        inertia=Masses(masses),
        force=lambda q: forces[:, None] - springs[:, None] * q**3,
        geometry=PAIR,
        restitution=jnp.full((1,), restitution),
    )
    return jnp.concatenate([state.position[:, 0], state.velocity[:, 0]]), report


ball_step, pair_step = jax.jit(ball_flow), jax.jit(pair_flow)
ball_derivative = jax.jit(jax.jacfwd(lambda *arguments: ball_flow(*arguments)[0]))
pair_derivative = jax.jit(jax.jacfwd(lambda *arguments: pair_flow(*arguments)[0]))
ball_batch = jax.jit(jax.vmap(ball_flow, in_axes=(0, None, None)))


def central_difference(step, y, size=1e-6):
    """Columns (f(y + δ) − f(y − δ)) / 2δ."""
    shifts = size * np.eye(len(y))
    return np.stack(
        [(np.asarray(step(y + d)) - np.asarray(step(y - d))) / (2 * size) for d in shifts], axis=1
    )
