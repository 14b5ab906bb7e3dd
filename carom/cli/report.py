"""`carom report`: the page of a fit."""

from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.console import WriterCommon, print_json, require_output
from carom.report import write_report


def report(
    fit: Annotated[Path, tyro.conf.Positional], /, *, out: Path | None = None, common: WriterCommon
) -> None:
    """Write an HTML page about a fit: recording, contacts, parameters, forecast and an animated scene.

    Example: carom report fits/ball

    The page is one self-contained file: it opens offline and loads nothing from elsewhere.

    Args:
        fit: A fit directory written by `carom fit`.
        out: The page, by default report.html in the fit directory, which is replaced.
    """
    # The page in the fit directory is made from it alone, and may always be made again.
    if out is not None:
        require_output(out, overwrite=common.overwrite)
    path = out or fit / "report.html"
    size = write_report(fit, path)
    if common.json:
        print_json({"report": str(path), "bytes": size})
    else:
        print(f"{path}: {size / 1e6:.1f} MB; open it in a browser.")
