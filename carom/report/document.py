"""The page of one fit, put together."""

from html import escape
from pathlib import Path

from carom import __version__
from carom.errors import InputError
from carom.report import inline_svg, scene
from carom.report.charts import (
    Chart,
    data_charts,
    energy_charts,
    forecast_charts,
    gap_charts,
    history_charts,
    phase_charts,
    slope_charts,
)
from carom.report.findings import Findings, read_findings
from carom.report.page import page, table_html
from carom.report.words import doubts, overview, parameters
from carom.storage.atomic import atomic_write

MOST_BYTES = 8_000_000
"""The largest page that is written."""


def write_run_report(folder: Path, out: Path) -> int:
    """Write the page of a run folder: one file that needs nothing but itself. Returns its size in bytes.

    Arguments:
        folder: what `carom fit` wrote.
        out: the HTML file, replaced if it exists.
    """
    text = report_html(read_findings(folder)).encode()
    if len(text) > MOST_BYTES:
        raise InputError(
            f"{out}: the page would have {len(text)} bytes, more than {MOST_BYTES}; fit a shorter recording."
        )
    with atomic_write(out) as temporary:
        temporary.write_bytes(text)
    return len(text)


def report_html(findings: Findings) -> str:
    """The whole document."""
    name = str(findings.notes.get("recording", "a recording"))
    sentences, table = parameters(findings)
    warnings = doubts(findings)
    sections = [
        ("found", "What was found", _list(sentences) + ("" if table is None else table_html(table))),
        ("scene", "The motion", scene.scene_html(findings)),
        ("data", "What was recorded", _charts(data_charts(findings))),
        ("forecast", "Forecast of what was held out", _charts(forecast_charts(findings), _NO_FORECAST)),
        (
            "phase",
            "Phase portraits",
            _charts(phase_charts(findings), "<p>No state was recorded to start from.</p>"),
        ),
        ("force", "Energy and force", _charts(energy_charts(findings) + slope_charts(findings), _NO_FORCE)),
        ("contact", "Contacts", _charts(gap_charts(findings), "<p>This model has no contacts.</p>")),
        ("training", "Training", _charts(history_charts(findings))),
    ]
    if warnings:
        sections.insert(1, ("doubts", "Doubts", _list(warnings)))
    links = "".join(f'<li><a href="#{key}-section">{escape(title)}</a></li>' for key, title, _ in sections)
    body = [
        "<main>",
        f"<h1>{escape(name)}</h1>",
        *(f"<p>{escape(sentence)}</p>" for sentence in overview(findings)),
        f'<nav aria-label="Sections"><ul>{links}</ul></nav>',
        *(f'<h2 id="{key}-section">{escape(title)}</h2>\n{content}' for key, title, content in sections),
        "</main>",
        _provenance(findings),
    ]
    return page(
        f"{name}: a fit by Carom",
        "\n".join(body),
        style=inline_svg.STYLE + scene.STYLE,
        policy="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:",
    )


_NO_FORECAST = "<p>Nothing was held out; fit with <code>--hold-out 0.2</code> to see a forecast here.</p>"
_NO_FORCE = "<p>This model has no potential: neither an energy nor a force can be shown.</p>"


def _charts(charts: list[Chart], otherwise: str = "") -> str:
    if not charts:
        return otherwise
    return f'<div class="charts">{"".join(chart.html for chart in charts)}</div>'


def _list(sentences: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences) + "</ul>"


def _provenance(findings: Findings) -> str:
    notes = findings.notes
    bands = f"Bands hold {findings.band}. " if findings.band else ""
    digest = str(notes.get("recording_sha256", "unknown"))[:64]
    return (
        f"<footer><p>Carom {escape(__version__)}; seed {escape(str(notes.get('seed', 'unknown')))}; samples "
        f"with SHA-256 <code>{escape(digest[:16])}…</code>. {bands}"
        "Lengths are in the unit of the recording, times in seconds.</p></footer>"
    )
