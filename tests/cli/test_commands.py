"""The commands as a user runs them, from a simulated recording to a forecast."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import carom
from carom.cli import COMMANDS, main
from carom.cli.console import print_json
from carom.data import Recording, disturb_touch, read_recording, read_system_file, write_recording
from carom.evaluation.results import read_results, wide
from carom.fits.fit_directory import UNFINISHED
from carom.fits.options import FitOptions
from carom.fits.plan import plan_fit
from carom.systems import BouncingBall
from tests.campaign import shortened
from tests.riders import encounters

QUICK = ["--recipe", "paper", "--epochs", "3", "--hidden", "8"]
SMALL = ["--hidden", "8", "--starts", "1", "--horizons", "100"]
"""Of the recipe carom: a small network from one start, in two stages."""


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
    written = ["fit.json", "history.jsonl", "manifest.json", "model.safetensors", "recording.parquet"]
    assert sorted(path.name for path in run.iterdir()) == written
    assert len((run / "history.jsonl").read_text().splitlines()) == 3
    assert json.loads((run / "fit.json").read_text())["settings"]["epochs"] == 3

    main(["forecast", str(run), "--start", "5,1", "--steps", "40", "--out", str(out), "--json"])
    assert json.loads(capsys.readouterr().out)["steps"] == 40
    forecast = read_recording(out)
    assert forecast.samples == 41
    np.testing.assert_allclose(forecast.runs[0].position[0], 5)
    np.testing.assert_allclose(forecast.runs[0].velocity[0], 1)


@pytest.mark.parametrize("model", shortened(["vin", "resnet", "contact-resnet"], ["resnet"]))
def test_every_model_by_command(model, tmp_path, capsys):
    recording, run = tmp_path / "cradle.npz", tmp_path / "run"
    main(["simulate", "cradle", "--steps", "120", "--out", str(recording)])
    main(["fit", str(recording), "--model", model, "--out", str(run), *QUICK])
    main(["forecast", str(run), "--steps", "20", "--out", str(tmp_path / "forecast.csv")])
    assert "20 steps" in capsys.readouterr().out


def test_positions_alone_are_enough_for_the_stormer_verlet_network(tmp_path, capsys):
    recording, run, out = tmp_path / "swing.csv", tmp_path / "run", tmp_path / "forecast.csv"
    times = 0.02 * np.arange(60)
    rows = [f"{time:.2f},{np.cos(3 * time):.8f}" for time in times]
    recording.write_text("\n".join(["t,q1", *rows]) + "\n")
    recording.with_suffix(".toml").write_text("[system]\nbodies = 1\ndimension = 1\n")
    fit = ["fit", str(recording), "--model", "vin", "--scheme", "stormer_verlet", "--out", str(run), *QUICK]
    main(fit)
    assert "--start" in capsys.readouterr().out
    main([*fit, "--overwrite", "--json"])
    assert json.loads(capsys.readouterr().out)["forecast_error"] is None

    with pytest.raises(SystemExit):
        main(["forecast", str(run), "--out", str(out)])
    assert "give --start" in capsys.readouterr().err
    main(["forecast", str(run), "--start", "-1,0", "--steps", "20", "--out", str(out)])
    forecast = read_recording(out).runs[0]
    assert len(forecast) == 21
    np.testing.assert_allclose(forecast.position[0], -1)


@pytest.mark.parametrize("channels", shortened([3, 1], [3]))
def test_restitution_from_a_recording(channels, tmp_path, capsys):
    """The recipe, told a wrong e, finds the true one; a forecast bounces where the ball did.

    With positions, velocities and touch, or with positions alone.
    """
    recording, run, out = tmp_path / "ball.csv", tmp_path / "run", tmp_path / "forecast.csv"
    simulate = ["simulate", "ball", "--restitution", "0.8", "--noise", "0.05", "--steps", "250"]
    main([*simulate, "--seed", "1", "--out", str(recording)])
    rows = [line.split(",")[: 2 + channels] for line in recording.read_text().splitlines()]
    recording.write_text("\n".join(map(",".join, rows)) + "\n")
    recording.with_suffix(".toml").write_text(
        "[system]\nbodies = 1\ndimension = 1\nrestitution = 0.5\n\n"
        '[[wall]]\nbody = 1\nnormal = [1.0]\n\n[learn]\nparameters = ["restitution", "surfaces"]\n'
    )
    capsys.readouterr()

    main(["fit", str(recording), *SMALL, "--out", str(run), "--json"])
    summary = json.loads(capsys.readouterr().out)
    assert summary["impacts"] == [2]
    ((value, standard_error),) = [
        pair for name, pair in summary["parameters"].items() if name.startswith("restitution")
    ]
    assert abs(value - 0.8) < 4 * standard_error
    assert standard_error < 0.02
    np.testing.assert_allclose(summary["noise"][0], 0.05, rtol=0.25)

    main(["forecast", str(run), "--steps", "150", "--out", str(out)])
    forecast = read_recording(out).runs[0]
    ball = BouncingBall(restitution=0.8)
    exact = ball.exact(ball.start, forecast.time)
    np.testing.assert_allclose(forecast.position, exact.position, atol=0.2)


@pytest.mark.campaign
def test_the_rates_of_a_touch_sensor(tmp_path, capsys):
    """Estimated by default, or given; reported where they are estimated."""
    recording, run = tmp_path / "ball.csv", tmp_path / "run"
    main(["simulate", "ball", "--noise", "0.1", "--steps", "300", "--seed", "2", "--out", str(recording)])
    readings = disturb_touch(read_recording(recording), missed=0.0, false=0.03, shift=0, seed=2)
    write_recording(readings, recording)
    capsys.readouterr()
    main(["fit", str(recording), "--touch", "imperfect", "--sensor.delay", "0", "--out", str(run), "--json"])
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert [name.split(" ")[0] for name in parameters] == ["surface", "fraction", "fraction"]
    false, error = parameters["fraction of samples with a false touch"]
    assert abs(false - 0.03) < 4 * error
    assert json.loads((run / "fit.json").read_text())["settings"]["sensor"]["delay"] == 0


@pytest.mark.campaign
def test_missing_cells_and_steps_that_vary(tmp_path, capsys):
    """One cell in ten is empty and samples are up to 0.3 steps early or late: e lies in its interval."""
    recording, run, out = tmp_path / "ball.csv", tmp_path / "run", tmp_path / "forecast.csv"
    generator, ball = np.random.default_rng(1), BouncingBall(restitution=0.8)
    times = 0.02 * (np.arange(251) + 0.3 * generator.uniform(-1, 1, 251))
    motion = ball.exact(ball.start, times)
    cells = np.stack([motion.position[:, 0, 0], motion.velocity[:, 0, 0]], axis=1)
    cells += 0.05 * generator.standard_normal(cells.shape)
    lost = generator.random(cells.shape) < 0.1
    rows = [
        ",".join([f"{time:.9f}", *("" if gone else f"{cell:.6f}" for gone, cell in zip(*row, strict=True))])
        for time, row in zip(times, zip(lost, cells, strict=True), strict=True)
    ]
    recording.write_text("\n".join(["t,q1,v1", *rows]) + "\n")
    system = (
        "[system]\nbodies = 1\ndimension = 1\nrestitution = 0.5\n\n"
        '[[wall]]\nbody = 1\nnormal = [1.0]\n\n[learn]\nparameters = ["restitution", "surfaces"]\n'
    )
    recording.with_suffix(".toml").write_text(system)
    with pytest.raises(SystemExit) as stop:
        main(["fit", str(recording), "--out", str(run)])
    assert stop.value.code == 2
    assert 'missing = ["' in capsys.readouterr().err

    recording.with_suffix(".toml").write_text(system + '\n[sampling]\nmissing = ["position", "velocity"]\n')
    main(["fit", str(recording), "--out", str(run)])
    assert f"{lost.sum()}" in capsys.readouterr().out
    summary = json.loads((run / "fit.json").read_text())
    (restitution,) = [p for p in summary["parameters"] if p["name"].startswith("restitution")]
    assert restitution["low"] <= 0.8 <= restitution["high"]
    assert restitution["high"] - restitution["low"] < 0.02
    np.testing.assert_allclose(summary["noise"], 0.05, rtol=0.15)

    main(["forecast", str(run), "--steps", "250", "--out", str(out)])
    forecast = read_recording(out)
    assert forecast.even
    assert forecast.step_size == pytest.approx(np.median(np.diff(times)), rel=0.01)
    exact = ball.exact(ball.start, forecast.runs[0].time)
    np.testing.assert_allclose(forecast.runs[0].position, exact.position, atol=0.2)


def test_names_of_runs_come_back_and_what_is_held_out_is_scored(tmp_path, capsys):
    recording, run, out = tmp_path / "ball.csv", tmp_path / "run", tmp_path / "forecast.csv"
    starts = ["--start", "3,0", "--start", "3.5,0"]
    main(["simulate", "ball", *starts, "--steps", "130", "--noise", "0.01", "--out", str(recording)])
    names = {"0": "low drop", "1": "high drop"}
    header, *lines = recording.read_text().splitlines()
    named = [f"{names[line.partition(',')[0]]},{line.partition(',')[2]}" for line in lines]
    recording.write_text("\n".join([header, *named]) + "\n")
    capsys.readouterr()
    main(["fit", str(recording), *QUICK, "--hold-out", "0.2", "--out", str(run)])
    assert "error of forecasts of held-out data" in " ".join(capsys.readouterr().out.split())
    main(["forecast", str(run), "--end", "--steps", "5", "--out", str(out)])
    assert read_recording(out).labels == tuple(names.values())
    main(["report", str(run)])
    assert "in run 2 (high drop)" in (run / "report.html").read_text(encoding="utf-8")
    main(["show", str(recording), "--run", "2", "--out", str(tmp_path / "run.png")])
    assert "run 2 (high drop) of 2" in capsys.readouterr().out
    description = read_system_file(recording.with_suffix(".toml"))
    data = read_recording(recording, columns=description.columns, scene=description.scene)
    (note,) = plan_fit(FitOptions(around=0.5), recording, data, description).notes
    assert note.startswith("2 of 2 runs have more than one impact; only the data around")


def test_a_run_that_is_not_finished_is_said_to_be(tmp_path, capsys):
    (tmp_path / "run" / UNFINISHED).mkdir(parents=True)
    with pytest.raises(SystemExit) as caught:
        main(["report", str(tmp_path / "run")])
    assert caught.value.code == 2
    assert "is not finished; its command continues it" in capsys.readouterr().err


@pytest.mark.campaign
def test_riders_with_bumpers_that_last_by_command(tmp_path, capsys):
    """Restitution and the ratio of masses from positions; pushed before, and the gap another in every run."""
    generator = np.random.default_rng(4)
    cases = encounters(
        generator.uniform(0.3, 1.5, 5), lambda u: 0.7, scatter=0.0, generator=generator, mass_ratio=0.6
    )
    time = np.arange(0, 0.8, 0.004)
    runs = tuple(case.run(time, generator.uniform(0.3, 0.5), 2e-5, generator) for case in cases)
    recording, run = tmp_path / "riders.csv", tmp_path / "run"
    carom.write_recording(Recording(runs, 0.004), recording)
    recording.with_suffix(".toml").write_text(
        "[system]\nbodies = 2\ndimension = 1\n\n[[pair]]\nfirst = 1\nsecond = 2\n"
    )
    command = ["fit", str(recording), "--out", str(run), "--json", "--potential", "none", "--hidden", "1"]
    command += ["--around", "0.13", "--mask", "7", "--learn", "restitution", "masses", "surfaces-per-run"]
    main(command)
    summary = json.loads(capsys.readouterr().out)
    assert summary["impacts"] == [1] * 5
    assert not summary["diagnostics"]
    found = dict(zip(("restitution", "masses"), summary["parameters"].values(), strict=True))
    for name, truth in (("restitution", 0.7), ("masses", 0.6)):
        value, error = found[name]
        assert abs(value - truth) < 4 * error
        assert error < 0.01


def test_every_start_is_a_run(tmp_path):
    out = tmp_path / "ball.csv"
    main(["simulate", "ball", "--start", "10,0", "--start", "8,-1", "--steps", "20", "--out", str(out)])
    runs = read_recording(out).runs
    assert [float(run.position[0, 0, 0]) for run in runs] == [10, 8]
    assert [float(run.velocity[0, 0, 0]) for run in runs] == [0, -1]
    assert [len(run) for run in runs] == [21, 21]


@pytest.mark.parametrize("there", ["ball.csv", "ball.toml"])
def test_simulate_replaces_files_only_when_told(there, tmp_path, capsys):
    (tmp_path / there).write_text("precious")
    command = ["simulate", "ball", "--steps", "20", "--out", str(tmp_path / "ball.csv")]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert there in error
    assert "--overwrite" in error
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(there, "precious")]
    main([*command, "--overwrite"])
    assert read_recording(tmp_path / "ball.csv").samples == 21


def test_forecast_replaces_a_file_only_when_told(tmp_path, capsys):
    recording, run, out = tmp_path / "ball.csv", tmp_path / "run", tmp_path / "forecast.csv"
    main(["simulate", "ball", "--steps", "30", "--out", str(recording)])
    main(["fit", str(recording), "--out", str(run), *QUICK])
    out.write_text("precious")
    command = ["forecast", str(run), "--steps", "10", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert out.read_text() == "precious"
    main([*command, "--overwrite"])
    assert read_recording(out).samples == 11


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


def test_version(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"carom {carom.__version__}\n"


def test_json_has_no_numbers_that_are_not_finite(capsys):
    rows = [{"seconds": float("nan"), "error": 1.5}, {"seconds": (float("inf"), 2)}]
    print_json({"rows": rows, "figure": "ball.png", "error": -float("inf")})

    def refuse(constant):
        raise AssertionError(constant)

    printed = json.loads(capsys.readouterr().out, parse_constant=refuse)
    expected = [{"seconds": None, "error": 1.5}, {"seconds": [None, 2]}]
    assert printed == {"rows": expected, "figure": "ball.png", "error": None}


TABLE = ["fit", "drop.csv", "--model", "vin", "--out", "run", *QUICK]
SENTENCE = ["simulate", "ball", "--steps", "20", "--out", "ball.csv"]
"""A process each, which takes seconds to load: of what is printed, a table by rich and a line by Python."""


def _with_output_to(target: int, arguments: list[str], folder) -> tuple[int, str]:
    """Exit status and standard error of a process whose standard output is buffered and goes to `target`."""
    rows = [f"{0.02 * n:.2f},{n * n},{n}" for n in range(30)]
    (folder / "drop.csv").write_text("\n".join(["t,q1,v1", *rows]) + "\n")
    (folder / "drop.toml").write_text("[system]\nbodies = 1\ndimension = 1\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(
        [sys.executable, "-m", "carom", *arguments],
        cwd=folder,
        env=environment,
        stdout=target,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return result.returncode, result.stderr


def test_a_reader_that_has_gone_is_no_error(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        status, error = _with_output_to(writer, TABLE, tmp_path)
    finally:
        os.close(writer)
    assert status == 0
    assert [line for line in error.splitlines() if not line.startswith("training")] == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_full_output_is_told(tmp_path):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        status, error = _with_output_to(full.fileno(), SENTENCE, tmp_path)
    assert status == 2
    (sentence,) = error.splitlines()
    assert sentence.startswith("carom: The output cannot be written")
    assert "No space left" in sentence


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


def test_grid_by_command(tmp_path, capsys):
    command = ["reproduce", "grid", "oracle", "--quick", "--runs", "2", "--out", str(tmp_path)]
    main([*command, "--workers", "1", "--json"])
    results = read_results(tmp_path / "grid.json")
    assert json.loads(capsys.readouterr().out)["rows"] == results.rows.height
    assert results.header["command"] == "carom reproduce grid oracle --runs 2 --quick"
    fits = wide(results.rows).filter(model="oracle")
    assert fits.group_by("noise", "bounces").len()["len"].to_list() == [2, 2, 2, 2]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"grid.png", "grid.svg"}
    main(command)
    assert "grid.json has every number" in capsys.readouterr().out


@pytest.mark.campaign
def test_a_comparison_ranks_every_model(tmp_path, capsys):
    """The recipe carom has the equations of a ball; three epochs leave the others behind. JSON has it all."""
    recording = tmp_path / "ball.csv"
    main(["simulate", "ball", "--noise", "0.05", "--steps", "150", "--out", str(recording)])
    capsys.readouterr()
    quick = ["--epochs", "3", "--hidden", "8", "--hold-out", "0.2"]
    main(["compare", str(recording), *quick, "--json"])
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert errors.keys() == {"carom", "textbook", "cd-lagrange", "vin", "resnet", "contact-resnet"}
    ranked = [np.inf if error is None else error for error in errors.values()]
    assert ranked == sorted(ranked)
    assert {*list(errors)[:2]} == {"carom", "textbook"}
    assert errors["carom"] < 0.2
    document = json.loads((tmp_path / "ball.compare.json").read_text())
    assert document["held_out"] == [{"run": 1, "samples": 30, "history": 121}]
    assert [row["model"] for row in document["models"]] == list(errors)
    with pytest.raises(SystemExit):
        main(["compare", str(recording), *quick])
    assert "--overwrite" in capsys.readouterr().err


def test_a_forecast_has_one_beginning_and_may_have_several_runs(tmp_path, capsys):
    recording, run, out = tmp_path / "ball.csv", tmp_path / "run", tmp_path / "forecast.csv"
    main(["simulate", "ball", "--steps", "80", "--noise", "0.1", "--out", str(recording)])
    main(["fit", str(recording), *QUICK, "--ensemble", "2", "--out", str(run)])
    forecast = ["forecast", str(run), "--steps", "10", "--out", str(out), "--overwrite"]
    main([*forecast, "--start", "5,0", "--start", "3,-1"])
    table = read_recording(out)
    assert [run.position[0, 0, 0] for run in table.runs] == [5, 3]
    header = out.read_text().splitlines()[0]
    assert header == "run,t,q1,v1,touch1,q1_low,q1_high,v1_low,v1_high"
    ends = []
    for source in (["--end"], ["--recording", str(recording)]):
        main([*forecast, *source])
        ends.append(read_recording(out).runs[0])
        assert ends[-1].time[0] == pytest.approx(1.6)
    np.testing.assert_array_equal(ends[0].position, ends[1].position)
    for wrong in (["--end", "--start", "5,0"], ["--system", "a.toml"]):
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main([*forecast, *wrong])
        assert caught.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
