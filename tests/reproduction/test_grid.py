"""The grid over noise, bounces and touch: its cells, its scores by hand, and a run that continues."""

import json
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from carom.reproduction.recipe.grid import (
    BOUNCES,
    LEARNERS,
    NOISES,
    TRAINING_STEPS,
    Cell,
    plan_grid,
    recorded_steps,
    rises,
    run_grid,
)
from carom.reproduction.recipe.grid_figure import draw_grid
from carom.reproduction.recipe.grid_tables import cell_scores, grid_markdown, remarks_markdown, write_grid

from carom.errors import InputError
from carom.storage.result_file import write_result
from carom.systems import BouncingBall
from carom.types import Trajectory
from tests.reproduction.test_tables import cells


@pytest.mark.parametrize("bounces", BOUNCES)
def test_recordings_end_at_the_top_after_their_last_bounce(bounces):
    ball = BouncingBall(radius=0.01)
    motion = ball.exact(ball.start, np.arange(recorded_steps(bounces) + 1) * 0.02)
    assert motion.contact.sum() == bounces
    # Half a step from the top the ball has fallen by g h²/8 = 0.5 mm.
    np.testing.assert_allclose(motion.position[-1], 10, atol=6e-4)


def test_every_learner_is_in_every_cell_once():
    grid = plan_grid()
    assert len(grid) == len(set(grid)) == len(LEARNERS) * len(NOISES) * len(BOUNCES)
    assert {cell.learner for cell in plan_grid(["resnet"])} == {"resnet", "resnet-contact"}
    assert len(plan_grid(quick=True)) <= len(grid) / 5
    with pytest.raises(InputError, match="no learner nobody"):
        plan_grid(["nobody"])


@pytest.mark.parametrize("bounces", BOUNCES)
def test_training_is_equally_long_for_all_recordings(bounces):
    cell = Cell("resnet", 0.1, bounces)
    recording, _ = cell.row.record(0)
    windows = recording.samples - 10
    updates = cell.training.epochs * -(-windows // 32)
    assert abs(updates - TRAINING_STEPS) < 0.01 * TRAINING_STEPS


def test_learners_have_the_same_data_but_for_their_touch_readings():
    runs = [Cell(learner, 0.5, 2).row.record(7)[0].runs[0] for learner in LEARNERS]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.position, runs[0].position)
        np.testing.assert_array_equal(run.velocity, runs[0].velocity)


def test_a_rise_is_a_bounce():
    generator = np.random.default_rng(5)
    for _ in range(20):
        ball = BouncingBall(restitution=generator.uniform(0.6, 1), gravity=generator.uniform(5, 15))
        motion = ball.exact(ball.start, np.arange(150) * 0.02)
        np.testing.assert_array_equal(rises(motion), motion.contact[:, 0])


def line(seed: int, error: float, *, off: int = 0, **others: Any) -> dict[str, Any]:
    counts = {"mistimed": off, "missed": 0, "spurious": 0}
    return {"seed": seed, "paper_rmse": error, "held_out_median": 2 * error} | counts | others


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Errors 1, 2, 6 times the place of the learner; one more oddity in the cells of two learners."""
    grid, results = plan_grid(quick=True), []
    for cell in grid:
        place = 1 + list(LEARNERS).index(cell.learner)
        rows = [line(seed, place * error) for seed, error in enumerate((1.0, 2.0, 6.0))]
        if cell.learner.startswith("carom"):
            rows = [row | {"failed": False, "found_bounces": cell.bounces} for row in rows]
        if cell == Cell("carom-inferred", 0.2, 2, cell.training_steps, cell.held_out):
            rows[0] |= {"failed": True, "mistimed": 1}
            rows[1] |= {"found_bounces": 3, "paper_rmse": math.nan}
            rows[2] |= {"missed": 2}
        if cell.learner == "oracle" and cell.noise == 0:
            rows = [line(seed, 0.0) for seed in range(3)]
        known = {"learner": cell.learner, "noise": cell.noise, "bounces": cell.bounces}
        results.append(known | {"device": "cpu", "fingerprint": "f", "versions": {}, "rows": rows})
    written = write_grid(grid, results, tmp_path / "new" / "grid.json", command="carom reproduce --grid")
    assert json.loads((tmp_path / "new" / "grid.json").read_text()) == written
    return written


def test_scores_of_a_cell(document):
    scores = cell_scores(document)
    assert scores["oracle", 0.2, 1].error == 8
    assert scores["oracle", 0.2, 1].held_out == 16
    assert scores["oracle", 0.2, 1].wrong == 0
    odd = scores["carom-inferred", 0.2, 2]
    # 3, a forecast that left the numbers, and 18.
    assert odd.error == 18
    assert (odd.off, odd.failed, odd.miscounted, odd.astray, odd.wrong) == (2, 1, 1, 2, 3)


def test_table_and_sentences(document):
    row = cells(grid_markdown(document), "recipe carom, touch inferred")
    assert row[1:] == ["6.00", "18.0", "10 of 12", "1 of 12", "1 of 12"]
    assert cells(grid_markdown(document), "ResNet")[-2:] == ["–", "–"]
    words = remarks_markdown(document)
    assert "median errors of 2.00, 4.00 and 6.00 after 1 bounce and 2.00, 4.00 and 18.0 after 2" in words
    assert "the oracle has 8.00 and the best of the others (paper's recipe, touch observed) 10.0" in words
    assert "10 of 12, 12 of 12, 12 of 12 and 12 of 12 cases" in words
    assert "At σ = 0.2, the most noise that was tried, the same counts are 4 of 6, 6 of 6" in words


def test_the_figure_prints_every_number(document):
    figure = draw_grid(document)
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 2 * len(LEARNERS)
    texts = [[text.get_text() for text in axes.texts] for axes in maps]
    titles = [axes.get_title() for axes in maps]
    errors = texts[titles.index("recipe carom, touch inferred")]
    assert sorted(errors) == ["18", "6", "6", "6"]
    assert sum("3 (2)" in found for found in texts) == 1
    exact = maps[titles.index("oracle: true equations, g fitted")]
    assert sorted(text.get_text() for text in exact.texts) == ["0", "0", "8", "8"]
    # An error of 0 has the colour of the smallest, not that of a cell that was not run.
    np.testing.assert_allclose(exact.images[0].get_array()[0, 0], mpl.colormaps["cividis"](0.0), atol=0.01)


def test_a_run_continues_and_notices_what_has_changed(tmp_path):
    grid = [Cell("oracle", noise, 1, held_out=3) for noise in (0.0, 0.1)]
    first = run_grid(grid, [3, 4], tmp_path)
    assert [cell["noise"] for cell in first] == [0.0, 0.1]
    assert [row["seed"] for row in first[0]["rows"]] == [3, 4]
    assert first[0]["rows"][0]["paper_rmse"] < 1e-3 < first[1]["rows"][0]["paper_rmse"] < 0.1
    # What is kept is not made again …
    path = next(tmp_path.glob("oracle.noise-0.1.*"))
    write_result(path, first[1] | {"rows": "kept"})
    assert run_grid(grid, [3, 4], tmp_path)[1]["rows"] == "kept"
    # … but for other seeds it is.
    again = run_grid(grid, [3], tmp_path)[1]["rows"]
    assert again == first[1]["rows"][:1]


def test_a_trained_network_is_scored_like_the_rest(tmp_path):
    (cell,) = run_grid([Cell("resnet-contact", 0.2, 1, 20, 2)], [100, 101], tmp_path)
    assert [row["seed"] for row in cell["rows"]] == [100, 101]
    for row in cell["rows"]:
        assert row["forecast_bounces"] == 4
        assert row["missed"] + row["mistimed"] > 0  # twenty steps teach nobody to bounce
        assert row["paper_rmse"] > 1


def test_an_unknown_motion_has_no_bounces():
    nowhere = Trajectory(
        *(np.full((5, *rest), np.nan) for rest in ((), (1, 1), (1, 1))), np.zeros((5, 1), bool)
    )
    assert not rises(nowhere).any()
