"""The paper's recipe: minibatch Adam over short windows, as one compiled program.

Cut the recording into windows of a fixed horizon; start each at its first observation as if it were true;
roll the model out with the observed touch driving its impulses; minimise

    mean squared state error + cross-entropy of the contact signal + ℓ² of the potential's kernels.

Without touch there are no labels: the model's own soft contact signal gates its impulses, and the
cross-entropy is absent.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from carom.data import Recording, Windows, cut_windows
from carom.errors import InputError, require_choice
from carom.integrators import consecutive
from carom.models import AbstractModel, batched_rollout
from carom.types import State

Touch = Literal["observed", "none"]
Schedule = Literal["constant", "cosine"]
Reduction = Literal["mean", "sum"]
ContactInputs = Literal["observed", "predicted"]
Model = TypeVar("Model", bound=AbstractModel)


@dataclass(frozen=True)
class WindowedSettings:
    """Hyperparameters of the paper's recipe.

    The defaults are ones that serve; those of the paper and of its code are in `carom.experiments.paper`.

    Arguments:
        horizon: steps per window.
        stride: samples between window starts; 1 gives overlapping windows, horizon + 1 disjoint ones.
        batch_size: windows per gradient step.
        epochs: passes over all windows.
        learning_rate: of Adam.
        schedule: whether the rate stays constant or falls to zero along a cosine.
        l2: strength of ℓ² on the potential's kernels.
        reduction: whether errors are averaged ("mean", the text) or summed ("sum", the published code) over
            the horizon.
        contact_inputs: whether the contact signal's cross-entropy is evaluated on observed states and their
            drift (the text) or on predicted ones (the published code).
        touch: whether recorded touch drives the impulses, or there is none.
    """

    horizon: int = 10
    stride: int = 1
    batch_size: int = 32
    epochs: int = 600
    learning_rate: float = 1e-2
    schedule: Schedule = "cosine"
    l2: float = 1e-4
    reduction: Reduction = "sum"
    contact_inputs: ContactInputs = "observed"
    touch: Touch = "observed"

    def __post_init__(self):
        for name in ("horizon", "stride", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but it is {getattr(self, name)}.")
        if not (np.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"learning_rate must be positive, but it is {self.learning_rate}.")
        if not (np.isfinite(self.l2) and self.l2 >= 0):
            raise InputError(f"l2 must not be negative, but it is {self.l2}.")
        require_choice("schedule", self.schedule, Schedule)
        require_choice("reduction", self.reduction, Reduction)
        require_choice("contact_inputs", self.contact_inputs, ContactInputs)
        require_choice("touch", self.touch, Touch)


class Losses(NamedTuple):
    """The parts of the loss, per epoch."""

    state: Float[Array, "*shape"]
    contact: Float[Array, "*shape"]
    penalty: Float[Array, "*shape"]


@dataclass(frozen=True)
class Fit(Generic[Model]):
    """A trained model and how it got there."""

    model: Model
    history: Losses
    settings: WindowedSettings
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether training ended in numbers that are not finite."""
        return not all(np.isfinite(part[-1]) for part in self.history)


class _Batch(NamedTuple):
    """Windows as arrays in the precision of the weights."""

    position: Float[Array, "windows samples bodies dimension"]
    velocity: Float[Array, "windows samples bodies dimension"]
    touch: Bool[Array, "windows samples bodies"]


def fit_windowed(
    model: Model,
    recording: Recording,
    settings: WindowedSettings | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Fit[Model]:
    """Train one model by the paper's recipe.

    Arguments:
        model: where training starts.
        recording: what it learns from.
        settings: hyperparameters.
        seed: order of the minibatches.
        progress: called with the share of epochs done, some twenty times.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.Pendulum(), steps=60, step_size=0.02)
        >>> model = carom.models.ResNet.for_recording(recording, hidden=16, key=jax.random.key(0))
        >>> fit = carom.fit(model, recording, WindowedSettings(epochs=20))
        >>> bool(fit.history.state[-1] < fit.history.state[0])
        True
    """
    (fit,) = fit_many([model], [recording], settings, seeds=[seed], progress=progress)
    return fit


def fit_many(
    models: Sequence[Model],
    recordings: Sequence[Recording],
    settings: WindowedSettings | None = None,
    *,
    seeds: Sequence[int],
    progress: Callable[[float], None] | None = None,
) -> list[Fit[Model]]:
    """Train several models of one shape together, in one program, each on its own recording.

    The result for each model is that of training it alone with its seed, up to rounding. Pass one recording
    to train all models on it.
    """
    settings = settings or WindowedSettings()
    if len(recordings) == 1:
        recordings = list(recordings) * len(models)
    if not len(models) == len(recordings) == len(seeds):
        raise InputError("fit_many needs as many recordings and seeds as models.")
    windows = [
        _as_batch(models[0], cut_windows(r, horizon=settings.horizon, stride=settings.stride), settings, r)
        for r in recordings
    ]
    started = time.perf_counter()
    parameters, fixed = eqx.partition(_stack(models), eqx.is_inexact_array)
    batch = _stack(windows)
    optimiser_state = jax.vmap(_optimiser(settings, batch.position.shape[1]).init)(parameters)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))

    history = []
    carry = (parameters, optimiser_state, keys)
    for done, epochs in _chunks(settings.epochs):
        carry, losses = _train(carry, batch, fixed, settings, epochs)
        history.append(jax.tree.map(np.asarray, losses))
        if progress is not None:
            progress((done + epochs) / settings.epochs)
    trained = eqx.combine(carry[0], fixed)
    losses = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *history)
    seconds = time.perf_counter() - started
    return [
        Fit(_take(trained, i), Losses(*(part[i] for part in losses)), settings, seconds)
        for i in range(len(models))
    ]


def window_losses(model: AbstractModel, batch: _Batch, settings: WindowedSettings) -> Losses:
    """State error and contact cross-entropy of every window in a batch, and the ℓ² penalty of the model."""
    starts, first_target = _starts(model, batch)
    contact = _over_steps(model.contact.from_touch)(
        batch.touch[:, first_target:], batch.position[:, first_target:]
    )
    steps = contact.shape[1]
    given = contact if settings.touch == "observed" else None
    own = batched_rollout(model, starts, given, steps=steps)
    before, after = jax.vmap(consecutive)(own)
    signals = contact if given is not None else _over_steps(model.gate)(before)
    predicted = _over_steps(model.leave)(before, after, signals)

    errors = (predicted.position - batch.position[:, first_target:]) ** 2
    if model.predicts_velocity:
        velocity_errors = (predicted.velocity - batch.velocity[:, first_target:]) ** 2
        errors = jnp.concatenate([errors, velocity_errors], axis=-1)
    state = _reduce(jnp.mean(errors, axis=(2, 3)), settings)

    entropy = jnp.zeros_like(state)
    if model.contact.size and settings.touch == "observed":
        if settings.contact_inputs == "observed":
            observed = State(batch.position[:, :-1], batch.velocity[:, :-1])
            before = jax.lax.stop_gradient(_over_steps(model.enter)(observed))
        logits = _over_steps(model.contact_logits)(before)
        touch = batch.touch[:, -logits.shape[1] :]
        entropy = _reduce(_over_steps(model.contact.cross_entropy)(logits, touch), settings)

    penalty = settings.l2 * sum(
        (jnp.sum(kernel**2) for kernel in model.penalised()), jnp.zeros((), state.dtype)
    )
    return Losses(state, entropy, jnp.broadcast_to(penalty, state.shape))


def _starts(model: AbstractModel, batch: _Batch) -> tuple[State, int]:
    """Start states of the windows on the model's own grid, and the first sample that is predicted."""
    if model.predicts_velocity:
        return jax.vmap(model.enter)(State(batch.position[:, 0], batch.velocity[:, 0])), 1
    # A model of positions alone starts from two of them; its own velocity is their difference.
    earlier, later = batch.position[:, 0], batch.position[:, 1]
    return State(later, (later - earlier) / model.step_size), 2


def _over_steps(function: Callable) -> Callable:
    """Apply to every step of every window, as one flat batch: matrix products then have one long axis."""

    def apply(*trees):
        shape = jax.tree.leaves(trees)[0].shape[:2]
        flat = jax.tree.map(lambda x: x.reshape(shape[0] * shape[1], *x.shape[2:]), trees)
        return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), jax.vmap(function)(*flat))

    return apply


def _reduce(per_step: Float[Array, "windows steps"], settings: WindowedSettings) -> Float[Array, "windows"]:
    return (jnp.mean if settings.reduction == "mean" else jnp.sum)(per_step, axis=1)


@eqx.filter_jit
def _train(carry, batch: _Batch, fixed: PyTree, settings: WindowedSettings, epochs: int):
    """Train all seeds for some epochs; one program for every chunk of a fit, and for every fit alike."""
    optimiser = _optimiser(settings, batch.position.shape[1])

    def loss(parameters, chosen: _Batch, weight: Float[Array, "windows"]):
        losses = window_losses(eqx.combine(parameters, fixed), chosen, settings)
        mean = Losses(*(jnp.sum(weight * part) / jnp.sum(weight) for part in losses))
        return sum(mean), mean

    def step(batch: _Batch, carry, choice):
        parameters, optimiser_state = carry
        index, weight = choice
        chosen = jax.tree.map(lambda x: x[index], batch)
        gradient, losses = jax.grad(loss, has_aux=True)(parameters, chosen, weight)
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, parameters)
        return (optax.apply_updates(parameters, updates), optimiser_state), (losses, jnp.sum(weight))

    def epoch(batch: _Batch, carry, _):
        parameters, optimiser_state, key = carry
        key, order_key = jax.random.split(key)
        windows, dtype = len(batch.position), batch.position.dtype
        choices = _minibatches(order_key, windows, settings.batch_size, dtype)
        carry, (losses, sizes) = jax.lax.scan(partial(step, batch), (parameters, optimiser_state), choices)
        means = jax.tree.map(lambda part: jnp.sum(sizes * part) / jnp.sum(sizes), losses)
        return (*carry, key), means

    return jax.vmap(lambda carry, batch: jax.lax.scan(partial(epoch, batch), carry, length=epochs))(
        carry, batch
    )


def _minibatches(key: Key[Array, ""], count: int, size: int, dtype) -> tuple[Array, Array]:
    """A random order cut into batches; the last is padded with repeats of weight 0."""
    size = min(size, count)
    batches = -(-count // size)
    order = jax.random.permutation(key, count)
    padded = jnp.concatenate([order, jnp.zeros((batches * size - count,), order.dtype)])
    weight = (jnp.arange(batches * size) < count).astype(dtype)
    return padded.reshape(batches, size), weight.reshape(batches, size)


def _optimiser(settings: WindowedSettings, windows: int) -> optax.GradientTransformation:
    if settings.schedule == "constant":
        return optax.adam(settings.learning_rate)
    steps = settings.epochs * -(-windows // settings.batch_size)
    return optax.adam(optax.cosine_decay_schedule(settings.learning_rate, steps))


def _chunks(epochs: int) -> list[tuple[int, int]]:
    """(epochs before, epochs in) about twenty chunks; one length, hence one program, where that divides."""
    size = next((size for size in range(-(-epochs // 20), -(-epochs // 10)) if epochs % size == 0), None)
    size = size or -(-epochs // 20)
    return [(done, min(size, epochs - done)) for done in range(0, epochs, size)]


def _as_batch(
    model: AbstractModel, windows: Windows, settings: WindowedSettings, recording: Recording
) -> _Batch:
    if windows.velocity is None and model.predicts_velocity:
        raise InputError(
            "The paper's recipe starts every window at a measured velocity, and this recording has none: add "
            "velocity columns, or use the Störmer–Verlet network, which needs positions alone."
        )
    if not recording.has_touch and settings.touch == "observed" and model.contact.size:
        raise InputError('This recording has no touch channel: add one, or choose touch "none".')
    if windows.horizon < 2 and not model.predicts_velocity:
        raise InputError("A model of positions alone needs a horizon of at least 2.")
    velocity = np.zeros_like(windows.position) if windows.velocity is None else windows.velocity
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    return _Batch(
        jnp.asarray(windows.position, dtype), jnp.asarray(velocity, dtype), jnp.asarray(windows.touch)
    )


def _stack(trees: Sequence[PyTree]) -> PyTree:
    """One tree whose arrays have a leading axis over `trees`; their static parts must agree."""
    shapes = [jax.tree.map(jnp.shape, eqx.filter(tree, eqx.is_array)) for tree in trees]
    if any(
        jax.tree.structure(tree) != jax.tree.structure(trees[0]) or shape != shapes[0]
        for tree, shape in zip(trees, shapes, strict=True)
    ):
        raise InputError(
            "What is trained together must have the same class, scene, options and number of windows."
        )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees)


def _take(tree: PyTree, index: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, tree)
