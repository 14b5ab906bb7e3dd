"""The documentation's own steps on a measured recording, read from the page and run as they stand."""

import json
import os
import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from carom.cli import main

ROOT = Path(__file__).parents[2]
MEASURED = Path(os.environ.get("CAROM_DATA", ROOT / "../shared/data")).resolve()


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_from_a_measured_table_to_a_page(tmp_path, monkeypatch, capsys):
    if not (MEASURED / "air_track").is_dir():
        pytest.skip(f"the measured recordings are not here ({MEASURED}); set CAROM_DATA to their folder")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/recordings.md").read_text(encoding="utf-8")
    section = page.split("## From beginning to end")[1]
    selection, steps = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    exec(selection.replace("FOLDER", str(MEASURED)), {})

    told = []
    for line in steps.splitlines():
        command, *arguments = shlex.split(line)
        assert command == "carom"
        main([*arguments, "--json"])
        told.append(json.loads(capsys.readouterr().out))
    seen, fit, written = told
    assert (seen["bodies"], seen["dimension"], seen["walls"], seen["pairs"]) == (2, 1, 0, 1)
    assert "--mask 45" in seen["next"]

    # Straight lines through 0.1 s either side of each impact are the check: their restitutions near 1 m/s.
    checked = pl.read_csv(MEASURED / "air_track/runs.csv").filter(
        (pl.col("bumper") == "rubber") & pl.col("closing_speed_m_s").is_between(0.8, 1.25)
    )["restitution_line_fit"]
    (name,) = (name for name in fit["parameters"] if name.endswith("at 1 unit of speed"))
    value, error = fit["parameters"][name]
    assert abs(value - checked.mean()) < 0.03
    assert error < 0.02
    text = Path("runs/rubber/report.html").read_text(encoding="utf-8")
    assert written["bytes"] < 8e6
    assert "Forecast of the held-out data" in text
    name = "Restitution between bodies 2 and 1, at 1 unit of speed"
    assert re.search(rf"{name}</th>\s*<td>0\.6\d+ ± 0\.00\d", text)
    assert 'data-chart="restitution-0"' in text
