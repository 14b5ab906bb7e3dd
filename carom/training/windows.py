"""The windows of a recording on the device: samples and places, from which batches are cut as they are used.

Windows that overlap hold every sample many times; what is kept here grows like the recording alone. Arrays
are filled up to a power of two, so that recordings of about the same length share one compiled program; how
many windows there are is a number in it.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from carom.data import Recording
from carom.data.recording import require_moderate
from carom.errors import InputError
from carom.models import AbstractModel
from carom.training.cut_windows import all_samples, window_starts
from carom.training.loss import WindowBatch, WindowedSettings

LEAST = 64
"""The shortest arrays."""


class RecordedWindows(NamedTuple):
    """All samples one after another, and where windows begin; both are filled up at their end."""

    position: Float[Array, "samples bodies dimension"]
    velocity: Float[Array, "samples bodies dimension"]
    touch: Bool[Array, "samples bodies"]
    starts: Int[Array, "windows"]

    def batch(self, chosen: Int[Array, "batch"], horizon: int) -> WindowBatch:
        """Some of the windows, each of `horizon + 1` samples."""
        samples = self.starts[chosen][:, None] + jnp.arange(horizon + 1, dtype=self.starts.dtype)[None]
        return WindowBatch(self.position[samples], self.velocity[samples], self.touch[samples])


def recorded_windows(
    model: AbstractModel, recording: Recording, settings: WindowedSettings
) -> tuple[RecordedWindows, int]:
    """The windows that a model is trained on, and their number; refuses what does not fit the model."""
    require_moderate(recording)
    starts = window_starts(recording, horizon=settings.horizon, stride=settings.stride)
    if not recording.has_velocity and model.predicts_velocity:
        raise InputError(
            "The paper's recipe starts every window at a measured velocity, and this recording has none: add "
            "velocity columns, or choose --model vin --scheme stormer_verlet, which needs positions alone."
        )
    if not recording.has_touch and settings.touch == "observed" and model.contact.size:
        raise InputError('This recording has no touch channel: add one, or choose touch "none".')
    if settings.horizon < 2 and not model.predicts_velocity:
        raise InputError("A model of positions alone needs a horizon of at least 2.")
    position, velocity, touch = all_samples(recording)
    dtype = jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))[0].dtype
    position = _filled(position.astype(dtype))
    return RecordedWindows(
        jnp.asarray(position),
        jnp.asarray(np.zeros_like(position) if velocity is None else _filled(velocity.astype(dtype))),
        jnp.asarray(_filled(touch)),
        jnp.asarray(_filled(starts.astype(np.int32))),
    ), len(starts)


def _filled(values: np.ndarray) -> np.ndarray:
    """The same with zeros behind, up to a power of two."""
    length = max(LEAST, 1 << (len(values) - 1).bit_length())
    return np.concatenate([values, np.zeros((length - len(values), *values.shape[1:]), values.dtype)])
