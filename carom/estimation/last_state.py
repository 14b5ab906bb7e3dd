"""Where a recorded motion has arrived: its last state, by what a model makes of the last stretch."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.data import Run
from carom.data.recording import channels
from carom.errors import InputError
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.solver.linear_algebra import inverse_of_blocks
from carom.estimation.solver.segments import local_state
from carom.integrators import BY_GAP, prepend
from carom.mechanics import Scene
from carom.models import AbstractModel, Mechanism, forecast
from carom.types import State, Values

STRETCH = 40
"""Samples at the end of a recording that tell its last state."""
FLIGHT = 12
"""Samples since the last impact from which those before it are left aside."""
SEARCHED = 400
"""Samples at the end of a recording that are searched for impacts."""
ITERATIONS = 12


class Stretch(NamedTuple):
    """The end of a recording, and a first guess of the state in which it begins."""

    guess: Float[Values, "state"]
    """Positions, then velocities."""
    duration: Float[Values, "steps"]
    observed: Float[Values, "samples 2 bodies dimension"]
    known: Bool[Values, "samples 2 bodies dimension"]
    noise: Float[Values, "2"]


def last_stretch(run: Run, scene: Scene, noise: tuple[float, float] | None = None) -> Stretch:
    """The samples that tell the last state: those since the last impact, and more where these are few.

    Arguments:
        run: a recorded motion.
        scene: the candidate contacts.
        noise: standard deviations of positions and velocities; by default from how rough the motion is.
    """
    run = run.part(slice(max(0, len(run) - SEARCHED), None))
    if len(run) < 3:
        raise InputError(f"A recording of {len(run)} samples is too short to tell its last state.")
    found = find_impacts(run, scene, sensor=None, masses_known=False)
    impact_steps = np.flatnonzero(found.chosen.any(axis=1))
    flight = len(run) - 1 - (impact_steps[-1] if len(impact_steps) else -1)
    start = len(run) - min(flight, STRETCH) if flight >= FLIGHT else max(0, len(run) - STRETCH)
    later = impact_steps[impact_steps >= start]
    earlier = impact_steps[impact_steps < start]
    low = max(start - FLIGHT // 2, earlier[-1] + 1 if len(earlier) else 0)
    high = min(start + FLIGHT, later[0] + 1 if len(later) else len(run))
    values = channels(run)[start:]
    rough = np.array(found.noise if noise is None else noise, float)
    spread = np.array([np.nanstd(run.position), 1.0 if run.velocity is None else np.nanstd(run.velocity)])
    known = np.isfinite(values)
    return Stretch(
        guess=local_state(run, int(start), int(low), int(high)),
        duration=np.diff(run.time[start:]),
        observed=np.where(known, values, 0.0),
        known=known,
        # Below the resolution of a recording there is no telling.
        noise=np.where(np.isfinite(rough), np.maximum(rough, 1e-5 * spread), 1.0),
    )


def last_state(model: AbstractModel, stretch: Stretch, normal: Float[Array, "state"]) -> tuple[State, State]:
    """The likeliest last state by this model, and one drawn from those that the noise allows.

    Levenberg–Marquardt over the state in which the stretch begins.

    Arguments:
        model: what moves from the beginning of the stretch to its end, with contacts of its own.
        stretch: the end of a recording.
        normal: standard normal numbers, which choose the one that is drawn.
    """
    shape = (2, *stretch.observed.shape[2:])
    noise, guess = jnp.asarray(stretch.noise), jnp.asarray(stretch.guess)
    size = guess.size

    def end_and_residuals(vector):
        position, velocity = vector.reshape(shape)
        motion = _follow(model, State(position, velocity), jnp.asarray(stretch.duration))
        predicted = jnp.stack([motion.position, motion.velocity], axis=1)
        away = jnp.where(stretch.known, predicted - stretch.observed, 0.0) / noise[None, :, None, None]
        both = jnp.concatenate([predicted[-1].ravel(), away.ravel()])
        return both, both

    # The guess is worth little, yet keeps what no sample tells.
    precision = 1 / (100 * jnp.max(noise) + jnp.max(jnp.abs(guess))) ** 2

    def iterate(search: _Search, _):
        # Every turn judges the point tried before and tries a new one, so that the motion and its derivative
        # stand here only once, which is most of what must be compiled.
        jacobian, value = jax.jacfwd(end_and_residuals, has_aux=True)(search.tried)
        away = search.tried - guess
        tried = _Point(
            search.tried,
            jnp.sum(value[size:] ** 2) + precision * jnp.sum(away**2),
            value[:size],
            jacobian[:size],
            jacobian[size:].T @ jacobian[size:] + precision * jnp.eye(size, dtype=guess.dtype),
            jacobian[size:].T @ value[size:] + precision * away,
        )
        better = tried.cost < search.best.cost
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), tried, search.best)
        damping = jnp.where(better, 0.1, 10.0) * search.damping
        damped = best.hessian + damping * jnp.diag(jnp.diagonal(best.hessian))
        return _Search(best, best.vector - inverse_of_blocks(damped) @ best.gradient, damping), None

    square = jnp.eye(size, dtype=guess.dtype)
    nothing = _Point(guess, jnp.asarray(jnp.inf), guess, square, square, jnp.zeros_like(guess))
    first = _Search(nothing, guess, jnp.asarray(1e-3))
    (best, _, _), _ = jax.lax.scan(iterate, first, length=ITERATIONS)
    factor = jnp.linalg.cholesky(inverse_of_blocks(best.hessian))
    drawn = best.end + best.end_slope @ (factor @ normal)
    return tuple(State(*vector.reshape(shape)) for vector in (best.end, drawn))  # pyright: ignore


class _Point(NamedTuple):
    vector: Float[Array, "state"]
    cost: Float[Array, ""]
    end: Float[Array, "state"]
    end_slope: Float[Array, "state state"]
    hessian: Float[Array, "state state"]
    gradient: Float[Array, "state"]


class _Search(NamedTuple):
    best: _Point
    tried: Float[Array, "state"]
    damping: Float[Array, ""]


def _follow(model: AbstractModel, start: State, duration: Float[Array, "steps"]) -> State:
    """The motion from a start, contacts by the model; steps may vary where the model allows it."""
    if not isinstance(model, Mechanism):
        motion = forecast(model, start, len(duration))
        return State(motion.position, motion.velocity)
    modes = jnp.full((len(model.geometry),), BY_GAP)

    def step(state, length):
        after, contact, _ = model.move(state, length, modes)
        return after, model.leave(state, after, contact)

    _, later = jax.lax.scan(step, model.enter(start), jnp.asarray(duration))
    return prepend(start, later)
