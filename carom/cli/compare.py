"""`carom compare`: every model on one recording."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from carom.cli.arguments import require_output
from carom.cli.fit import PaperSettings
from carom.cli.output import print_json, print_table, progress
from carom.data import read_described
from carom.data.io.tables import MAXIMUM_BYTES
from carom.errors import require_range, require_seed
from carom.estimation import LatentSettings
from carom.evaluation.compare import CAROM, PAPER_MODELS, Ranked, rank_models, write_ranking
from carom.execution.tasks import unfinished
from carom.fits.options import learned_from
from carom.storage.input_file import require_file


def compare(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    system: Path | None = None,
    hold_out: float = 0.2,
    touch: Literal["observed", "inferred", "imperfect"] = "inferred",
    hidden: int = 500,
    settings: Annotated[PaperSettings, tyro.conf.OmitArgPrefixes] = PaperSettings(),  # noqa: B008
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Fit every model to the same part of a recording and rank them by their forecasts of the rest.

    Example: carom compare ball.csv --hold-out 0.2

    The recipe carom, and by the paper's recipe CD-Lagrange, the variational integrator network and both
    residual networks. A model that cannot be fitted to these data is listed with the reason. The same command
    continues a killed one.

    Args:
        recording: What was measured: .csv, .parquet or .npz.
        out: The numbers as JSON, by default beside the recording with .compare.json at the end.
        system: The system file, by default the .toml beside the recording.
        hold_out: The share that no model sees: whole runs where there are five or more, the end of each
            run otherwise.
        touch: What the touch columns mean to the recipe carom; the paper's takes them as perfect.
        hidden: Units in the hidden layer of the paper's models.
        settings: The hyperparameters of the recipe paper.
        overwrite: Replace the JSON file if it exists.
        seed: Seed of the start weights and of the order of minibatches.
        json: Print one JSON object instead of a table.
    """
    require_seed(seed)
    require_range("--hidden", hidden, 1, 100_000)
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    out = out or recording.with_suffix(".compare.json")
    require_output(out, overwrite=overwrite)
    data, description = read_described(recording, system)
    latent = LatentSettings(touch=touch, learned=learned_from(description.learn, None))
    windowed = replace(settings, touch="observed" if data.has_touch else "none")
    names = [CAROM, *PAPER_MODELS]
    with progress("fitting") as tell:
        split, ranked = rank_models(
            data,
            share=hold_out,
            latent=latent,
            windowed=windowed,
            learn=description.learn,
            hidden=hidden,
            seed=seed,
            progress=lambda name: tell(names.index(name) / len(names)),
            checkpoints=unfinished(out),
        )
    stated = {"carom": asdict(latent), "paper": asdict(windowed), "hidden": hidden, "seed": seed}
    write_ranking(split, ranked, out, recording=data, settings=stated | {"hold_out": hold_out})
    shutil.rmtree(unfinished(out), ignore_errors=True)
    if json:
        print_json({"out": str(out), "errors": {row.model: row.error for row in ranked}})
        return
    samples = sum(len(part.future) for part in split.held_out)
    print_table(
        f"{recording}: forecasts of {samples} samples held out in {len(split.held_out)} run(s)",
        ("model", "error of a position", "median over runs", "seconds"),
        [_line(row) for row in ranked],
    )
    for row in ranked:
        if row.reason:
            print(f"{row.model}: {row.reason}")
    print(f"Every number is in {out}.")


def _line(row: Ranked) -> tuple[object, ...]:
    if row.error is None:
        return row.model, "not fitted", "", ""
    middle = float(np.median(row.errors))
    shown = ["diverged" if np.isinf(value) else value for value in (row.error, middle)]
    return row.model, *shown, "" if row.seconds is None else f"{row.seconds:.1f}"
