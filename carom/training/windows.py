"""The windows of a recording on the device, and the random minibatches of an epoch.

Overlapping windows repeat every sample many times, so only the samples and the start of every window are
stored, and batches are gathered as they are used. Arrays are padded to a power of two, so that recordings of
similar length share one compiled program; the number of windows is an input of that program.
"""

import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from carom.data import Recording
from carom.data.recording import require_moderate
from carom.errors import InputError
from carom.models import AbstractModel
from carom.training.settings import TrainingSettings

SHORTEST = 64
"""The least number of windows that arrays are padded to, so that all short recordings share one program."""
SHORTEST_SAMPLES = 1024
"""The same of samples, of which more cost next to nothing: no step of the training reads the padding."""


class Samples(NamedTuple):
    """Samples of a recording, in one sequence or by windows, in the precision of the weights."""

    position: Float[Array, "*windows samples bodies dimension"]
    velocity: Float[Array, "*windows samples bodies dimension"]
    touch: Bool[Array, "*windows samples bodies"]


class RecordedWindows(NamedTuple):
    """The samples of all runs, one run after another, and where windows start; both padded at their end."""

    samples: Samples
    starts: Int[Array, "*models windows"]

    def batch(self, chosen: Int[Array, "batch"], horizon: int) -> Samples:
        """Some of the windows, each of `horizon + 1` samples."""
        index = self.starts[chosen][:, None] + jnp.arange(horizon + 1, dtype=self.starts.dtype)[None]
        return Samples(*(part[index] for part in self.samples))


def recorded_windows(
    model: AbstractModel, recording: Recording, settings: TrainingSettings
) -> tuple[RecordedWindows, int]:
    """The windows that a model is trained on, and their number; refuses what does not suit the model."""
    require_moderate(recording)
    starts = window_starts(recording, horizon=settings.horizon, stride=settings.stride)
    if not recording.has_velocity and model.predicts_velocity:
        raise InputError(
            "The paper's recipe starts every window at a measured velocity, and this recording has none: add "
            'velocity columns, or choose the model vin with scheme "stormer_verlet".'
        )
    if not recording.has_touch and settings.touch == "observed" and model.contact.size:
        raise InputError('This recording has no touch channel: add one, or choose touch "none".')
    if settings.horizon < 2 and not model.predicts_velocity:
        raise InputError("A model of positions alone needs a horizon of at least 2.")
    runs, dtype = recording.runs, jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    position = np.concatenate([run.position for run in runs]).astype(dtype)
    # Zeros stand in for velocities and touch that were not recorded; the loss then ignores them.
    velocity = [run.velocity for run in runs if run.velocity is not None] or [np.zeros_like(position)]
    touch = [run.touch if run.touch is not None else np.zeros(run.position.shape[:2], bool) for run in runs]
    parts = position, np.concatenate(velocity).astype(dtype), np.concatenate(touch)
    samples = Samples(*(_padded(part, SHORTEST_SAMPLES) for part in parts))
    return RecordedWindows(samples, _padded(starts.astype(np.int32), SHORTEST)), len(starts)


def window_starts(recording: Recording, *, horizon: int, stride: int) -> Int[np.ndarray, "windows"]:
    """Where every window begins, counted over the samples of all runs; no window spans two runs."""
    if not recording.even:
        raise InputError(
            "The paper's recipe cuts windows at a constant step, and the steps of this recording vary: "
            "resample it, or use the recipe carom, which takes steps as they are."
        )
    if recording.missing_values:
        raise InputError(
            "The paper's recipe needs every value of a window, and this recording has missing values: fill "
            "them in, or use the recipe carom, which leaves them out."
        )
    lengths = np.array([len(run) for run in recording.runs])
    short = int(np.sum(lengths <= horizon))
    if short == len(lengths):
        longest = f"The longest run has {lengths.max()} samples"
        raise InputError(f"{longest}; a horizon of {horizon} needs at least {horizon + 1}.")
    if short:
        message = f"{short} of {len(lengths)} runs have fewer than {horizon + 1} samples and are left out."
        warnings.warn(message, stacklevel=2)
    first = np.cumsum(lengths) - lengths
    within = [np.arange(0, length - horizon, stride) for length in lengths]  # empty where a run is too short
    return np.concatenate([start + offsets for start, offsets in zip(first, within, strict=True)])


def _padded(values: np.ndarray, shortest: int) -> Array:
    """The values followed by zeros, up to a power of two."""
    length = max(shortest, 1 << (len(values) - 1).bit_length())
    padding = np.zeros((length - len(values), *values.shape[1:]), values.dtype)
    return jax.device_put(np.concatenate([values, padding]))


def sort_rounds(count: int) -> int:
    """How often `jax.random.permutation` sorts `count` numbers.

    JAX sorts by random keys of 32 bits until all keys have been distinct with probability 1 − 1/count³.
    """
    return int(np.ceil(3 * np.log(max(1, count)) / np.log(np.iinfo(np.uint32).max)))


def shuffled(
    key: Key[Array, ""], count: Int[Array, ""] | int, *, length: int, rounds: int
) -> Int[Array, "length"]:
    """The numbers below `count` in the order of `jax.random.permutation(key, count)`, then the others.

    JAX sorts the numbers by random keys, and the key of each entry does not depend on the length of the
    array. Keys beyond `count` are set to the largest value, and the sort is stable: those entries stay where
    they are. Unlike `jax.random.permutation`, this takes a `count` unknown when the program is compiled.

    Example:
        >>> key = jax.random.key(0)
        >>> order = shuffled(key, 5, length=8, rounds=sort_rounds(5))
        >>> bool((order[:5] == jax.random.permutation(key, 5)).all()), order[5:].tolist()
        (True, [5, 6, 7])
    """
    numbers = jnp.arange(length, dtype=jnp.int32)
    largest = jnp.asarray(np.iinfo(np.uint32).max, jnp.uint32)
    order = numbers
    for _ in range(rounds):
        key, subkey = jax.random.split(key)
        bits = jax.random.bits(subkey, (length,), jnp.uint32)
        _, order = jax.lax.sort_key_val(jnp.where(numbers < count, bits, largest), order)
    return order


def minibatch(
    order: Int[Array, "length"], number: Int[Array, ""] | int, count: Int[Array, ""] | int, *, size: int
) -> tuple[Int[Array, "size"], Bool[Array, "size"]]:
    """One batch of an order, and which of its entries count: the last batch is padded with window 0."""
    entries = number * size + jnp.arange(size, dtype=jnp.int32)
    counts = entries < count
    return jnp.where(counts, order[jnp.minimum(entries, len(order) - 1)], 0), counts
