"""A failed fit names its cause by checks of the data."""

import json
from dataclasses import replace

import numpy as np

import carom
from carom.cli import main
from carom.data import Recording, Run
from carom.estimation.detection import detect_impacts
from carom.estimation.uncertainty.failure import likely_cause
from carom.mechanics import Scene, Wall

FLOOR = Scene(1, 1, (Wall(0, (1.0,)),))
TIME = np.arange(200) / 100


def recorded(*heights: np.ndarray, scene: Scene = FLOOR) -> Recording:
    generator = np.random.default_rng(0)
    runs = tuple(
        Run(TIME[: len(height)], (height + 1e-3 * generator.standard_normal(len(height)))[:, None, None])
        for height in heights
    )
    return Recording(runs, 0.01, scene)


def bouncing(period: float) -> np.ndarray:
    """Parabolas of height 1 on a floor at 0."""
    phase = (TIME % period) / period
    return 4 * phase * (1 - phase)


def cause(recording: Recording, *, squares=(1.0,), left_out=0.0) -> str:
    impacts = detect_impacts(recording, surfaces="known").impacts
    return likely_cause(recording, impacts, squares, left_out)


def test_a_surface_with_data_behind_it():
    scene = replace(FLOOR, candidates=(Wall(0, (1.0,), offset=0.5),))
    assert "behind the surface of body 1 at the wall" in cause(recorded(bouncing(0.5), scene=scene))


def test_no_impact_at_all():
    assert "No impact was found" in cause(recorded(2 - TIME**2 / 4))


def test_a_missing_wall():
    sideways = np.abs((0.3 + TIME) % 2 - 1)  # between 0 and 1, where only the floor is stated
    assert "a wall or a pair may be missing" in cause(recorded(sideways), left_out=0.5)


def test_single_runs_that_are_odd():
    recording = recorded(*[bouncing(0.5)] * 5)
    assert "1 run only (3)" in cause(recording, squares=(1.0, 1.1, 40.0, 0.9, 1.0))


def test_otherwise_the_motion_between_impacts():
    assert "between impacts" in cause(recorded(bouncing(0.5)))


def test_a_failed_fit_is_written_and_says_why(tmp_path, capsys):
    ball = carom.simulate(carom.systems.BouncingBall(), steps=120, step_size=0.02, noise=0.01, seed=0)
    wrong = replace(ball, scene=replace(ball.scene, candidates=(Wall(0, (1.0,), offset=4.0),)))
    carom.write_recording(wrong, tmp_path / "ball.csv")
    carom.write_system_file(carom.data.SystemFile(wrong.scene), tmp_path / "ball.toml")
    words = ["fit", str(tmp_path / "ball.csv"), "--learn", "restitution", "--potential", "none", "--json"]
    status = None
    try:
        main([*words, "--stepper", "constraint_exact", "--horizons", "--out", str(tmp_path / "fit")])
    except SystemExit as error:
        status = error.code
    assert status == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"]
    assert "behind the surface" in found["diagnostics"][0]
    main(["report", str(tmp_path / "fit")])
    assert "The fit failed." in (tmp_path / "fit" / "report.html").read_text()
