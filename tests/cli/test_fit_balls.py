"""Balls by command: many short runs simulated, fitted and forecast."""

import json

import pytest

from carom.cli import main
from carom.data import read_recording, read_system_file


@pytest.mark.campaign
def test_restitution_and_friction_of_balls_by_command(tmp_path, capsys):
    """From the recording and its system file with bodies, radii and planes to parameters with errors."""
    recording, run = tmp_path / "balls.csv", tmp_path / "run"
    options = ["--balls", "2", "--restitution", "0.8", "--friction", "0.2", "--noise", "0.005"]
    main(
        [
            "simulate",
            "billiards",
            "--runs",
            "150",
            "--steps",
            "6",
            *options,
            "--seed",
            "7",
            "--out",
            str(recording),
        ]
    )
    scene = read_system_file(recording.with_suffix(".toml")).scene
    assert (scene.bodies, scene.contacts) == (2, 9)
    capsys.readouterr()
    learn = ["--learn", "restitution", "friction", "--share", "all", "--potential", "none"]
    main(["fit", str(recording), *learn, "--out", str(run), "--json"])
    found = json.loads(capsys.readouterr().out)
    for name, truth in (("restitution of all contacts", 0.8), ("friction of all contacts", 0.2)):
        value, error = found["parameters"][name]
        assert abs(value - truth) < 4.5 * error < 0.1
    truth = read_recording(recording, scene=scene)
    steps = [(touch[1:] > 0).any(axis=1).sum() for run in truth.runs if (touch := run.touch) is not None]
    assert sum(found["impacts"]) == pytest.approx(sum(steps), rel=0.1)
    out = tmp_path / "forecast.csv"
    main(
        ["forecast", str(run), "--start", "0.3,0.5,0.7,0.5,0.5,0,-0.5,0", "--steps", "60", "--out", str(out)]
    )
    bounced = read_recording(out, scene=scene).runs[0]
    # They meet in the middle; 1.6 times the speed of approach 1 m/s is shared out, none is left but 0.4 each.
    assert bounced.velocity is not None
    assert bounced.velocity[-1, 0, 0] == pytest.approx(-0.4, abs=0.05)


def test_two_ways_to_say_where_surfaces_are(tmp_path, capsys):
    recording = tmp_path / "balls.csv"
    main(["simulate", "billiards", "--balls", "2", "--runs", "3", "--steps", "5", "--out", str(recording)])
    with pytest.raises(SystemExit) as stopped:
        main(["fit", str(recording), "--learn", "surfaces", "radii", "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2
    assert "choose one" in capsys.readouterr().err
