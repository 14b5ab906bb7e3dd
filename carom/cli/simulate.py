"""`carom simulate`: recordings of known systems."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Literal

import tyro

from carom.cli.arguments import MAXIMUM_STEPS, require_output
from carom.cli.output import print_json
from carom.cli.system_options import SystemOptions, build_system, start_states
from carom.data import SystemFile, Truth, write_recording, write_system_file
from carom.data import simulate as simulate_system
from carom.digits import counted
from carom.errors import require_range, require_seed
from carom.mechanics import Projection
from carom.storage.input_file import complaint, shown
from carom.types import VelocityGrid

_SAMPLING = {
    "ball": (500, 0.02),
    "billiards": (500, 0.01),
    "box": (500, 0.01),
    "cradle": (540, 0.01),
    "pendulum": (200, 0.02),
    "stairs": (500, 0.01),
}
"""Steps and step size of each system by default; those of ball, cradle and pendulum are the paper's."""


def simulate(
    system: Annotated[
        Literal["ball", "billiards", "box", "cradle", "pendulum", "stairs"], tyro.conf.Positional
    ],
    /,
    *,
    out: Path,
    steps: int | None = None,
    step_size: float | None = None,
    start: tyro.conf.UseAppendAction[tuple[str, ...]] = (),
    truth: Truth = "exact",
    velocity_grid: VelocityGrid = "half",
    projection: Projection = "none",
    noise: float = 0.0,
    parameters: tyro.conf.OmitArgPrefixes[SystemOptions] = SystemOptions(),  # noqa: B008
    runs: int | None = None,
    speed: float | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Record a known system, with noise, and write its system file beside the recording.

    Example: carom simulate ball --noise 0.2 --out ball.csv
    Example: carom simulate box --balls 20 --dimension 3 --restitution 0.9 --out box.csv

    Args:
        system: What moves.
        out: The recording to write: .csv, .parquet or .npz. The system file gets the same name and .toml.
        steps: Steps of a run, by default those of the paper (cradle 540, pendulum 200) or 500.
        step_size: Seconds between samples, by default those of the paper (ball and pendulum 0.02) or 0.01.
        start: A start state: positions then velocities, separated by commas, such as 10,0; repeat it for more
            runs. Without one, balls of billiards and box start at random.
        truth: Impacts at their true instants, or the CD-Lagrange scheme.
        velocity_grid: How models are to read the velocities; "sample" is what the paper does.
        projection: How models, and the scheme, are to remove overlap between bodies.
        noise: Standard deviation of Gaussian noise on positions and velocities.
        parameters: Parameters of the system.
        runs: Number of random starts of billiards or box, 1 by default.
        speed: Root mean square of the speeds of such starts, 1 by default.
        overwrite: Replace the recording and the system file if they exist.
        seed: Seed of the noise and of random starts.
        json: Print one JSON object instead of sentences.
    """
    require_seed(seed)
    steps = _SAMPLING[system][0] if steps is None else steps
    require_range("--steps", steps, 1, MAXIMUM_STEPS)
    truth_system = build_system(system, parameters)
    starts = start_states(truth_system, start, runs=runs, speed=speed, seed=seed)
    if out.suffix == ".toml":
        raise complaint(out, "the recording needs another suffix; .toml is for the system file beside it")
    system_file = out.with_suffix(".toml")
    for file in (out, system_file):
        require_output(file, overwrite=overwrite)
    with warnings.catch_warnings(record=True) as caught:  # shown only if the motion is not refused
        recording = simulate_system(
            truth_system,
            steps=steps,
            step_size=_SAMPLING[system][1] if step_size is None else step_size,
            starts=starts,
            truth=truth,
            velocity_grid=velocity_grid,
            projection=projection,
            noise=noise,
            seed=seed,
        )
    for warning in caught:
        print(f"carom: {warning.message}", file=sys.stderr)
    assert recording.scene is not None
    write_recording(recording, out)
    write_system_file(SystemFile(recording.scene), system_file)
    if json:
        print_json({"recording": str(out), "system": str(system_file), "samples": recording.samples})
        return
    written, described = (shown(file, length=1000) for file in (out, system_file))
    count = f"{counted(len(recording.runs), 'run')}, {recording.samples} samples"
    print(f"{written}: {count}. {described}: its system file.")
