"""`carom compare`: every model on one recording."""

import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from carom.cli.console import WriterCommon, print_json, print_table, progress, require_output
from carom.data import read_described
from carom.data.io.formats import MAXIMUM_BYTES
from carom.errors import require_range
from carom.estimation import Settings
from carom.evaluation.compare import rank_models, ranking_table, write_ranking
from carom.execution.executor import checkpoint_directory
from carom.fits.plan import recipe_settings
from carom.storage.input_file import require_file
from carom.training import TrainingSettings


@dataclass(frozen=True)
class TrainingArguments(TrainingSettings):
    """The paper's training on the command line, where `--touch` is the recipe carom's."""

    touch: tyro.conf.Suppress[Literal["observed", "none"]] = "observed"  # pyright: ignore


def compare(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    system: Path | None = None,
    hold_out: float = 0.2,
    touch: Literal["observed", "inferred", "imperfect"] = "inferred",
    hidden: int = 500,
    settings: Annotated[TrainingArguments, tyro.conf.OmitArgPrefixes] = TrainingArguments(),  # noqa: B008
    common: WriterCommon,
) -> None:
    """Fit every model to the same part of a recording and rank them by their forecasts of the rest.

    Example: carom compare ball.csv --hold-out 0.2

    The models are that of the recipe carom and, trained by the paper's recipe, CD-Lagrange, the variational
    integrator network and both residual networks. A model that cannot be fitted to these data is listed with
    the reason. The same command continues a killed one.

    Args:
        recording: The recording: .csv, .parquet or .npz.
        out: File for the numbers as JSON, by default beside the recording with .compare.json at the end.
        system: The system file, by default the .toml beside the recording.
        hold_out: The share that no model is fitted to: whole runs where there are five or more, the end of
            each run otherwise.
        touch: How the recipe carom uses the touch columns; the paper's takes them as perfect.
        hidden: Units in the hidden layer of the paper's models.
        settings: The hyperparameters of the recipe paper.
    """
    require_range("--hidden", hidden, 1, 100_000)
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    # Beside the recording, as `carom init` does with the system file.
    out = out or recording.with_suffix(".compare.json")
    require_output(out, overwrite=common.overwrite)
    data, description = read_described(recording, system)
    ours = recipe_settings(Settings(touch=touch), recording, description.learn)
    # The paper's recipe knows no imperfect touch: it takes all of it, or none.
    paper = replace(settings, touch="observed" if data.has_touch else "none")
    with progress("fitting") as report:
        split, ranked = rank_models(
            data,
            share=hold_out,
            ours=ours,
            paper=paper,
            learn=description.learn,
            hidden=hidden,
            seed=common.seed,
            progress=report,
            checkpoints=checkpoint_directory(out),
        )
    stated = {"carom": asdict(ours), "paper": asdict(paper), "hidden": hidden, "seed": common.seed}
    write_ranking(split, ranked, out, recording=data, settings=stated | {"hold_out": hold_out})
    # Only after the result is on disk: a killed command continues from them.
    shutil.rmtree(checkpoint_directory(out), ignore_errors=True)
    if common.json:
        print_json({"out": str(out), "errors": {row.model: row.error for row in ranked}})
        return
    table = ranking_table(ranked, split)
    print_table(f"{recording}: {table.caption}", table.header, table.rows)
    for row in ranked:
        if row.reason:
            print(f"{row.model}: {row.reason}")
    print(f"Every number is in {out}.")
