"""`carom forecast`: what a trained model expects."""

from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from carom.cli.output import parse_numbers, print_json
from carom.data import Recording, Run, write_recording
from carom.errors import InputError
from carom.learning import load_run
from carom.models import forecast as forecast_model
from carom.types import State


def forecast(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    start: str | None = None,
    steps: int = 500,
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
        seed: Unused by these models, which are deterministic; every command takes it.
        json: Print one JSON object instead of a sentence.
    """
    if not 1 <= steps <= 10_000_000:
        raise InputError(f"--steps must lie between 1 and 10 million, but it is {steps}.")
    model, notes = load_run(run)
    scene = model.scene
    shape, size = (scene.bodies, scene.dimension), scene.coordinates
    if start is not None:
        numbers = parse_numbers(start, count=2 * size, meaning="--start")
    elif "start" in notes:
        numbers = notes["start"]
    else:
        raise InputError(f"{run}: the model does not say where its recording starts; give --start.")
    state = State(jnp.array(numbers[:size]).reshape(shape), jnp.array(numbers[size:]).reshape(shape))
    predicted = forecast_model(model, state, steps)
    if not np.isfinite(predicted.position).all():
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
