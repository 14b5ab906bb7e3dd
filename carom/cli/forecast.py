"""`carom forecast`: what a trained model expects."""

from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro

from carom.cli.arguments import (
    MAXIMUM_STEPS,
    parse_state,
    require_output,
    require_range,
    require_seed,
    state_from_numbers,
)
from carom.cli.output import print_json
from carom.data import Recording, Run, write_recording
from carom.errors import InputError
from carom.learning import load_run
from carom.models import forecast as forecast_model


def forecast(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    start: str | None = None,
    steps: int = 500,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Roll a trained model out from a state and write positions, velocities and touch.

    Example: carom forecast runs/ball --start 10,0 --steps 500 --out forecast.csv

    Args:
        run: A run folder that `carom fit` wrote, or a model file.
        out: The forecast to write: .csv, .parquet or .npz.
        start: Positions then velocities, separated by commas; by default the first state of the recording.
        steps: Steps to forecast.
        overwrite: Replace the forecast if it exists.
        seed: Unused by these models, which are deterministic; every command takes it.
        json: Print one JSON object instead of a sentence.
    """
    require_seed(seed)
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    require_output(out, overwrite=overwrite)
    model, notes = load_run(run)
    scene = model.scene
    if start is not None:
        state = parse_state(start, bodies=scene.bodies, dimension=scene.dimension, option="--start")
    else:
        state = state_from_numbers(notes.get("start"), bodies=scene.bodies, dimension=scene.dimension)
    if state is None:
        raise InputError(f"{run}: the model does not say where its recording starts; give --start.")
    predicted = forecast_model(model, state, steps)
    if not (np.isfinite(predicted.position).all() and np.isfinite(predicted.velocity).all()):
        raise InputError(f"{run}: the forecast leaves all bounds; forecast fewer steps or train again.")
    motion = Run(
        time=np.arange(steps + 1) * model.step_size,
        position=np.asarray(predicted.position, float),
        velocity=np.asarray(predicted.velocity, float),
        touch=np.asarray(jax.vmap(model.contact.to_touch)(predicted.contact > 0.5))
        if model.contact.size
        else None,
    )
    write_recording(Recording((motion,), model.step_size, scene), out)
    touching = 0 if motion.touch is None else int(motion.touch.any(axis=1).sum())
    if json:
        print_json({"forecast": str(out), "steps": steps, "touching_samples": touching})
    else:
        print(f"{out}: {steps} steps of {model.step_size:g} s; {touching} samples in contact.")
