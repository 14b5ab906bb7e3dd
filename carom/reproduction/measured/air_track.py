"""Two riders collide on an air track, measured: a law of restitution per bumper, tried on runs left out.

Positions only, no touch. Every run is cropped at random, so that its impact may be anywhere, and then trimmed
to what surrounds the impact that is found in it. Of the other table only the name of the bumper is used;
the rest of it is for checking.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from carom.data import Recording, Run
from carom.estimation import LatentFit, LatentSettings, Learned, around_impact, fit_latent
from carom.reproduction.measured.collisions import (
    Collision,
    best_constant,
    foretell,
    measure_collision,
    root_mean_square,
    with_constant,
)
from carom.reproduction.measured.recordings import RIDERS, Check
from carom.types import RestitutionKind

STRETCH = 0.1
"""Seconds of motion looked at before a contact, and after it."""
BLIND = 15
"""Samples either side of an impact that a contact may take: 30 ms, for every bumper."""
EVERY = 5
"""Every fifth run of a series is left out of the fit."""
KINDS: tuple[RestitutionKind, ...] = ("constant", "speed")
"""What laws are tried; the data choose."""
SPEEDS = (0.3, 1.0, 2.0)
"""Closing speeds at which laws are compared, in m/s."""
CROPPED = 0.25
"""The greatest share of a run that is cropped at either end."""


@dataclass(frozen=True)
class Series:
    """Runs with one kind of bumper.

    Arguments:
        bumper: its name in the table of runs.
        title: for tables and figures.
        other_riders: whether the riders, and so their masses, change from run to run.
        bound: the greatest error asked for, as a multiple of that of the best constant e.
    """

    bumper: str
    title: str
    other_riders: bool
    bound: float


SERIES = {
    series.bumper: series
    for series in (
        Series("rubber", "Rubber bands", other_riders=False, bound=0.5),
        Series("metal", "Metal", other_riders=False, bound=1.1),
        Series("pucks_momentum", "Pucks, series “momentum”", other_riders=True, bound=1.1),
        Series("pucks_energy", "Pucks, series “energy”", other_riders=True, bound=1.1),
    )
}


def crop_at_random(run: Run, generator: np.random.Generator) -> Run:
    """The run without up to a quarter of its samples at its beginning, and up to a quarter at its end."""
    most = int(CROPPED * len(run))
    first, last = generator.integers(0, most + 1, 2)
    return run.part(slice(int(first), len(run) - int(last)))


def left_out(count: int) -> np.ndarray:
    """Which runs of a series are left out."""
    return np.arange(count) % EVERY == EVERY - 1


def settings(series: Series, kind: RestitutionKind, *, blind: int | None = None) -> LatentSettings:
    """What is estimated: a law about which runs scatter, where riders touch in each run, and masses."""
    learned = Learned(
        restitution=kind,
        gap=False,
        gap_per_run=True,
        restitution_per_run=True,
        masses=not series.other_riders,
        masses_per_run=series.other_riders,
    )
    # The track is level. Without a field there are no weights to start from, and no need of short segments.
    return LatentSettings(
        learned=learned,
        scheme="constraint_exact",
        field="none",
        hidden=1,
        starts=1,
        horizons=(),
        blind=BLIND if blind is None else blind,
    )


def run_series(
    series: Series,
    runs: Sequence[Run],
    checks: Sequence[Check],
    seed: int,
    *,
    illustrated: bool,
    checkpoints: Path | None = None,
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Fit a law to the runs of a series that are not left out, and foretell those that are.

    Arguments:
        runs: as recorded, whole.
        checks: what is known of them otherwise.
        seed: of the crops and of the initial weights.
        illustrated: whether arrays for figures, and a fit that counts the samples of the contact, are made.
        checkpoints: a folder where what is done is kept.
    """
    step_size = float(np.median(np.diff(runs[0].time)))
    generator = np.random.default_rng([seed, len(runs)])
    cropped = Recording(tuple(crop_at_random(run, generator) for run in runs), step_size, RIDERS)
    trimmed = around_impact(cropped, STRETCH + BLIND * step_size, blind=BLIND)
    collisions = [measure_collision(run, RIDERS, seconds=STRETCH, blind=BLIND) for run in trimmed.runs]
    out = left_out(len(runs))
    # A run whose collision was not found can neither be learned from nor foretold; the table counts them.
    usable = np.array([c is not None for c in collisions])
    training = np.flatnonzero(usable & ~out)
    recording = replace(trimmed, runs=tuple(trimmed.runs[i] for i in training))
    fits = {
        kind: fit_latent(recording, settings(series, kind), seed=seed, checkpoints=checkpoints)
        for kind in KINDS
    }
    criteria = {kind: _criterion(fit) for kind, fit in fits.items()}
    kind = min(KINDS, key=lambda kind: criteria[kind])
    fit = fits[kind]
    ratios = np.full(len(runs), np.nan)
    ratios[training] = _mass_ratios(fit)
    if series.other_riders:
        # No run that was learned from says what these riders weigh; the scales do.
        ratios[out] = [check.mass_ratio for check, o in zip(checks, out, strict=True) if o]
    else:
        ratios[out] = ratios[training[0]]
    foretold, errors = _foretold(fit, collisions, training, np.flatnonzero(usable & out), ratios)
    summary = {
        "bumper": series.bumper,
        "title": series.title,
        "bound": series.bound,
        "seed": seed,
        "kind": kind,
        "criteria": criteria,
        "law": _law(fit, np.geomspace(*_seen_speeds(collisions, training), 61)),
        "law_at": _law(fit, np.array(SPEEDS)),
        "parameters": [asdict(parameter) for parameter in fit.parameters],
        "errors": errors,
        "weighed": sorted({round(check.mass_ratio, 5) for check in checks}),
        "fit": _quality(fit),
        "runs": [
            _run_line(index, bool(out[index]), check, collision, foretold.get(index))
            | {"fitted_mass_ratio": float(ratios[index]) if index in training else None}
            for index, (check, collision) in enumerate(zip(checks, collisions, strict=True))
        ],
    }
    arrays: dict[str, np.ndarray] = {}
    if illustrated:
        unhidden = settings(series, kind, blind=0)
        watched = fit_latent(recording, unhidden, seed=seed, checkpoints=checkpoints)
        summary["fit_without_blind"] = _quality(watched)
        arrays = _illustration(fit, recording, [collisions[i] for i in training])
    return summary, arrays


def _criterion(fit: LatentFit) -> float:
    """Schwarz's criterion of the law: how widely runs scatter about it, and what its terms cost."""
    count = sum(int(found.chosen.any()) for found in fit.impacts)
    scatter = next(p.value for p in fit.parameters if "scatter" in p.name)
    assert scatter is not None
    return 2 * count * math.log(scatter) + fit.model.restitution.shape[-1] * math.log(count)


def _seen_speeds(collisions: Sequence[Collision | None], training: np.ndarray) -> tuple[float, float]:
    speeds = [c.closing_speed for i in training if (c := collisions[i]) is not None]
    return min(speeds), max(speeds)


def _law(fit: LatentFit, speeds: np.ndarray) -> dict[str, list[float]]:
    """e at some closing speeds, and its standard error."""
    rates = jnp.asarray(-speeds, jnp.float32)

    def at(terms, rate):
        return eqx.tree_at(lambda m: m.restitution, fit.model, terms).restitution_at(rate[None])[0]

    terms = fit.model.restitution
    values = jax.vmap(at, (None, 0))(terms, rates)
    slopes = np.asarray(jax.vmap(jax.grad(at), (None, 0))(terms, rates))[:, 0]
    assert fit.law_covariance is not None
    errors = np.sqrt(np.einsum("ni,ij,nj->n", slopes, fit.law_covariance[0], slopes))
    return {"speed": speeds.tolist(), "value": np.asarray(values, float).tolist(), "error": errors.tolist()}


def _mass_ratios(fit: LatentFit) -> np.ndarray:
    """Of the second rider to the first, in every run of the fit."""
    return np.array(
        [float(np.exp(m.log_mass[1] - m.log_mass[0])) for m in map(fit.in_run, range(len(fit.motions)))]
    )


def _foretold(
    fit: LatentFit,
    collisions: Sequence[Collision | None],
    training: np.ndarray,
    tried: np.ndarray,
    ratios: np.ndarray,
) -> tuple[dict[int, dict[str, list[float]]], dict[str, Any]]:
    """Velocities after the collisions of runs left out: by the law, and by the best constant.

    That constant is the best for the runs that the law was learned from, in hindsight; another, the best for
    the very runs that are foretold, is more than anybody could know.
    """
    known, new = ([c for i in part if (c := collisions[i]) is not None] for part in (training, tried))
    constants = {
        "constant": best_constant(fit.model, known, ratios[training]),
        "hindsight": best_constant(fit.model, new, ratios[tried]),
    }
    measured = np.array([c.after for c in new])
    by_model = {"law": foretell(fit.model, new, ratios[tried])}
    for name, restitution in constants.items():
        by_model[name] = foretell(with_constant(fit.model, restitution), new, ratios[tried])
    errors: dict[str, Any] = {name: root_mean_square(v - measured) for name, v in by_model.items()}
    errors |= {f"{name}_restitution": value for name, value in constants.items()}
    lines = {
        int(index): {name: velocities[row].tolist() for name, velocities in by_model.items()}
        for row, index in enumerate(tried)
    }
    return lines, errors


def _run_line(
    index: int, out: bool, check: Check, collision: Collision | None, foretold: dict[str, list[float]] | None
) -> dict[str, Any]:
    """What is known of one run, measured, checked and foretold."""
    line: dict[str, Any] = {
        "run": index,
        "left_out": out,
        "found": collision is not None,
        "check": asdict(check),
    }
    if collision is None:
        return line
    line |= {
        "late_by": collision.instant - check.instant,
        "closing_speed": collision.closing_speed,
        "restitution": collision.restitution,
        "mass_ratio": collision.mass_ratio,
        "before": collision.before.tolist(),
        "after": collision.after.tolist(),
    }
    return line | ({} if foretold is None else {"foretold": foretold})


def _quality(fit: LatentFit) -> dict[str, Any]:
    """How well the model explains the runs, in metres and in words."""
    return {
        "residual": fit.noise[0],
        "excess": fit.misfit.excess,
        "autocorrelation": fit.misfit.autocorrelation,
        "near_impacts": fit.misfit.near_impacts,
        "messages": list(fit.misfit.messages),
        "failed": fit.failed,
        "by_gap_alone": fit.free,
        "impacts": [int(found.chosen.sum()) for found in fit.impacts],
        "seconds": fit.seconds,
    }


def _illustration(
    fit: LatentFit, recording: Recording, collisions: Sequence[Collision | None]
) -> dict[str, np.ndarray]:
    """A slow, a middling and a fast run with the model's motion, for the figures."""
    speeds = np.array([0.0 if c is None else c.closing_speed for c in collisions])
    order = np.argsort(speeds)
    arrays = {}
    for name, place in (("slow", 0.1), ("middling", 0.5), ("fast", 0.9)):
        index = int(order[round(place * (len(order) - 1))])
        run, collision = recording.runs[index], collisions[index]
        assert collision is not None
        arrays[f"{name}_time"] = run.time - collision.instant
        arrays[f"{name}_measured"] = run.position[:, :, 0]
        arrays[f"{name}_model"] = fit.motions[index].position[:, :, 0]
        arrays[f"{name}_speed"] = np.asarray(collision.closing_speed)
    return arrays
