"""The paper's recipe: minibatch Adam over short windows, for one model or an ensemble."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Int, PyTree

from carom.data import Recording
from carom.errors import InputError
from carom.models import AbstractModel
from carom.notebook import table
from carom.storage.checkpoints import Progress
from carom.storage.tensor_file import arrays_by_place
from carom.training.ensembles import INCOMPATIBLE, Partition, stack_models
from carom.training.epochs import ADAM, Program, Rates, bytes_each, train_epochs
from carom.training.loss import Losses
from carom.training.settings import TrainingSettings
from carom.training.windows import recorded_windows, sort_rounds

Model = TypeVar("Model", bound=AbstractModel)


@dataclass(frozen=True)
class TrainingResult(Generic[Model]):
    """A trained model, the mean loss of every epoch, and the time that training took."""

    model: Model
    history: Losses
    settings: TrainingSettings
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether training diverged to numbers that are not finite."""
        return not all(np.isfinite(part[-1]) for part in self.history)

    def _repr_html_(self) -> str:
        rows = [
            ("status", "failed: the loss is not finite" if self.failed else "finished"),
            ("model", type(self.model).__name__),
            *((f"final loss, {name}", f"{part[-1]:.4g}") for name, part in self.history._asdict().items()),
            ("epochs", str(len(self.history[0]))),
            ("training time", f"{self.seconds:.1f} s"),
        ]
        return table("Training by the paper's recipe", rows)


def train(
    model: Model,
    recording: Recording,
    settings: TrainingSettings | None = None,
    *,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> TrainingResult[Model]:
    """Train one model by the paper's recipe.

    Arguments:
        model: the model with its initial weights.
        recording: the training data.
        settings: hyperparameters.
        seed: of the order of the minibatches.
        progress: called about twenty times with the fraction of epochs done.
        checkpoints: a folder for checkpoints, written as often; the same training resumes from there.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.Pendulum(), steps=60, step_size=0.02)
        >>> model = carom.models.ResNet.for_recording(recording, hidden=16, key=jax.random.key(0))
        >>> result = carom.fit(model, recording, TrainingSettings(epochs=20))
        >>> bool(result.history.state[-1] < result.history.state[0])
        True
    """
    return train_many(
        [model], [recording], settings, seeds=[seed], progress=progress, checkpoints=checkpoints
    )[0]


def train_many(
    models: Sequence[Model],
    recordings: Sequence[Recording],
    settings: TrainingSettings | Sequence[TrainingSettings] | None = None,
    *,
    seeds: Sequence[int],
    memory: float | None = None,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> list[TrainingResult[Model]]:
    """Train an ensemble of models of one shape in one program, each on its own recording.

    The result for each model is that of training it alone with its seed, up to rounding.

    Arguments:
        models: the models with their initial weights.
        recordings: one for each model, with equal numbers of windows; or a single one for all, stored once.
        settings: hyperparameters; or one set for each model, differing in `learning_rate` and `l2` only.
        seeds: of the order of the minibatches of each model.
        memory: bytes that training may use on one device, a quarter of what it has by default. If that is
            not enough for all models, they are trained in groups. All local devices are used.
        progress, checkpoints: as in `train`.
    """
    chosen = [settings] if isinstance(settings, TrainingSettings) else list(settings or [TrainingSettings()])
    chosen = chosen * len(models) if len(chosen) == 1 else chosen
    if not len(models) == len(seeds) == len(chosen) or len(recordings) not in (1, len(models)):
        raise InputError("train_many needs as many recordings, settings and seeds as models.")
    settings, shared = chosen[0], len(recordings) == 1
    if any(replace(one, learning_rate=settings.learning_rate, l2=settings.l2) != settings for one in chosen):
        raise InputError("Models that are trained together may differ in learning_rate and l2 only.")
    recorded, counts = zip(*(recorded_windows(models[0], one, settings) for one in recordings), strict=True)
    if len(set(counts)) > 1:
        raise InputError(INCOMPATIBLE)
    # On the host: on a GPU every little operation on arrays of new shapes is a program to compile.
    windows = recorded[0] if shared else stack_models(recorded, on_host=True)
    parameters = stack_models([eqx.filter(model, eqx.is_inexact_array) for model in models], on_host=True)
    fixed = eqx.filter(models[0], eqx.is_inexact_array, inverse=True)
    # From shapes alone: nothing is allocated before the members are divided into groups.
    needed = bytes_each(settings, parameters, windows, fixed, shared=shared)
    partition = Partition.of(len(models), needed, memory=memory)
    dtype = windows.samples.position.dtype
    rates = [np.asarray([getattr(one, name) for one in chosen], dtype) for name in Rates._fields]
    # Arrays rather than numbers, which would be compiled into the program as constants.
    count = jax.device_put(np.asarray(counts[0], np.int32))
    steps = jax.device_put(np.asarray(settings.epochs * -(-counts[0] // settings.batch_size), dtype))
    # A checkpoint is found by everything that its numbers depend on.
    described = [
        (type(model).__name__, model.options, model.scene, model.step_size, arrays_by_place(model))
        for model in models
    ]
    work = Progress(checkpoints, described, recordings, chosen, tuple(seeds), tuple(partition))
    results: list[TrainingResult[Model]] = []
    for number, members in enumerate(partition.groups()):
        own_parameters = _take(parameters, members)
        own_rates = Rates(*(jax.device_put(values[members]) for values in rates))
        own_keys = jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32)[members])
        own_windows = windows if shared else jax.device_put(_take(windows, members))
        # Adam begins with zeros.
        states = jax.eval_shape(jax.vmap(ADAM.init), own_parameters)
        moments = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), states)
        # On the device, like what later chunks start from.
        carry = (*jax.device_put((own_parameters, moments)), own_keys)
        stage = work.stage(carry, tuple(Losses._fields))
        history = []
        for done, epochs in _chunks(settings.epochs):
            # Learning rate and ℓ² are inputs, so that programs are shared between their values.
            part = replace(settings, learning_rate=1.0, l2=0.0, epochs=epochs)
            program = Program(part, sort_rounds(counts[0]), shared, partition.devices)
            make = partial(train_epochs, program, carry, own_windows, own_rates, count, steps, fixed)
            carry, losses = stage.round(make)
            history.append(jax.tree.map(np.asarray, Losses(*losses)))
            if progress is not None:
                progress((number + (done + epochs) / settings.epochs) / len(partition.groups()))
        trained = jax.tree.map(np.asarray, carry[0])
        losses = jax.tree.map(lambda *chunks: np.concatenate(chunks, axis=1), *history)
        for row, member in enumerate(members[: len(models) - len(results)]):
            model = eqx.combine(jax.device_put(_take(trained, row)), fixed)
            results.append(TrainingResult(model, _take(losses, row), chosen[member], work.seconds))
    return results


def _take(tree: PyTree, index: int | Int[np.ndarray, "members"]) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def _chunks(epochs: int) -> list[tuple[int, int]]:
    """(epochs before, epochs in) about twenty chunks, of one length where that divides: then one program."""
    size = next((size for size in range(-(-epochs // 20), -(-epochs // 10)) if epochs % size == 0), None)
    size = size or -(-epochs // 20)
    return [(done, min(size, epochs - done)) for done in range(0, epochs, size)]
