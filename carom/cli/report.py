"""`carom report`: the page of a fit."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.arguments import require_output
from carom.cli.output import print_json
from carom.errors import require_seed
from carom.report import write_report


def report(
    fit: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Write an HTML page about a fit: recording, contacts, parameters, forecast and an animated scene.

    Example: carom report fits/ball

    The page is one self-contained file: it opens offline and loads nothing from elsewhere.

    Args:
        fit: A fit directory written by `carom fit`.
        out: The page, by default report.html in the fit directory, which is replaced.
        overwrite: Replace a page of another name if it exists.
        seed: Unused; every command accepts it.
        json: Print one JSON object instead of a sentence.
    """
    require_seed(seed)
    # The page in the fit directory is made from it alone, and may always be made again.
    if out is not None:
        require_output(out, overwrite=overwrite)
    path = out or fit / "report.html"
    size = write_report(fit, path)
    if json:
        print_json({"report": str(path), "bytes": size})
    else:
        print(f"{path}: {size / 1e6:.1f} MB; open it in a browser.")
