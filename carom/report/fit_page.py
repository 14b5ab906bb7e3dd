"""The page of one fit: what its template `fit.html` is filled with."""

from functools import cache
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from carom import __version__
from carom.digits import MISSING, number, to_error
from carom.errors import InputError
from carom.evaluation.tables import Table
from carom.report.charts import fit_charts
from carom.report.findings import Findings, read_findings
from carom.report.scene import draw_scene
from carom.storage.atomic import write_whole

MOST_BYTES = 8_000_000
"""The largest page that is written: browsers become slow beyond."""


def write_report(directory: Path, out: Path) -> int:
    """Write the page of a fit directory, one self-contained file. Returns its size in bytes.

    Arguments:
        directory: written by `carom fit`.
        out: the HTML file, replaced if it exists.
    """
    findings = read_findings(directory)
    notes = findings.fit.notes
    futures = [part.future.position for part in findings.fit.split.held_out]
    # The error of always predicting the mean, to compare the forecasts with.
    spread = float(np.nanstd(np.concatenate([future.ravel() for future in futures]))) if futures else 0.0
    text = page_templates().get_template("fit.html").render(
        version=__version__,
        findings=findings,
        fit=findings.fit,
        seconds=sum(float(run.time[-1] - run.time[0]) for run in findings.fit.recording.runs),
        impacts=sum(int(found.sum()) for found in findings.impacts),
        noise=findings.noise,
        samples={name.replace("_", " "): count for name, count in notes.get("samples", {}).items() if count},
        error=findings.error,
        infinity=np.inf,
        held_out={"size": sum(map(len, futures)), "spread": spread},
        table=parameter_table(findings),
        messages=notes.get("diagnostics", []),
        scene=draw_scene(findings),
        charts=fit_charts(findings),
    )  # fmt: skip
    page = text.encode()
    if len(page) > MOST_BYTES:
        raise InputError(
            f"{out}: the page would have {len(page)} bytes, more than {MOST_BYTES}; fit a shorter recording."
        )
    write_whole(out, page)
    return len(page)


@cache
def page_templates() -> Environment:
    """The templates of the page, in which everything from files is escaped."""
    loader = PackageLoader("carom.report")
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["number"] = number
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def parameter_table(findings: Findings) -> Table | None:
    """All parameters that were estimated, whatever they are."""
    rows = []
    for one in findings.fit.notes.get("parameters", ()):
        name, error = one["name"], one["standard_error"]
        # The sentence of the fit, which may speak of a bound, without the name at its beginning.
        estimate = one["words"].removeprefix(f"{name}: ").removesuffix(".")
        interval, shown_error = MISSING, MISSING
        if error is not None and one["low"] is not None and one["high"] is not None:
            interval = f"{to_error(one['low'], error)} to {to_error(one['high'], error)}"
            shown_error = number(error)
        row = (name[:1].upper() + name[1:], estimate, interval, shown_error, one.get("unit") or MISSING)
        rows.append(row)
    header = ("parameter", "estimate", "95 % interval", "standard error", "unit")
    caption = "Physical parameters, with standard errors by Laplace's approximation."
    return Table(caption, header, tuple(rows)).without_empty_columns() if rows else None
