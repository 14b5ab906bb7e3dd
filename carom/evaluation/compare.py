"""All models on one recording, by what they forecast of the part that none of them has seen."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from carom.data import Learn, Recording, Split, hold_out
from carom.errors import InputError
from carom.estimation import LatentSettings, fit_latent
from carom.evaluation import forecast_held_out, held_out_error
from carom.fits import recording_hash
from carom.models import MODELS, AbstractModel
from carom.storage.atomic import atomic_write
from carom.training import TrainingSettings, train

PAPER_MODELS = ("cd-lagrange", "vin", "resnet", "contact-resnet")
CAROM = "carom"


@dataclass(frozen=True)
class Ranked:
    """One model's place.

    Arguments:
        model: its name; "carom" is the recipe of that name, the others are trained by the paper's.
        error: root mean squared error of a coordinate over all that was held out; infinite where a forecast
            diverged, None where the model cannot be fitted to these data.
        errors: the same of every stretch that was held out.
        seconds: that the fit took.
        reason: why there is no error, or a doubt about the fit; else empty.
    """

    model: str
    error: float | None
    errors: tuple[float, ...]
    seconds: float | None
    reason: str


def rank_models(
    recording: Recording,
    *,
    share: float,
    latent: LatentSettings,
    windowed: TrainingSettings,
    learn: Learn,
    hidden: int = 500,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    checkpoints: Path | None = None,
) -> tuple[Split, tuple[Ranked, ...]]:
    """Fit every model to the same part of a recording and rank them by their forecasts of the rest.

    Every forecast starts from the state that explains the end of its history best by the model itself.

    Arguments:
        recording: what was measured, with its scene.
        share: what is held out.
        latent: settings of the recipe carom.
        windowed: settings of the paper's recipe.
        learn: what the system file says is to be learned.
        hidden: units in the hidden layer of the paper's models.
        seed: of start weights and minibatches.
        progress: called with the name of each model before its fit.
        checkpoints: a folder where what is done is kept.
    """
    split = hold_out(recording, share)
    if not split.held_out:
        raise InputError("A comparison needs something held out; choose a share greater than 0.")
    found = []
    for name in (CAROM, *PAPER_MODELS):
        if progress is not None:
            progress(name)
        try:
            if name == CAROM:
                fit = fit_latent(split.training, latent, seed=seed, checkpoints=checkpoints)
                noise, reason = fit.noise, " ".join(fit.misfit.messages)
            else:
                untrained = _untrained(name, split.training, learn, hidden, seed)
                fit = train(untrained, split.training, windowed, seed=seed, checkpoints=checkpoints)
                noise, reason = None, ""
        except InputError as error:
            found.append(Ranked(name, None, (), None, str(error)))
            continue
        if fit.failed:
            found.append(Ranked(name, None, (), fit.seconds, "The fit failed."))
            continue
        parts = tuple(forecast_held_out(fit.model, part, noise=noise, seed=seed) for part in split.held_out)
        errors = tuple(held_out_error((part,)) for part in parts)
        found.append(Ranked(name, held_out_error(parts), errors, fit.seconds, reason))
    return split, tuple(sorted(found, key=lambda row: np.inf if row.error is None else row.error))


def _untrained(name: str, training: Recording, learn: Learn, hidden: int, seed: int) -> AbstractModel:
    options: dict[str, Any] = {"hidden": hidden}
    if name == "cd-lagrange":
        options |= {"learn_inertia": learn.masses, "learn_damping": learn.damping}
    if name == "vin" and not training.has_velocity:
        options["scheme"] = "stormer_verlet"  # the one that positions alone will do for
    return MODELS[name].for_recording(training, key=jax.random.key(seed), **options)


def write_ranking(
    split: Split, ranked: Sequence[Ranked], path: Path, *, recording: Recording, settings: dict[str, Any]
) -> None:
    """Every number as JSON; an error that is not finite is null, with its reason."""
    rows = []
    for row in ranked:
        diverged = row.error is not None and not np.isfinite(row.error)
        errors = [error if np.isfinite(error) else None for error in row.errors]
        reason = "The forecast left all bounds." if diverged else row.reason
        rows.append(
            asdict(row) | {"errors": errors, "reason": reason} | ({"error": None} if diverged else {})
        )
    document = {
        "recording_sha256": recording_hash(recording),
        "held_out": [
            {"run": part.number + 1, "samples": len(part.future), "history": len(part.history)}
            for part in split.held_out
        ],
        "training_samples": split.training.samples,
        "settings": settings,
        "models": rows,
    }
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
