"""The paper's recipe: minibatch Adam over short windows, as one compiled program for all seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key, PyTree

from carom.data import Recording
from carom.errors import InputError
from carom.learning.checkpoints import Progress
from carom.learning.tensor_file import arrays_by_place
from carom.learning.window_loss import Losses, WindowBatch, WindowedSettings, window_batch, window_losses
from carom.models import AbstractModel
from carom.notebook import curves, table

Model = TypeVar("Model", bound=AbstractModel)


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

    def _repr_html_(self) -> str:
        losses = np.stack([np.asarray(part, float) for part in self.history], axis=1)
        rows = [
            ("state", "failed: not finite" if self.failed else "done"),
            ("model", type(self.model).__name__),
            *((f"last loss, {name}", f"{part[-1]:.4g}") for name, part in self.history._asdict().items()),
            ("epochs", str(len(losses))),
            ("took", f"{self.seconds:.1f} s"),
        ]
        epochs = np.arange(1.0, len(losses) + 1)
        picture = curves(epochs, np.log10(np.maximum(losses, 1e-30)), x="epoch", y="log10 of the losses")
        return table("Fit by the paper's recipe", rows) + picture


def fit_windowed(
    model: Model,
    recording: Recording,
    settings: WindowedSettings | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> Fit[Model]:
    """Train one model by the paper's recipe.

    Arguments:
        model: where training starts.
        recording: what it learns from.
        settings: hyperparameters.
        seed: order of the minibatches.
        progress: called with the share of epochs done, some twenty times.
        checkpoints: a folder where what is done is kept as often; the same fit continues from there.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.Pendulum(), steps=60, step_size=0.02)
        >>> model = carom.models.ResNet.for_recording(recording, hidden=16, key=jax.random.key(0))
        >>> fit = carom.fit(model, recording, WindowedSettings(epochs=20))
        >>> bool(fit.history.state[-1] < fit.history.state[0])
        True
    """
    (fit,) = fit_many(
        [model], [recording], settings, seeds=[seed], progress=progress, checkpoints=checkpoints
    )
    return fit


def fit_many(
    models: Sequence[Model],
    recordings: Sequence[Recording],
    settings: WindowedSettings | None = None,
    *,
    seeds: Sequence[int],
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
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
    windows = [window_batch(models[0], recording, settings) for recording in recordings]
    described = [
        (type(model).__name__, model.options, model.scene, model.step_size, arrays_by_place(model))
        for model in models
    ]
    done_so_far = Progress(checkpoints, described, recordings, settings, tuple(seeds))
    parameters, fixed = eqx.partition(together(models), eqx.is_inexact_array)
    batch = together(windows)
    optimiser_state = jax.vmap(_optimiser(settings, batch.position.shape[1]).init)(parameters)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))

    history = []
    carry = (parameters, optimiser_state, keys)
    stage = done_so_far.stage(carry, tuple(Losses._fields))
    for done, epochs in _chunks(settings.epochs):
        carry, losses = stage.round(partial(_train, carry, batch, fixed, settings, epochs))
        history.append(jax.tree.map(np.asarray, Losses(*losses)))
        if progress is not None:
            progress((done + epochs) / settings.epochs)
    trained = eqx.combine(carry[0], fixed)
    losses = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *history)
    return [
        Fit(_take(trained, i), Losses(*(part[i] for part in losses)), settings, done_so_far.seconds)
        for i in range(len(models))
    ]


@eqx.filter_jit
def _train(carry, batch: WindowBatch, fixed: PyTree, settings: WindowedSettings, epochs: int):
    """Train all seeds for some epochs; one program for every chunk of a fit, and for every fit alike."""
    optimiser = _optimiser(settings, batch.position.shape[1])

    def loss(parameters, chosen: WindowBatch, weight: Float[Array, "windows"]):
        losses = window_losses(eqx.combine(parameters, fixed), chosen, settings)
        mean = Losses(*(jnp.sum(weight * part) / jnp.sum(weight) for part in losses))
        return sum(mean), mean

    def step(batch: WindowBatch, carry, choice):
        parameters, optimiser_state = carry
        index, weight = choice
        chosen = jax.tree.map(lambda x: x[index], batch)
        gradient, losses = jax.grad(loss, has_aux=True)(parameters, chosen, weight)
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = optimiser.update(gradient, optimiser_state, parameters)
        return (optax.apply_updates(parameters, updates), optimiser_state), (losses, jnp.sum(weight))

    def epoch(batch: WindowBatch, carry, _):
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


def together(trees: Sequence[PyTree]) -> PyTree:
    """Models, or batches, as one: arrays get a leading axis over `trees`, whose static parts must agree."""
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
