"""Schmidt and Lipson's measured pendulum: learned from the first four fifths, rolled out over the last.

The score is that of Greydanus, Dzamba and Yosinski (Hamiltonian neural networks, 2019): the mean squared
difference of the energy 2.4 (1 − cos o) + v² between the measured samples and a rollout from the first of
them, sample by sample.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from carom.estimation import LatentFit, LatentSettings, Learned, fit_latent_many
from carom.models import ImpactNetwork, forecast
from carom.reproduction.measured.recordings import Swing, pendulum_recording
from carom.types import State

LEARNED_SHARE = 0.8
PUBLISHED = {"plain network": (0.386, 0.069), "Hamiltonian network": (0.0145, 0.0047)}
"""Energy errors with their standard errors, as published."""
VARIANTS = {"no damping": False, "damping": True}
"""What is tried on the last fifth of what is learned from; the better one is used."""


def energy(angle: Float[np.ndarray, "samples"], velocity: Float[np.ndarray, "samples"]):
    """2.4 (1 − cos o) + v², in the units of the file."""
    return 2.4 * (1 - np.cos(angle)) + velocity**2


def split(swing: Swing, share: float = LEARNED_SHARE) -> tuple[Swing, Swing]:
    """The first samples in the order of the file, and the rest."""
    count = int(share * len(swing))
    first, second = (
        Swing(swing.time[part], swing.angle[part], swing.velocity[part])
        for part in (slice(count), slice(count, None))
    )
    return first, second


def roll_out(model: ImpactNetwork, swing: Swing) -> Swing:
    """The model's motion from the first measured state, at the times of all samples.

    Where samples are missing the model moves on through the gap, step by step.
    """
    step = model.step_size
    places = np.rint((swing.time - swing.time[0]) / step).astype(int)
    start = State(
        jnp.full((1, 1), swing.angle[0], jnp.float32), jnp.full((1, 1), swing.velocity[0], jnp.float32)
    )
    motion = forecast(model, start, int(places[-1]))
    angle, velocity = (np.asarray(part, float)[places, 0, 0] for part in (motion.position, motion.velocity))
    return Swing(swing.time, angle, velocity)


def energy_error(predicted: Swing, measured: Swing) -> float:
    """Mean squared difference of the energies, sample by sample."""
    away = energy(predicted.angle, predicted.velocity) - energy(measured.angle, measured.velocity)
    return float(np.mean(away**2))


def run_pendulum(
    swing: Swing, seeds: Sequence[int], *, checkpoints: Path | None = None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Choose the variant within the first four fifths, fit it to all of them, and roll out over the last."""
    known, new = split(swing)
    inner, validation = split(known)
    tried = {
        name: [
            energy_error(roll_out(fit.model, validation), validation)
            for fit in _fits(inner, damped, seeds, checkpoints)
        ]
        for name, damped in VARIANTS.items()
    }
    variant = min(tried, key=lambda name: float(np.mean(tried[name])))
    fits = _fits(known, VARIANTS[variant], seeds, checkpoints)
    motions = [roll_out(fit.model, new) for fit in fits]
    lines = [
        {
            "seed": seed,
            "energy_mse": energy_error(motion, new),
            "angle_rmse": float(np.sqrt(np.mean((motion.angle - new.angle) ** 2))),
            "noise": list(fit.noise),
            "parameters": [asdict(parameter) for parameter in fit.parameters],
            "messages": list(fit.misfit.messages),
            "seconds": fit.seconds,
        }
        for seed, fit, motion in zip(seeds, fits, motions, strict=True)
    ]
    summary = {
        "samples": [len(known), len(new)],
        "step": fits[0].model.step_size,
        "gaps": [int(np.sum(np.diff(part.time) > 1.5 * fits[0].model.step_size)) for part in (known, new)],
        "published": {name: list(pair) for name, pair in PUBLISHED.items()},
        "validation": tried,
        "variant": variant,
        "rows": lines,
    }
    motion, places = motions[0], np.linspace(swing.angle.min(), swing.angle.max(), 101)
    slope = [float(fits[0].model.slope(jnp.full((1, 1), place, jnp.float32))[0, 0]) for place in places]
    arrays = {
        "known": np.stack([known.time, known.angle, known.velocity]),
        "new": np.stack([new.time, new.angle, new.velocity]),
        "rollout": np.stack([motion.time, motion.angle, motion.velocity]),
        "slope": np.stack([places, np.array(slope)]),
    }
    return summary, arrays


def _fits(swing: Swing, damped: bool, seeds: Sequence[int], checkpoints: Path | None) -> list[LatentFit]:
    recording = pendulum_recording(swing)
    # Without contacts the other scheme has nothing to explain.
    chosen = LatentSettings(learned=Learned(gap=False, damping=damped), scheme="constraint_exact")
    return fit_latent_many([recording] * len(seeds), chosen, seeds=seeds, checkpoints=checkpoints)
