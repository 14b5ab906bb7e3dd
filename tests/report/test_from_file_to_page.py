"""From somebody's CSV to a page, by the command line alone, in a fresh folder."""

import json

import numpy as np
import polars as pl
import pytest

from carom.cli import main
from tests.report.own_recordings import KINDS

whole = pytest.mark.campaign


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind",
    [
        "swing",
        pytest.param("ball", marks=whole),
        pytest.param("carts", marks=whole),
        pytest.param("corner", marks=whole),
        pytest.param("touch", marks=whole),
    ],
)
def test_from_file_to_page(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recording = KINDS[kind](np.random.default_rng(7))
    recording.write(tmp_path / "mine.csv")

    def run(*arguments):
        main([*arguments, "--json"])
        return json.loads(capsys.readouterr().out)

    seen = run("init", "mine.csv")
    assert (seen["bodies"], seen["dimension"], seen["walls"], seen["pairs"]) == recording.shape
    assert " ".join(recording.options) in seen["next"]

    fit = run("fit", "mine.csv", *recording.options, "--hold-out", "0.2", "--out", "runs/mine")
    for name, true in recording.true.items():
        found = [pair for full, pair in fit["parameters"].items() if full.startswith(name)]
        assert found
        for value, error in found:
            assert error is not None
            assert abs(value - true) < max(4 * error, 0.01 * true)
    assert fit["diagnostics"] == []

    ahead = run("forecast", "runs/mine", "--end", "--steps", "30", "--out", "forecast.csv")
    assert ahead["members"] == 64
    table = pl.read_csv(tmp_path / "forecast.csv")
    for coordinate in range(1, 1 + recording.shape[0] * recording.shape[1]):
        low, centre, high = (table[f"q{coordinate}{end}"].to_numpy() for end in ("_low", "", "_high"))
        assert (low <= high).all()
        assert np.mean((low <= centre) & (centre <= high)) > 0.8

    page = run("report", "runs/mine")
    assert page["bytes"] < 8e6
    text = (tmp_path / "runs/mine/report.html").read_text(encoding="utf-8")
    for figure in (
        "data",
        "forecast",
        "phase",
        "energy",
        "force",
        "history",
        *(["gap"] if recording.true else []),
    ):
        assert f'data-chart="{figure}' in text
    assert "Diagnostics" not in text
    # What was held out is forecast about as well as noise allows.
    error = float(text.partition("root-mean-square error of ")[2].partition(";")[0])
    assert error < 6 * fit["noise"][0]


def test_the_file_that_init_wrote_says_what_is_a_guess(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    KINDS["carts"](np.random.default_rng(8)).write(tmp_path / "mine.csv")
    main(["init", "mine.csv"])
    text = (tmp_path / "mine.toml").read_text()
    assert text.count("GUESS") >= 5
    assert "6 impacts found" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["init", "mine.csv"])
    assert caught.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    main(["init", "mine.csv", "--overwrite", "--out", "other.toml"])
    assert "--system other.toml" in capsys.readouterr().out
    assert (tmp_path / "other.toml").read_text() == text
