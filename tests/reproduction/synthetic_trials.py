"""A tiny folder of units, as `carom reproduce` leaves it, with numbers that a test can compute by hand."""

from pathlib import Path

import numpy as np

from carom.reproduction.paper.run import Unit
from carom.reproduction.paper.trials import KNOWN
from carom.storage.result_file import write_result

SAMPLES, SEEDS = 14, 3
ERRORS = {
    ("ball", "CD-Lagrange"): [0.03, 0.05, 3.8],
    ("ball", "CD-Lagrange (no touch)"): [7.0, 8.0, 9.0],
    ("ball", "ResNet"): [float("nan"), float("nan"), 5.0],
    ("ball", "ResNetContact"): [4.0, 2.0, float("nan")],
    ("ball-table", "CD-Lagrange"): [1.0, 2.0, 6.0],
    ("ball-table", "ResNet"): [9.0, 10.0, 11.0],
    ("cradle", "CD-Lagrange"): [0.2, 0.4, 0.6],
    ("cradle", "ResNet"): [0.3, 0.3, 0.3],
    ("damped-pendulum", "CD-Lagrange"): [0.01, 0.02, 0.03],
    ("ablation-l2", "ℓ² off"): [0.01, 0.02, 0.03],
}
ORACLE = {"ball.text": {"seeds": [0, 1, 2], "errors": [0.001, 0.002, 0.003]}}


def write_units(folder: Path) -> None:
    """All of `ERRORS` under the protocol text, the ablation under the published one."""
    folder.mkdir(parents=True, exist_ok=True)
    for (experiment, model), errors in ERRORS.items():
        _write_unit(folder, experiment, model, errors)
    write_result(folder / "oracle.json", ORACLE)


def _write_unit(folder: Path, name: str, model: str, errors: list[float]) -> None:
    experiment = KNOWN[name]
    protocol = "published" if name.startswith("ablation") else "text"
    trained = experiment.trained[model]
    bodies, physical = (2 if name == "cradle" else 1), trained.model == "cd-lagrange"
    signals = 0 if trained.model == "resnet" else 1
    touch = "none" if "no touch" in model else "observed"
    rows = []
    for seed, error in enumerate(errors):
        row = {"seed": seed, "paper_rmse": error, "held_out_paper_rmse": [error, 2 * error, 3 * error]}
        if signals:
            row |= {"true_impacts": 2, "mistimed": seed, "missed": 1, "spurious": 0}
            row |= {"highest_contact_probability": 0.25 * (seed + 1)}
        if physical:
            row["slope_rmse"] = 0.1 * (seed + 1)
        if name == "damped-pendulum":
            row["damping"] = 0.7 + 0.1 * seed
        rows.append(row)
    summary = {
        "experiment": name,
        "title": experiment.title,
        "place": experiment.place,
        "model": model,
        "protocol": protocol,
        "paper": None if trained.paper is None else list(trained.paper),
        "settings": {"touch": touch},
        "seconds": 3600.0,
        "versions": {"carom": "0.0"},
        "device": "cpu",
        "rows": rows,
    }
    stem = Unit(name, experiment, protocol, model, (0, 1, 2)).stem
    write_result(folder / f"{stem}.json", summary)
    np.savez(folder / f"{stem}.npz", **_arrays(errors, bodies, signals, physical))


def _arrays(errors: list[float], bodies: int, signals: int, physical: bool) -> dict[str, np.ndarray]:
    time = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    truth = np.repeat(np.cos(5 * time)[:, None, None], bodies, axis=1)
    # A seed that diverged has no numbers in its arrays either.
    forecasts = np.stack([truth + np.float32(0.1 * error) for error in errors])
    contact = np.zeros((SAMPLES, 1), bool)
    contact[[4, 9]] = True
    arrays = {
        "time": time,
        "truth_position": truth,
        "truth_velocity": -truth,
        "truth_contact": contact,
        "data_position": truth + np.float32(0.1),
        "data_velocity": -truth - np.float32(0.1),
        "forecast_position": forecasts,
        "forecast_velocity": -forecasts,
        "forecast_contact": np.zeros((SEEDS, SAMPLES, signals), np.float32),
        "state_loss": np.ones((SEEDS, 4), np.float32),
    }
    if signals:
        arrays["contact_on_truth"] = np.zeros((SEEDS, SAMPLES - 1, 1), np.float32)
    if physical:
        grid = np.repeat(np.linspace(-1, 1, 5, dtype=np.float32)[:, None, None], bodies, axis=1)
        arrays |= {"slope_grid": grid, "slope_true": grid, "slope_learned": np.stack([grid] * SEEDS)}
    return arrays
