"""The page of one fit: what its template `fit.html` is filled with."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from carom import __version__
from carom.digits import MISSING, mean_and_error, number, to_error
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
        samples=sample_counts(findings),
        error=findings.error,
        infinity=np.inf,
        held_out={"size": sum(map(len, futures)), "spread": spread},
        table=parameter_table(findings),
        messages=diagnostics(findings),
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


def sample_counts(findings: Findings) -> dict[str, int]:
    """Numbers of training positions by what became of them, without zeros; nothing in older directories."""
    counts = findings.fit.notes.get("samples")
    if not isinstance(counts, dict) or not all(type(count) is int for count in counts.values()):
        return {}
    return {str(name).replace("_", " "): count for name, count in counts.items() if count > 0}


def parameter_table(findings: Findings) -> Table | None:
    """All parameters that were estimated, whatever they are.

    The columns for units and notes appear where some parameter has one.
    """
    listed = findings.fit.notes.get("parameters")
    rows = [row for row in listed if _is_parameter(row)] if isinstance(listed, list) else []
    if not rows:
        return None
    columns = {
        "parameter": [row["name"][:1].upper() + row["name"][1:] for row in rows],
        "estimate": [_estimate(row) for row in rows],
        "95 % interval": [_interval(row) for row in rows],
        "standard error": [
            MISSING if row["value"] is None else number(row["standard_error"]) for row in rows
        ],
    }
    for optional in ("unit", "note"):
        texts = [row[optional] if isinstance(row.get(optional), str) else "" for row in rows]
        if any(texts):
            columns[optional] = [text or MISSING for text in texts]
    caption = "Physical parameters, with standard errors by Laplace's approximation."
    return Table(caption, tuple(columns), tuple(zip(*columns.values(), strict=True)))


def diagnostics(findings: Findings) -> list[str]:
    """What the model does not explain, according to the fit."""
    messages = findings.fit.notes.get("diagnostics")
    return [message for message in messages if isinstance(message, str)] if isinstance(messages, list) else []


def _estimate(row: dict[str, Any]) -> str:
    """The estimate in words: the sentence of the fit without the name, which may speak of a bound.

    Example:
        >>> at_bound = {"name": "restitution", "value": 1.0, "standard_error": 0.01, "low": 0.98, "high": 1.0}
        >>> _estimate(at_bound), _estimate(at_bound | {"words": "restitution: 1.000, at least 0.980 (95 %)."})
        ('1.000 ± 0.010', '1.000, at least 0.980 (95 %)')
    """
    name, words = f"{row['name']}: ", row.get("words")
    if isinstance(words, str) and words.startswith(name):
        return words.removeprefix(name).removesuffix(".")
    if row["value"] is None:
        return "not determined by these data"
    return mean_and_error(row["value"], row["standard_error"])


def _interval(row: dict[str, Any]) -> str:
    if row["value"] is None:
        return MISSING
    return " to ".join(to_error(row[end], row["standard_error"]) for end in ("low", "high"))


def _is_parameter(row: Any) -> bool:
    """Rows come from a file; malformed ones are left out."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str) or not row["name"]:
        return False
    numbers = [row.get(key) for key in ("value", "standard_error", "low", "high")]
    complete = None not in numbers or row.get("value") is None
    return complete and all(value is None or type(value) in (int, float) for value in numbers)
