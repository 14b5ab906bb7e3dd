"""Measured recordings: missing and wrong files, a pendulum's gaps; and the files themselves."""

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from carom.cli import main
from carom.data import Run
from carom.errors import InputError
from carom.models import Mechanism
from carom.reproduction.measured.collisions import measure_collision
from carom.reproduction.measured.configuration import (
    CHECKS,
    DATA_VARIABLE,
    DEFAULT_DATA,
    MASKED,
    PENDULUM,
    RECORDINGS,
    RIDERS,
    SERIES,
    STRETCH,
)
from carom.reproduction.measured.recordings import (
    data_hash,
    measured_directory,
    pendulum_recording,
    read_air_track,
    read_pendulum,
)
from carom.reproduction.measured.run import (
    CONSTANT,
    LAW,
    crop_at_random,
    energy,
    energy_error,
    left_out,
    roll_out,
    run_pendulum,
    run_series,
    split,
)
from tests.campaign import shortened

DATA = Path(os.environ.get(DATA_VARIABLE) or DEFAULT_DATA)
measured = pytest.mark.skipif(
    not (DATA / RECORDINGS).is_file(),
    reason=f"measured recordings are not here: set {DATA_VARIABLE} to their directory",
)


def swing(time, angle, velocity) -> Run:
    angle, velocity = (np.asarray(part, float)[:, None, None] for part in (angle, velocity))
    return Run(np.asarray(time, float), angle, velocity)


def value(rows, metric: str, **keys) -> float:
    (found,) = (row["value"] for row in rows if row["metric"] == metric and keys.items() <= row.items())
    return found


def folder_of(tmp_path: Path, *, runs: str = "0", bumper: str = "rubber") -> Path:
    for name in (RECORDINGS, PENDULUM):
        (tmp_path / name).parent.mkdir(exist_ok=True)
    rows = [f"0,{0.002 * n:.3f},{-0.2 + 0.001 * n:.4f},{0.2 - 0.001 * n:.4f}" for n in range(5)]
    (tmp_path / RECORDINGS).write_text("\n".join(["run,t,x_a,x_b", *rows]) + "\n")
    header = "run,source,bumper,mass_a_kg,mass_b_kg,t_impact_s,closing_speed_m_s,restitution_line_fit"
    (tmp_path / CHECKS).write_text(f"{header}\n{runs},there,{bumper},0.2,0.4,1.0,0.5,0.7\n")
    (tmp_path / PENDULUM).write_text("trial,t,o,v\n0,5,1.0,0.0\n0,5.5,0.9,-0.2\n0,6,0.8,-0.2\n")
    return tmp_path


def test_a_folder_of_measured_recordings(tmp_path):
    recording, (check,) = read_air_track(folder_of(tmp_path))
    # The rider in front, whose coordinate is the greater one, comes first.
    np.testing.assert_allclose(recording.runs[0].position[0, :, 0], [0.2, -0.2])
    assert recording.runs[0].velocity is None
    assert check.mass_ratio == 0.5
    assert len(read_pendulum(tmp_path)) == 3
    before = data_hash(tmp_path)
    (tmp_path / PENDULUM).write_text("trial,t,o,v\n0,5,1.0,0.0\n")
    assert data_hash(tmp_path) != before


def test_files_that_are_missing_or_do_not_belong_together(tmp_path, monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=f"--data or {DATA_VARIABLE}"):
        measured_directory(None)
    with pytest.raises(InputError, match="has no file air_track"):
        measured_directory(tmp_path)
    folder = folder_of(tmp_path, runs="1")
    monkeypatch.setenv(DATA_VARIABLE, str(folder))
    assert measured_directory(None) == folder
    with pytest.raises(InputError, match="its runs are not those"):
        read_air_track(folder)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["measured", "--data", "nowhere"], "has no file"),
        (["measured", "ball", "--data", "nowhere"], "always run whole"),
        (["recipe", "ball", "--data", "nowhere"], "--data is not an option of the subject recipe"),
        (["ball", "--data", "nowhere"], "--data is not an option of the subject paper"),
    ],
)
def test_commands_that_cannot_be_meant(options, sentence, tmp_path, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *options, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_gaps_of_the_pendulum_are_missing_samples():
    time = np.array([5.0, 5.1666667, 5.3333333, 5.8333333, 6.0])
    recording = pendulum_recording(swing(time, np.arange(5.0), -np.arange(5.0)))
    (run,) = recording.runs
    np.testing.assert_allclose(recording.step_size, 1 / 6, rtol=1e-6)
    np.testing.assert_array_equal(run.position[:, 0, 0], [0, 1, 2, np.nan, np.nan, 3, 4])
    np.testing.assert_array_equal(run.velocity[:, 0, 0], [0, -1, -2, np.nan, np.nan, -3, -4])
    with pytest.raises(InputError, match="whole steps"):
        pendulum_recording(swing(time + np.array([0, 0, 0.08, 0, 0]), np.arange(5.0), np.arange(5.0)))


def test_energy_error_by_hand():
    still = swing(np.arange(2.0), np.zeros(2), np.zeros(2))
    moving = swing(np.arange(2.0), np.array([0.0, np.pi]), np.array([1.0, 0.0]))
    np.testing.assert_allclose(energy(moving), [1.0, 4.8])
    np.testing.assert_allclose(energy_error(still, moving), (1.0 + 4.8**2) / 2)


def test_a_rollout_moves_on_through_gaps():
    """Free flight at a known rate: positions at the stamped times, whatever is missing between them."""
    recording = pendulum_recording(swing(np.arange(4) / 6, np.zeros(4), np.zeros(4)))
    model = Mechanism.for_recording(recording, potential="none")
    time = 81.0 + np.array([0.0, 1.0, 2.0, 5.0, 6.0]) / 6
    motion = roll_out(model, swing(time, np.full(5, 0.25), np.full(5, 0.5)))
    np.testing.assert_allclose(motion.position[:, 0, 0], 0.25 + 0.5 * (time - 81.0), rtol=1e-5)
    np.testing.assert_allclose(motion.velocity, 0.5)


@pytest.mark.campaign
def test_a_damped_pendulum_of_the_measured_kind():
    """By an independent integrator: damping is chosen and found, and the energy forecast to its noise."""
    time = np.delete(np.arange(300) / 6, [40, 41, 90, 250])
    motion = solve_ivp(
        lambda _, x: [x[1], -1.2 * np.sin(x[0]) - 0.02 * x[1]], (0, 50), [1.3, 0.0], t_eval=time, rtol=1e-9
    )
    generator = np.random.default_rng(0)
    angle, velocity = motion.y + 0.01 * generator.standard_normal(motion.y.shape)
    whole = swing(time, angle, velocity)
    rows, arrays = run_pendulum(whole, [0])
    assert abs(value(rows, "damping") - 0.02) < 4 * value(rows, "damping_error")
    assert value(rows, "energy_error", model="damping") < 2e-3  # without damping it would be 7e-3
    assert arrays["rollout"].shape == (4, 60)
    training, test = split(whole)
    assert (len(training), len(test)) == (236, 60)
    np.testing.assert_array_equal(np.concatenate([training.time, test.time]), time)


@measured
@pytest.mark.parametrize("every", shortened([3, 1], [1]))
def test_every_collision_is_found_wherever_the_run_is_cropped(every):
    """Of every third run; the campaign takes all."""
    recording, checks = read_air_track(DATA)
    generator = np.random.default_rng(100)
    assert {check.bumper for check in checks} == set(SERIES)
    away = []
    for run, check in zip(recording.runs[::every], checks[::every], strict=True):
        collision = measure_collision(crop_at_random(run, generator), RIDERS, seconds=STRETCH, masked=MASKED)
        assert collision is not None
        assert abs(collision.instant - check.instant) < 0.01
        np.testing.assert_allclose(collision.closing_speed, check.closing_speed, rtol=0.04)
        away.append(collision.restitution - check.restitution)
    assert np.sqrt(np.mean(np.square(away))) < 0.01


@measured
def test_the_pendulum_has_gaps_before_the_last_fifth_only():
    whole = read_pendulum(DATA)
    training, test = split(whole)
    assert (len(training), len(test)) == (444, 112)
    run = pendulum_recording(whole).runs[0]
    assert np.isnan(run.position).sum() == len(run) - len(whole) == 12
    assert np.ptp(np.diff(test.time)) < 1e-5


@measured
@pytest.mark.campaign
def test_the_measured_pendulum_beats_the_hamiltonian_network():
    rows, _ = run_pendulum(read_pendulum(DATA), [100])
    assert value(rows, "energy_error") < 0.0145


@measured
@pytest.mark.campaign
def test_the_law_of_rubber_predicts_better_than_any_constant():
    """On runs that are not those of the report: its left-out runs are removed first."""
    recording, checks = read_air_track(DATA)
    chosen = [i for i, check in enumerate(checks) if check.bumper == "rubber"]
    chosen = [i for i, out in zip(chosen, left_out(len(chosen)), strict=True) if not out]
    rows, _ = run_series(
        "rubber",
        [recording.runs[i] for i in chosen],
        [checks[i] for i in chosen],
        100,
        illustrated=False,
    )
    assert value(rows, "speed_law") == 1
    law, constant = (value(rows, "velocity_rmse", model=model) for model in (LAW, CONSTANT))
    assert law < constant
