"""The grid over noise, bounces and touch: its trials, its scores by hand, and a run that continues."""

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest

from carom.errors import InputError
from carom.evaluation.results import tidy_rows
from carom.execution.executor import run_tasks, write_result
from carom.reproduction.recipe.configuration import (
    BOUNCES,
    LEARNERS,
    NOISES,
    TRAINING_STEPS,
    Trial,
    plan_grid,
    recorded_steps,
)
from carom.reproduction.recipe.run import grid_tasks, rises
from carom.reproduction.recipe.tables import draw_grid, grid_fits, grid_table
from carom.systems import BouncingBall
from carom.types import Trajectory
from tests.reproduction.cells import as_read, cells


@pytest.mark.parametrize("bounces", BOUNCES)
def test_recordings_end_at_the_top_after_their_last_bounce(bounces):
    ball = BouncingBall(radius=0.01)
    motion = ball.exact(ball.start, np.arange(recorded_steps(bounces) + 1) * 0.02)
    assert motion.contact.sum() == bounces
    # Half a step from the top the ball has fallen by g h²/8 = 0.5 mm.
    np.testing.assert_allclose(motion.position[-1], 10, atol=6e-4)


def test_every_learner_has_every_trial_once():
    grid = plan_grid()
    assert len(grid) == len(set(grid)) == len(LEARNERS) * len(NOISES) * len(BOUNCES)
    assert {trial.learner for trial in plan_grid(["resnet"])} == {"resnet", "resnet-contact"}
    assert len(plan_grid(quick=True)) <= len(grid) / 5
    with pytest.raises(InputError, match="no learner nobody"):
        plan_grid(["nobody"])


@pytest.mark.parametrize("bounces", BOUNCES)
def test_training_is_equally_long_for_all_recordings(bounces):
    trial = Trial("resnet", 0.1, bounces)
    recording = trial.experiment.record(0)
    windows = recording.samples - 10
    updates = trial.training.epochs * -(-windows // 32)
    assert abs(updates - TRAINING_STEPS) < 0.01 * TRAINING_STEPS


def test_learners_have_the_same_data_but_for_their_touch_readings():
    runs = [Trial(learner, 0.5, 2).experiment.record(7).runs[0] for learner in LEARNERS]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.position, runs[0].position)
        np.testing.assert_array_equal(run.velocity, runs[0].velocity)


def test_a_rise_is_a_bounce():
    generator = np.random.default_rng(5)
    for _ in range(20):
        ball = BouncingBall(restitution=generator.uniform(0.6, 1), gravity=generator.uniform(5, 15))
        motion = ball.exact(ball.start, np.arange(150) * 0.02)
        np.testing.assert_array_equal(rises(motion), motion.contact[:, 0])


@pytest.fixture
def rows(tmp_path: Path) -> pl.DataFrame:
    """Errors 1, 2, 6 times the number of the learner; other faults in the trials of two learners."""
    found = tidy_rows({"experiment": "grid", "model": "scheme"}, {"paper_rmse": 3.5})
    for trial in plan_grid(quick=True):
        number = 1 + list(LEARNERS).index(trial.learner)
        for seed, error in enumerate((1.0, 2.0, 6.0)):
            metrics: dict[str, Any] = {"paper_rmse": number * error, "held_out_median": 2 * number * error}
            metrics |= {"mistimed": 0, "missed": 0, "spurious": 0}
            if trial.learner.startswith("carom"):
                metrics |= {"failed": False, "found_impacts": trial.bounces}
            if (trial.learner, trial.noise, trial.bounces) == ("carom-inferred", 0.2, 2):
                metrics |= ({"failed": True, "mistimed": 1}, {"found_impacts": 3}, {"missed": 2})[seed]
                metrics["paper_rmse"] = math.nan if seed == 1 else metrics["paper_rmse"]
            if trial.learner == "oracle" and trial.noise == 0:
                metrics["paper_rmse"] = 0.0
            keys = {"experiment": "grid", "model": trial.learner, "noise": trial.noise, "seed": seed}
            found += tidy_rows(keys | {"bounces": trial.bounces}, metrics)
    return as_read(found, tmp_path)


def test_faults_of_a_trial(rows):
    odd = grid_fits(rows).filter(model="carom-inferred", noise=0.2, bounces=2).sort("seed")
    assert odd["off"].to_list() == [True, False, True]
    assert odd["failed"].to_list() == [1, 0, 0]
    assert odd["miscounted"].to_list() == [False, True, False]
    assert math.isinf(odd["paper_rmse"][1])
    assert grid_fits(rows).filter(model="oracle")["miscounted"].is_null().all()


def test_table(rows):
    table = grid_table(rows)
    # 3, a forecast that diverged, and 18 have the median 18.
    row = cells(table, "recipe carom, touch inferred")
    assert row[1:] == ["6.00", "18.0", "10 of 12", "4 of 6", "1 of 12", "1 of 12"]
    assert cells(table, "ResNet")[-2:] == ["–", "–"]
    assert [row[0] for row in table.rows] == [learner.title for learner in LEARNERS.values()]
    assert "with true force and floor: 3.50" in table.caption


def test_the_figure_prints_every_number(rows):
    figure = draw_grid(rows)
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == len(LEARNERS)
    texts = [[text.get_text() for text in axes.texts] for axes in maps]
    titles = [axes.get_title() for axes in maps]
    errors = texts[titles.index("recipe carom, touch inferred")]
    assert sorted(errors) == ["18\n(2)", "6\n(0)", "6\n(0)", "6\n(0)"]
    exact = maps[titles.index("oracle: true equations, g fitted")]
    assert sorted(text.get_text() for text in exact.texts) == ["0\n(0)", "0\n(0)", "8\n(0)", "8\n(0)"]
    # An error of 0 has the colour of the smallest, not that of a trial that was not run.
    (image,) = exact.images
    np.testing.assert_allclose(image.to_rgba(image.get_array())[0, 0], mpl.colormaps["cividis"](0.0))


def values(result: dict[str, Any], metric: str) -> list[float]:
    return [row["value"] for row in result["rows"] if row["metric"] == metric]


def test_a_run_continues_and_notices_changes(tmp_path):
    trials = [Trial("oracle", noise, 1, held_out=3) for noise in (0.0, 0.1)]
    scheme, exact, noisy = run_tasks(grid_tasks(trials, [3, 4], tmp_path))
    assert values(scheme, "paper_rmse")[0] == pytest.approx(3.469, abs=1e-3)
    assert [row["seed"] for row in exact["rows"] if row["metric"] == "paper_rmse"] == [3, 4]
    assert values(exact, "paper_rmse")[0] < 1e-3 < values(noisy, "paper_rmse")[0] < 0.1
    # What is stored is not computed again …
    path = next(tmp_path.glob("oracle.noise-0.1.*"))
    write_result(path, noisy | {"rows": "stored"})
    assert run_tasks(grid_tasks(trials, [3, 4], tmp_path))[2]["rows"] == "stored"
    # … but for other seeds it is.
    again = run_tasks(grid_tasks(trials, [3], tmp_path))[2]["rows"]
    assert again == [row for row in noisy["rows"] if row["seed"] == 3]


def test_a_trained_network_is_scored_like_the_rest(tmp_path):
    *_, result = run_tasks(grid_tasks([Trial("resnet-contact", 0.2, 1, 20, 2)], [100, 101], tmp_path))
    assert values(result, "impacts") == [4, 4]
    for missed, mistimed in zip(values(result, "missed"), values(result, "mistimed"), strict=True):
        assert missed + mistimed > 0  # twenty steps teach no network to bounce
    assert min(values(result, "paper_rmse")) > 1


def test_an_unknown_motion_has_no_bounces():
    nowhere = Trajectory(
        *(np.full((5, *rest), np.nan) for rest in ((), (1, 1), (1, 1))), np.zeros((5, 1), bool)
    )
    assert not rises(nowhere).any()
