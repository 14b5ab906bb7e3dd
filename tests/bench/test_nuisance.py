"""The nuisance suite: every task follows from its seed, the truth is the truth, and scores survive a stop."""

import json

import numpy as np
import pytest

from benchmarks.nuisance import score as scoring
from benchmarks.nuisance.scenes import SETUPS, make
from tests.campaign import shortened


@pytest.mark.parametrize("scene", shortened(SETUPS, [name for name in SETUPS if name != "drop-30fps"]))
def test_tasks_follow_from_their_seed_and_hold_their_truth(scene):
    task, again, other = make(scene, 1), make(scene, 1), make(scene, 2)
    for first, second in zip(task.train.runs, again.train.runs, strict=True):
        np.testing.assert_array_equal(first.position, second.position)
    assert task.truth.parameters != other.truth.parameters
    camera = SETUPS[scene].camera
    spread = max(camera.noise, camera.pixel)
    for run, ideal in zip(task.train.runs, task.truth.training.runs, strict=True):
        off = np.median(np.abs(run.position - ideal.position))
        assert off < 2 * spread + 0.002
    first = [min(hit.time for hit in hits) for hits in task.truth.impacts]
    assert min(first) > 0
    for part, true, start in zip(task.held_out, task.truth.held_out, task.truth.starts, strict=True):
        assert len(part.history) >= 4
        assert true.shape == part.future.position.shape
        seen = task.truth.view(np.asarray(start.position, float)[None])[0]
        np.testing.assert_allclose(part.history.position[0], seen, atol=8 * spread + 0.01)


def test_scores_are_kept_and_crashes_counted(tmp_path, monkeypatch, capsys):
    calls = []

    def crash(task):
        calls.append(task.scene)
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setitem(scoring.MODELS, "carom", crash)
    for _ in range(2):
        rows = scoring.run(["drop-30fps"], [0], ["oracle", "carom"], tmp_path)
    assert calls == ["drop-30fps"]
    assert "crashed, LinAlgError: Singular matrix" in capsys.readouterr().out
    found = {(row["model"], row["metric"]): row["value"] for row in rows}
    assert found["carom", "crashed"] == 1
    # The oracle knows everything but the scatter of restitution and the noise of the start.
    assert found["oracle", "held_out_error"] < 0.1
    assert len(json.loads((tmp_path / "drop-30fps-0-oracle.json").read_text())) >= 3
