"""The commands as a user runs them, from a simulated recording to a forecast."""

import json
import subprocess
import sys

import numpy as np
import pytest

from carom.cli import COMMANDS, main
from carom.data import read_recording, read_system_file

QUICK = ["--epochs", "3", "--hidden", "8"]


def test_from_simulation_to_forecast(tmp_path, capsys):
    recording, run, out = tmp_path / "ball.csv", tmp_path / "runs" / "ball", tmp_path / "forecast.parquet"
    main(
        [
            "simulate",
            "ball",
            "--noise",
            "0.1",
            "--steps",
            "80",
            "--seed",
            "3",
            "--out",
            str(recording),
            "--json",
        ]
    )
    assert json.loads(capsys.readouterr().out)["samples"] == 81
    assert read_system_file(recording.with_suffix(".toml")).scene.contacts == 1

    main(["fit", str(recording), "--out", str(run), *QUICK, "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert np.isfinite([summary["state"], summary["contact"], summary["forecast_error"]]).all()
    assert sorted(path.name for path in run.iterdir()) == ["history.jsonl", "model.safetensors", "run.json"]
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    assert json.loads((run / "run.json").read_text())["settings"]["epochs"] == 3

    main(["forecast", str(run), "--start", "5,1", "--steps", "40", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 40
    forecast = read_recording(out)
    assert forecast.samples == 41
    np.testing.assert_allclose(forecast.runs[0].position[0], 5)
    np.testing.assert_allclose(forecast.runs[0].velocity[0], 1)


@pytest.mark.parametrize("model", ["vin", "resnet", "contact-resnet"])
def test_every_model_by_command(model, tmp_path, capsys):
    recording, run = tmp_path / "cradle.npz", tmp_path / "run"
    main(["simulate", "cradle", "--steps", "120", "--out", str(recording)])
    main(["fit", str(recording), "--model", model, "--out", str(run), *QUICK])
    main(["forecast", str(run), "--steps", "20", "--out", str(tmp_path / "forecast.csv")])
    assert "20 steps" in capsys.readouterr().out


def test_a_second_run_into_the_same_folder_must_be_meant(tmp_path, capsys):
    recording, run = tmp_path / "ball.csv", tmp_path / "run"
    main(["simulate", "ball", "--steps", "30", "--out", str(recording)])
    main(["fit", str(recording), "--out", str(run), *QUICK])
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(recording), "--out", str(run), *QUICK])
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    main(["fit", str(recording), "--out", str(run), *QUICK, "--overwrite"])


def test_same_seed_same_model(tmp_path):
    recording = tmp_path / "ball.csv"
    main(["simulate", "ball", "--steps", "30", "--out", str(recording)])
    for name in ("one", "two"):
        main(["fit", str(recording), "--out", str(tmp_path / name), *QUICK, "--seed", "5"])
        main(["forecast", str(tmp_path / name), "--out", str(tmp_path / f"{name}.csv"), "--steps", "30"])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert f"carom {command}" in printed.replace("\n", " ")
    assert "Example" in printed
    assert "--seed" in printed
    assert "--json" in printed


def test_installed_command_refuses_with_status_2(tmp_path):
    """Through a real process: one sentence, no traceback."""
    result = subprocess.run(
        [sys.executable, "-m", "carom", "fit", "nowhere.csv", "--out", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("carom: ")
    assert result.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())
