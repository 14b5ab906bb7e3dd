"""`carom report`: a page to look at."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.arguments import require_output
from carom.cli.output import print_json
from carom.errors import require_seed
from carom.report import write_run_report


def report(
    run: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Write one HTML page of a fit: data, contacts, parameters, forecast, and an animated scene.

    Example: carom report runs/ball

    The page needs nothing but itself: it opens without a network, and no request leaves it.

    Args:
        run: A run folder that `carom fit` wrote.
        out: The page, by default report.html in the run folder, which is replaced.
        overwrite: Replace a page with another name if it exists.
        seed: Unused; every command takes it.
        json: Print one JSON object instead of a sentence.
    """
    require_seed(seed)
    if out is not None:
        require_output(out, overwrite=overwrite)
    path = out or run / "report.html"
    size = write_run_report(run, path)
    if json:
        print_json({"report": str(path), "bytes": size})
    else:
        print(f"{path}: {size / 1e6:.1f} MB; open it in a browser.")
