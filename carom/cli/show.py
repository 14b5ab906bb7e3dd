"""`carom show`: recordings as pictures."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.console import WriterCommon, print_json, require_output
from carom.data import read_described
from carom.errors import InputError, require_range
from carom.plotting.scenes import write_run_picture
from carom.storage.input_file import shown


def show(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    run: int = 1,
    title: str = "",
    common: WriterCommon,
) -> None:
    """Draw a run of a recording or of a forecast: bodies, walls and trails, or an animation of them.

    Example: carom show box.csv --out box.png (or box.gif, an animation)

    Bodies in the plane are drawn to scale, bodies in space in orthographic projection, and bodies on a line
    against time.

    Args:
        recording: The recording: .csv, .parquet or .npz.
        out: The picture to write: .png (with a .svg beside it) or, for an animation, .gif.
        system: The system file; by default the one beside the recording, with the same name and .toml.
        run: The run to draw, counted from 1.
        title: The title above the picture.
    """
    if out.suffix not in (".png", ".gif"):
        raise InputError(f"{out}: a picture needs the suffix .png, or .gif for an animation.")
    require_output(out, overwrite=common.overwrite)
    read, described = read_described(recording, system)
    require_range("--run", run, 1, len(read.runs))
    chosen, label = read.runs[run - 1], read.labels[run - 1]
    # Which three axes to show would be a guess.
    if described.scene.dimension > 3:
        raise InputError(f"{recording}: bodies in {described.scene.dimension} dimensions cannot be drawn.")
    write_run_picture(chosen, described.scene, out, title=title)
    if common.json:
        print_json({"picture": str(out), "run": run, "samples": len(chosen)})
    else:
        named = "" if label in (str(run - 1), str(run)) else f" ({shown(label)})"
        print(f"{out}: run {run}{named} of {len(read.runs)}, {len(chosen)} samples.")
