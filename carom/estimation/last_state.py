"""The last state of a recorded motion, estimated by fitting a model to its final samples."""

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

WINDOW = 40
"""Greatest number of samples to which the model is fitted."""
FLIGHT = 12
"""Number of samples after the last impact that suffice without those before it."""
SEARCHED = 400
"""Number of samples at the end of a recording that are searched for impacts."""
ITERATIONS = 12


class FinalWindow(NamedTuple):
    """The final samples of a recording, and an initial guess of the state at the first of them."""

    guess: Float[Values, "state"]
    """Positions, then velocities."""
    duration: Float[Values, "steps"]
    observed: Float[Values, "samples 2 bodies dimension"]
    known: Bool[Values, "samples 2 bodies dimension"]
    noise: Float[Values, "2"]


def final_window(run: Run, scene: Scene, noise: tuple[float, float] | None = None) -> FinalWindow:
    """The samples that determine the last state: those since the last impact, or more if these are few.

    Arguments:
        run: a recorded motion.
        scene: the candidate contacts.
        noise: standard deviations of positions and velocities; by default estimated from the run.
    """
    run = run.part(slice(max(0, len(run) - SEARCHED), None))
    if len(run) < 3:
        raise InputError(
            f"A recording of {len(run)} samples is too short to estimate its last state; use at least 3."
        )
    (found,) = find_impacts([run], scene, masses_known=False)
    impact_steps = np.flatnonzero(found.chosen.any(axis=1))
    flight = len(run) - 1 - (impact_steps[-1] if len(impact_steps) else -1)
    start = len(run) - min(flight, WINDOW) if flight >= FLIGHT else max(0, len(run) - WINDOW)
    later = impact_steps[impact_steps >= start]
    earlier = impact_steps[impact_steps < start]
    low = max(start - FLIGHT // 2, earlier[-1] + 1 if len(earlier) else 0)
    high = min(start + FLIGHT, later[0] + 1 if len(later) else len(run))
    values = channels(run)[start:]
    deviations = np.array(found.noise if noise is None else noise, float)
    spread = np.array([np.nanstd(run.position), 1.0 if run.velocity is None else np.nanstd(run.velocity)])
    known = np.isfinite(values)
    return FinalWindow(
        guess=local_state(run, int(start), int(low), int(high)),
        duration=np.diff(run.time[start:]),
        observed=np.where(known, values, 0.0),
        known=known,
        # At least the resolution of 16 bits, so that noise-free data have finite weights.
        noise=np.where(np.isfinite(deviations), np.maximum(deviations, 1e-5 * spread), 1.0),
    )


def last_state(
    model: AbstractModel, window: FinalWindow, normal: Float[Array, "state"]
) -> tuple[State, State]:
    """The likeliest last state under a model, and a sample from its posterior (Laplace).

    Levenberg–Marquardt over the state at the beginning of the window.

    Arguments:
        model: predicts the motion within the window, including its contacts.
        window: the end of a recording.
        normal: standard normal numbers from which the sample is made.
    """
    shape = (2, *window.observed.shape[2:])
    noise, guess = jnp.asarray(window.noise), jnp.asarray(window.guess)
    size = guess.size

    def end_and_residuals(vector):
        position, velocity = vector.reshape(shape)
        motion = _follow(model, State(position, velocity), jnp.asarray(window.duration))
        predicted = jnp.stack([motion.position, motion.velocity], axis=1)
        residual = jnp.where(window.known, predicted - window.observed, 0.0) / noise[None, :, None, None]
        both = jnp.concatenate([predicted[-1].ravel(), residual.ravel()])
        return both, both

    # A weak prior around the guess keeps coordinates without any sample finite.
    precision = 1 / (100 * jnp.max(noise) + jnp.max(jnp.abs(guess))) ** 2

    def iterate(search: _Search, _):
        # As in `minimise`, an iteration evaluates the previous trial point and proposes a new one: the motion
        # and its derivative, which dominate the compilation, then occur only once.
        jacobian, value = jax.jacfwd(end_and_residuals, has_aux=True)(search.trial)
        deviation = search.trial - guess
        trial = _Point(
            search.trial,
            jnp.sum(value[size:] ** 2) + precision * jnp.sum(deviation**2),
            value[:size],
            jacobian[:size],
            jacobian[size:].T @ jacobian[size:] + precision * jnp.eye(size, dtype=guess.dtype),
            jacobian[size:].T @ value[size:] + precision * deviation,
        )
        better = trial.cost < search.best.cost
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), trial, search.best)
        damping = jnp.where(better, 0.1, 10.0) * search.damping
        damped = best.hessian + damping * jnp.diag(jnp.diagonal(best.hessian))
        return _Search(best, best.vector - inverse_of_blocks(damped) @ best.gradient, damping), None

    square = jnp.eye(size, dtype=guess.dtype)
    placeholder = _Point(guess, jnp.asarray(jnp.inf), guess, square, square, jnp.zeros_like(guess))
    first = _Search(placeholder, guess, jnp.asarray(1e-3))
    (best, _, _), _ = jax.lax.scan(iterate, first, length=ITERATIONS)
    factor = jnp.linalg.cholesky(inverse_of_blocks(best.hessian))
    sampled = best.end + best.end_jacobian @ (factor @ normal)
    return tuple(State(*vector.reshape(shape)) for vector in (best.end, sampled))  # pyright: ignore


class _Point(NamedTuple):
    vector: Float[Array, "state"]
    cost: Float[Array, ""]
    end: Float[Array, "state"]
    end_jacobian: Float[Array, "state state"]
    hessian: Float[Array, "state state"]
    gradient: Float[Array, "state"]


class _Search(NamedTuple):
    best: _Point
    trial: Float[Array, "state"]
    damping: Float[Array, ""]


def _follow(model: AbstractModel, start: State, duration: Float[Array, "steps"]) -> State:
    """The motion of the model from a start; only mechanisms allow steps of varying length."""
    if not isinstance(model, Mechanism):
        motion = forecast(model, start, len(duration))
        return State(motion.position, motion.velocity)
    modes = jnp.full((len(model.geometry),), BY_GAP)

    def step(state, length):
        after, contact, _ = model.move(state, length, modes)
        return after, model.leave(state, after, contact)

    _, later = jax.lax.scan(step, model.enter(start), jnp.asarray(duration))
    return prepend(start, later)
