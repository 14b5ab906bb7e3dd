"""All models on one recording, ranked by their forecasts of the part that none of them has seen."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from carom.data import Recording, Split, hold_out
from carom.digits import MISSING, counted, finite, number
from carom.errors import InputError
from carom.estimation import Settings, fit_recording
from carom.evaluation.forecasts import forecast_held_out, held_out_error
from carom.evaluation.tables import Table
from carom.fits import recording_hash
from carom.fits.options import ModelName, PaperSettings
from carom.fits.plan import paper_model
from carom.storage.atomic import write_whole
from carom.textbook import fit_rival
from carom.training import TrainingSettings, train

PAPER_MODELS = get_args(ModelName)
CAROM, TEXTBOOK = "carom", "textbook"


@dataclass(frozen=True)
class Ranked:
    """One model of a comparison.

    Arguments:
        model: its name; "carom" is the recipe of that name, the others are trained by the paper's.
        error: root mean squared error of a coordinate over all held-out samples; infinite where a forecast
            diverged, None where the model cannot be fitted to these data.
        errors: the same for every held-out stretch.
        seconds: duration of the fit.
        reason: why there is no error, or what the diagnostics of the fit say; else empty.
    """

    model: str
    error: float | None
    errors: tuple[float, ...] = ()
    seconds: float | None = None
    reason: str = ""


def rank_models(
    recording: Recording,
    *,
    share: float,
    ours: Settings,
    paper: TrainingSettings,
    learn: Sequence[str],
    hidden: int = 500,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
    checkpoints: Path | None = None,
) -> tuple[Split, tuple[Ranked, ...]]:
    """Fit every model to the same part of a recording and rank them by their forecasts of the rest.

    Every forecast starts from the state that explains the end of its history best by the model itself.

    Arguments:
        recording: what was measured, with its scene.
        share: the share that is held out.
        ours: settings of the recipe carom.
        paper: settings of the paper's recipe.
        learn: the parameters to be learned, from the system file.
        hidden: units in the hidden layer of the paper's models.
        seed: of initial weights and minibatches.
        progress: called with the fraction of models that are done, before each fit.
        checkpoints: a directory for checkpoints.
    """
    split = hold_out(recording, share)
    # Errors on the data of the fit would favour the model with the most weights.
    if not split.held_out:
        raise InputError("A comparison needs something held out; choose a share greater than 0.")
    found = []
    for name in (CAROM, *PAPER_MODELS):
        if progress is not None:
            progress(len(found) / (1 + len(PAPER_MODELS)))
        try:
            if name == CAROM:
                fit = fit_recording(split.training, ours, seed=seed, checkpoints=checkpoints)
                noise, reason = fit.noise, " ".join(fit.diagnostics.messages)
            else:
                # Of the schemes of a variational integrator, one needs positions alone.
                scheme = "velocity_verlet" if recording.has_velocity or name != "vin" else "stormer_verlet"
                chosen = PaperSettings(model=name, hidden=hidden, scheme=scheme)
                untrained = paper_model(chosen, split.training, learn, seed=seed)
                fit = train(untrained, split.training, paper, seed=seed, checkpoints=checkpoints)
                noise, reason = None, ""
        # One that cannot be fitted, such as for want of velocities, is a result too.
        except InputError as error:
            found.append(Ranked(name, None, reason=str(error)))
            continue
        if fit.failed:
            found.append(Ranked(name, None, seconds=fit.seconds, reason="The fit failed."))
            continue
        parts = forecast_held_out(fit.model, split.held_out, noise=noise, seed=seed)
        error, errors = held_out_error(parts), tuple(held_out_error((part,)) for part in parts)
        # More important than what the fit says of itself.
        reason = reason if np.isfinite(error) else "A forecast diverged."
        found.append(Ranked(name, error, errors, fit.seconds, reason))
    rival = fit_rival(split.training, split.held_out)
    if rival is not None:
        found.append(Ranked(TEXTBOOK, rival.error, rival.errors, reason=rival.model.describe()))
    return split, tuple(sorted(found, key=lambda row: np.inf if row.error is None else row.error))


def ranking_table(ranked: Sequence[Ranked], split: Split) -> Table:
    """The ranking for a terminal."""
    rows = []
    for row in ranked:
        shown = ("not fitted", MISSING)
        if row.error is not None:
            shown = number(row.error), number(float(np.median(row.errors)))
        rows.append((row.model, *shown, MISSING if row.seconds is None else f"{row.seconds:.1f}"))
    samples = sum(len(part.future) for part in split.held_out)
    caption = f"Forecasts of {samples} held-out samples in {counted(len(split.held_out), 'run')}"
    return Table(caption, ("model", "error of a position", "median over runs", "seconds"), tuple(rows))


def write_ranking(
    split: Split, ranked: Sequence[Ranked], path: Path, *, recording: Recording, settings: dict[str, Any]
) -> None:
    """Every number as JSON; an error that is not finite is null, with its reason."""
    document = {
        "recording_sha256": recording_hash(recording),
        "held_out": [
            {"run": part.number + 1, "samples": len(part.future), "history": len(part.history)}
            for part in split.held_out
        ],
        "training_samples": split.training.samples,
        "settings": settings,
        "models": finite([asdict(row) for row in ranked]),
    }
    write_whole(path, json.dumps(document, indent=2, allow_nan=False) + "\n")
