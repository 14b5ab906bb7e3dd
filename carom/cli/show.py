"""`carom show`: recordings as pictures."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.arguments import require_output
from carom.cli.output import print_json
from carom.data import read_described
from carom.errors import InputError, require_range, require_seed
from carom.plotting.pictures import save_picture
from carom.plotting.scene_pictures import draw_run, write_run_animation
from carom.plotting.style import figure_style
from carom.storage.input_file import shown


def show(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path,
    system: Path | None = None,
    run: int = 1,
    title: str = "",
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Draw a run of a recording or of a forecast: bodies, walls and trails, or an animation of them.

    Example: carom show box.csv --out box.png (or box.gif, an animation)

    Bodies in the plane are seen as they are, bodies in space from a corner above, and those on a line
    against time.

    Args:
        recording: The recording: .csv, .parquet or .npz.
        out: The picture to write: .png (a .svg comes with it) or, for an animation, .gif.
        system: The system file; by default the one beside the recording, with the same name and .toml.
        run: Which run is drawn, counted from 1.
        title: What is written above it.
        overwrite: Replace the picture if it exists.
        seed: Unused, as nothing here is random; every command takes it.
        json: Print one JSON object instead of a sentence.
    """
    require_seed(seed)
    if out.suffix not in (".png", ".gif"):
        raise InputError(f"{out}: a picture needs the suffix .png, or .gif for an animation.")
    require_output(out, overwrite=overwrite)
    read, described = read_described(recording, system)
    require_range("--run", run, 1, len(read.runs))
    chosen = read.runs[run - 1]
    if described.scene.dimension > 3:
        raise InputError(f"{recording}: bodies in {described.scene.dimension} dimensions cannot be drawn.")
    if out.suffix == ".gif":
        write_run_animation(chosen, described.scene, out, title=title)
    else:
        with figure_style():
            save_picture(draw_run(chosen, described.scene, title=title), out.with_suffix(""))
    if json:
        print_json({"picture": str(out), "run": run, "samples": len(chosen)})
    else:
        label = read.labels[run - 1]
        named = "" if label in (str(run - 1), str(run)) else f" ({shown(label)})"
        print(f"{out}: run {run}{named} of {len(read.runs)}, {len(chosen)} samples.")
