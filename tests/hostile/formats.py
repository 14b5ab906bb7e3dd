"""Every format that Carom reads: good files of it, ways to damage them, and what reads them."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

import carom
from carom.bench.run import compare, read_bench
from carom.data import (
    Columns,
    Recording,
    Run,
    SystemFile,
    hold_out,
    read_recording,
    read_system_file,
    write_recording,
)
from carom.data.io.column_guess import guess_columns
from carom.data.io.system_file import Comments, format_system_file
from carom.estimation.detection.scene_inference import guess_contacts
from carom.evaluation.results import read_results
from carom.execution.executor import read_result, write_result
from carom.fits import load_fitted_model, noise_from_notes, save_model
from carom.fits.fit_directory import (
    HISTORY,
    MANIFEST,
    MODEL,
    POSTERIOR,
    RECORDING,
    TRAJECTORIES,
    write_manifest,
)
from carom.fits.model_file import save_posterior
from carom.forces import AbstractLearnedPotential, LinearisedPotentialForce
from carom.mechanics import Pair, Scene, Wall
from carom.models import CDLagrangeNetwork, ContactResNet, Mechanism, ResNet
from carom.report.findings import read_findings
from carom.report.fit_page import parameter_table
from carom.reproduction.measured.configuration import CHECKS, PENDULUM
from carom.reproduction.measured.recordings import (
    pendulum_recording,
    read_air_track,
    read_pendulum,
)
from carom.reproduction.paper.figures import load_trials
from carom.reproduction.paper.tables import fits_of
from carom.storage.checkpoints import Progress
from carom.storage.tensor_file import write_tensors
from carom.training import stack_models
from tests.bench.stored_bench import stored_run
from tests.hostile.mutations import BINARY, TEXT, Mutation, inside_safetensors, inside_zip
from tests.reproduction.measured.test_recordings import folder_of
from tests.reproduction.synthetic_trials import write_trials

BALL = Scene(1, 1, (Wall(0, (1.0,)),), restitution=0.8)
PLANE = Scene(2, 2, (Wall(0, (0.0, 1.0)), Wall(1, (0.0, 1.0)), Pair(0, 1, 0.2)), masses=(1.0, 2.0))


@dataclass(frozen=True)
class Format:
    """One kind of file.

    Arguments:
        place: the file inside a folder that is damaged.
        prepare: puts what else is needed into an empty folder; gives good contents of the file.
        mutations: ways to damage them.
        read: reads the folder as commands do.
    """

    place: str
    prepare: Callable[[Path], list[bytes]]
    mutations: tuple[Mutation, ...]
    read: Callable[[Path], object]


def ball(*, runs: int = 1, velocity: bool = True, samples: int = 30) -> Recording:
    """A ball that bounces once, in several runs."""
    system = carom.systems.BouncingBall(restitution=0.8)
    starts = [carom.State(jnp.full((1, 1), 0.3 + 0.1 * n), jnp.zeros((1, 1))) for n in range(runs)]
    made = carom.simulate(system, steps=samples - 1, step_size=0.02, starts=starts, noise=0.01, seed=1)
    kept = made.runs if velocity else tuple(Run(run.time, run.position) for run in made.runs)
    return Recording(kept, made.step_size, BALL)


def plane() -> Recording:
    """Two bodies in the plane, with a value that is missing."""
    generator = np.random.default_rng(0)
    position = generator.normal(size=(20, 2, 2)).cumsum(axis=0)
    velocity = generator.normal(size=(20, 2, 2))
    velocity[3, 0, 0] = np.nan
    return Recording((Run(0.1 * np.arange(20), position, velocity),), 0.1, PLANE)


def recordings(suffix: str) -> Callable[[Path], list[bytes]]:
    def prepare(folder: Path) -> list[bytes]:
        path = folder / f"good.{suffix}"
        contents = []
        for recording in (ball(), ball(runs=3, velocity=False, samples=8), plane()):
            write_recording(recording, path)
            contents.append(path.read_bytes())
        frame = pl.read_parquet(path) if suffix == "parquet" else None
        if frame is not None:  # columns of every type that Polars has a name for
            odd = frame.with_columns(
                pl.col("q1").cast(pl.Int16), pl.col("t").cast(pl.Datetime), pl.col("run").cast(pl.String),
                q2=pl.concat_list("q2", "q3"), q3=pl.struct("q3", "q4"), q4=pl.col("q4").cast(pl.String),
                v1=pl.lit(None), v2=pl.col("v2").cast(pl.Float32), v3=pl.col("v3") > 0,
            )  # fmt: skip
            odd.write_parquet(path)
            contents.append(path.read_bytes())
        path.unlink()
        return contents

    return prepare


def read_as_recording(suffix: str) -> Callable[[Path], object]:
    def read(folder: Path) -> None:
        path = folder / f"bad.{suffix}"
        errors = []
        for scene in (BALL, PLANE):
            try:
                read_recording(path, scene=scene, missing=("position", "velocity"))
            except carom.InputError as error:
                errors.append(error)
        guess = guess_columns(path)
        bare = Scene(bodies=guess.bodies, dimension=guess.dimension)
        data = read_recording(
            path, columns=guess.columns, scene=bare, step_size=guess.step_size, missing=guess.missing
        )
        found = guess_contacts(data)
        comments = Comments(guess.remarks, guess.unused)
        scene = Scene(data.bodies, data.dimension, found.candidates)
        format_system_file(SystemFile(scene, guess.columns, comments=comments))
        if len(errors) == 2:
            raise errors[0]

    return read


def system_files(_: Path) -> list[bytes]:
    columns = Columns(("x_a", "y_a", "x_b", "y_b"), ("v", "w", "vb", "wb"), ("hit", "hit_b"), "s", "trial")
    learn = ("masses", "damping", "restitution-speed")
    good = (
        SystemFile(BALL),
        SystemFile(PLANE, columns, 0.1, learn, ("velocity",)),
        SystemFile(Scene(2, 1, (Pair(0, 1),), projection="reference_point", reference=((0.0,), (0.5,)))),
    )
    return [format_system_file(one).encode() for one in good]


def models() -> list:
    key = jax.random.key(0)
    return [
        Mechanism.for_recording(ball(), hidden=4, key=key),
        CDLagrangeNetwork(PLANE, 0.02, hidden=3, learn_inertia=True, key=key),
        ContactResNet(BALL, 0.02, hidden=3, contact_hidden=(2,), key=key),
        ResNet(PLANE, 0.02, hidden=3, key=key),
    ]


NOTES: dict[str, Any] = {
    "recording": "ball.csv", "recording_sha256": "0" * 64, "settings": {"touch": "inferred"}, "seed": 0,
    "hold_out": 0.2, "names": ["height"], "noise": [0.01, None], "diagnostics": ["The residuals are large."],
    "impacts": [[[3, 0]], []], "log_likelihood": 12.5, "start": [0.3, 0.0],
    "parameters": [
        {"name": "restitution", "value": 0.8, "standard_error": 0.01, "low": 0.78, "high": 0.82, "words": "e"}
    ],
}  # fmt: skip


def model_files(folder: Path) -> list[bytes]:
    path = folder / "good.safetensors"
    contents = []
    for model in models():
        save_model(model, path, notes=NOTES)
        contents.append(path.read_bytes())
    path.unlink()
    return contents


def read_model(folder: Path) -> None:
    noise_from_notes(load_fitted_model(folder / MODEL)[1])


def sample(model: Mechanism) -> Mechanism:
    """A model as the Laplace approximation has it, linear in the weights."""
    forces = tuple(
        LinearisedPotentialForce(force, force.network)
        for force in model.forces
        if isinstance(force, AbstractLearnedPotential)
    )
    return Mechanism.of(model.scene, model.step_size, forces=forces)


def fit_directory(damaged: str) -> Callable[[Path], list[bytes]]:
    """A directory as a fit leaves it, made without one."""

    def prepare(folder: Path) -> list[bytes]:
        recording = ball(runs=2)
        trained = [
            Mechanism.for_recording(recording, hidden=4, key=jax.random.key(seed)) for seed in range(3)
        ]
        save_model(trained[0], folder / MODEL, notes=NOTES)
        save_posterior(stack_models([sample(model) for model in trained[1:]]), folder / POSTERIOR)
        motions = {
            f"{number}.{channel}": getattr(run, channel)
            for number, run in enumerate(hold_out(recording, NOTES["hold_out"]).training.runs)
            for channel in ("position", "velocity")
        }
        write_tensors(folder / TRAJECTORIES, motions, {"runs": 2})
        lines = [json.dumps({"round": n, "log_likelihood": 1.5 * n}) for n in range(4)]
        (folder / HISTORY).write_text("\n".join(lines) + "\n")
        write_recording(recording, folder / RECORDING)
        write_manifest(folder, seconds=1.0)
        return [(folder / damaged).read_bytes()]

    return prepare


def read_run(folder: Path) -> None:
    write_manifest(folder, seconds=1.0)  # or its checksums would refuse what the readers have to withstand
    findings = read_findings(folder)
    parameter_table(findings)
    _ = findings.impacts


def trials(damaged: str) -> Callable[[Path], list[bytes]]:
    def prepare(folder: Path) -> list[bytes]:
        write_trials(folder)
        return [path.read_bytes() for path in sorted(folder.glob(damaged))]

    return prepare


def read_trials(folder: Path) -> None:
    fits = fits_of(read_results(folder / "paper.json").rows)
    load_trials(fits.filter(experiment="cradle", protocol="text"), folder)


def task_result(folder: Path) -> list[bytes]:
    write_result(folder / "task.json", {"fingerprint": "a", "rows": [{"seed": 0, "value": 0.25}]})
    return [(folder / "task.json").read_bytes()]


def wander(folder: Path) -> None:
    """A fit of no consequence, which must go on whatever its checkpoint is."""
    stage = Progress(folder, "wander").stage({"a": np.zeros(3), "b": np.zeros((2, 2))}, 0.0)
    for number in range(3):
        state, record = stage.round(
            lambda n=number: ({"a": np.full(3, float(n)), "b": np.eye(2)}, np.asarray(n))
        )
        assert int(record) == number
    assert np.array_equal(state["a"], np.full(3, 2.0))


def checkpoints(folder: Path) -> list[bytes]:
    wander(folder / "first")
    (path,) = (folder / "first").iterdir()
    content = path.read_bytes()
    path.rename(folder / CHECKPOINT)
    return [content]


def read_checkpoint(folder: Path) -> None:
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    wander(scratch)
    (name,) = scratch.iterdir()
    shutil.copy(folder / CHECKPOINT, name)
    wander(scratch)


CHECKPOINT = "checkpoint.safetensors"


def speeds(folder: Path) -> list[bytes]:
    stored_run(folder / "bench.json")
    return [(folder / "bench.json").read_bytes()]


def compare_speeds(folder: Path) -> None:
    compare(stored_run(), read_bench(folder / "bench.json"))


def measured(damaged: str) -> Callable[[Path], list[bytes]]:
    def prepare(folder: Path) -> list[bytes]:
        folder_of(folder)
        (folder / PENDULUM).write_text(
            "trial,t,o,v\n" + "".join(f"0,{5 + 0.5 * n},{np.cos(n):.3f},{np.sin(n):.3f}\n" for n in range(9))
        )
        return [(folder / damaged).read_bytes()]

    return prepare


SAFE = (inside_safetensors, inside_safetensors, inside_safetensors, *BINARY)
FORMATS = {
    "recording.csv": Format("bad.csv", recordings("csv"), TEXT, read_as_recording("csv")),
    "recording.parquet": Format("bad.parquet", recordings("parquet"), BINARY, read_as_recording("parquet")),
    "recording.npz": Format(
        "bad.npz", recordings("npz"), (inside_zip, inside_zip, *BINARY), read_as_recording("npz")
    ),
    "system.toml": Format("bad.toml", system_files, TEXT, lambda at: read_system_file(at / "bad.toml")),
    "model.safetensors": Format(MODEL, model_files, SAFE, read_model),
    "fit: model": Format(MODEL, fit_directory(MODEL), SAFE, read_run),
    "fit: posterior": Format(POSTERIOR, fit_directory(POSTERIOR), SAFE, read_run),
    "fit: trajectories": Format(TRAJECTORIES, fit_directory(TRAJECTORIES), SAFE, read_run),
    "fit: history": Format(HISTORY, fit_directory(HISTORY), TEXT, read_run),
    "fit: recording": Format(RECORDING, fit_directory(RECORDING), BINARY, read_run),
    "fit: manifest": Format(
        MANIFEST, fit_directory(MANIFEST), TEXT, lambda folder: load_fitted_model(folder)
    ),
    "checkpoint": Format(CHECKPOINT, checkpoints, SAFE, read_checkpoint),
    "bench.json": Format("bench.json", speeds, TEXT, compare_speeds),
    "task.json": Format("task.json", task_result, TEXT, lambda folder: read_result(folder / "task.json")),
    "trial": Format("cradle.text.CD-Lagrange.safetensors", trials("*.safetensors"), SAFE, read_trials),
    "measured: collisions": Format(CHECKS, measured(CHECKS), TEXT, read_air_track),
    "measured: pendulum": Format(
        PENDULUM, measured(PENDULUM), TEXT, lambda folder: pendulum_recording(read_pendulum(folder))
    ),
}
