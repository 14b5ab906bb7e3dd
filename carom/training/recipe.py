"""The paper's recipe: minibatch Adam over short windows, for one model or for many at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from carom.data import Recording
from carom.errors import InputError
from carom.models import AbstractModel
from carom.notebook import curves, table
from carom.storage.checkpoints import Progress
from carom.storage.tensor_file import arrays_by_place
from carom.training.ensembles import Parts
from carom.training.loop import ADAM, Program, Rates, bytes_each, train
from carom.training.loss import Losses, WindowedSettings
from carom.training.windows import recorded_windows

Model = TypeVar("Model", bound=AbstractModel)

DIFFERENT = "What is trained together must have the same class, scene, options and number of windows."


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
    settings: WindowedSettings | Sequence[WindowedSettings] | None = None,
    *,
    seeds: Sequence[int],
    memory: float | None = None,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> list[Fit[Model]]:
    """Train several models of one shape together, in one program, each on its own recording.

    The result for each model is that of training it alone with its seed, up to rounding.

    Arguments:
        models: where training starts.
        recordings: one for each model, with as many windows; or a single one for all, kept once.
        settings: hyperparameters; or one set for each model, that differ in `learning_rate` and `l2` alone.
        seeds: order of the minibatches of each.
        memory: bytes that training may take on one device, a quarter of what it has by default. Where that is
            not enough for all models, they are trained in parts. All devices of this machine are used.
        progress, checkpoints: as in `fit_windowed`.
    """
    chosen = [settings] if isinstance(settings, WindowedSettings) else list(settings or [WindowedSettings()])
    chosen = chosen * len(models) if len(chosen) == 1 else chosen
    shared = len(recordings) == 1
    if not len(models) == len(seeds) == len(chosen) or len(recordings) not in (1, len(models)):
        raise InputError("fit_many needs as many recordings, settings and seeds as models.")
    settings = chosen[0]
    if any(replace(one, learning_rate=settings.learning_rate, l2=settings.l2) != settings for one in chosen):
        raise InputError("What is trained together may differ in learning_rate and l2 alone.")
    recorded, counts = zip(*(recorded_windows(models[0], one, settings) for one in recordings), strict=True)
    if len(set(counts)) > 1:
        raise InputError(DIFFERENT)
    parameters = eqx.filter(together(models), eqx.is_inexact_array)
    fixed = eqx.filter(models[0], eqx.is_inexact_array, inverse=True)
    data = recorded[0] if shared else together(recorded)
    dtype = recorded[0].position.dtype
    rates = Rates(*(jnp.asarray([getattr(one, name) for one in chosen], dtype) for name in Rates._fields))
    program = Program.of(settings, windows=counts[0], shared=shared)
    parts = Parts.of(len(models), bytes_each(program, parameters, data, fixed), memory=memory)
    program = replace(program, devices=parts.devices)
    described = [
        (type(model).__name__, model.options, model.scene, model.step_size, arrays_by_place(model))
        for model in models
    ]
    done_so_far = Progress(checkpoints, described, recordings, chosen, tuple(seeds), tuple(parts))

    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    # As arrays, or else they would be built into the program.
    count = jnp.asarray(counts[0], jnp.int32)
    steps = jnp.asarray(settings.epochs * -(-counts[0] // settings.batch_size), dtype)
    fits: list[Fit[Model]] = []
    for number, members in enumerate(parts.each()):
        own = jax.tree.map(lambda leaf, members=members: leaf[members], (parameters, keys, rates))
        carry = (own[0], jax.vmap(ADAM.init)(own[0]), own[1])
        windows = data if shared else jax.tree.map(lambda leaf, members=members: leaf[members], data)
        stage = done_so_far.stage(carry, tuple(Losses._fields))
        history = []
        for done, epochs in _chunks(settings.epochs):
            make = replace(program, epochs=epochs)
            carry, losses = stage.round(partial(train, make, carry, windows, own[2], count, steps, fixed))
            history.append(jax.tree.map(np.asarray, Losses(*losses)))
            if progress is not None:
                progress((number + (done + epochs) / settings.epochs) / len(parts.each()))
        trained = jax.tree.map(np.asarray, carry[0])
        losses = jax.tree.map(lambda *pieces: np.concatenate(pieces, axis=1), *history)
        fits += [
            Fit(
                eqx.combine(jax.tree.map(lambda leaf, row=row: jnp.asarray(leaf[row]), trained), fixed),
                Losses(*(part[row] for part in losses)),
                chosen[len(fits) + row],
                done_so_far.seconds,
            )
            for row in range(min(parts.size, len(models) - len(fits)))
        ]
    return fits


def _chunks(epochs: int) -> list[tuple[int, int]]:
    """(epochs before, epochs in) about twenty chunks; one length, hence one program, where that divides."""
    size = next((size for size in range(-(-epochs // 20), -(-epochs // 10)) if epochs % size == 0), None)
    size = size or -(-epochs // 20)
    return [(done, min(size, epochs - done)) for done in range(0, epochs, size)]


def together(trees: Sequence[PyTree]) -> PyTree:
    """Models, or recordings, as one: arrays get an axis over `trees` first; their static parts must agree."""
    shapes = [jax.tree.map(jnp.shape, eqx.filter(tree, eqx.is_array)) for tree in trees]
    if any(
        jax.tree.structure(tree) != jax.tree.structure(trees[0]) or shape != shapes[0]
        for tree, shape in zip(trees, shapes, strict=True)
    ):
        raise InputError(DIFFERENT)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *trees)
