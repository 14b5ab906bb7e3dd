"""Studies: the same trials in whatever order their fits end, and after every stop."""

from math import log10

import pytest

from tests.sweeps.conftest import SWEEP, Here, run, tables

pytest.importorskip("optuna", reason="optuna is not installed (extra cluster)")

STUDY = (
    SWEEP.replace("hidden = 4", "")
    + """
[study]
trials = 20
batch = 3
seed = 4

[study.ranges]
learning_rate = {low = 1e-4, high = 1, log = true}
hidden = {low = 4, high = 8}
"""
)


@pytest.fixture
def study(file, monkeypatch):
    """A study whose fits take no time: their errors follow from their options."""
    file.write_text(STUDY)
    monkeypatch.setattr("carom.sweeps.run.make_row", pretend)
    return file


def pretend(fit, out, progress) -> dict:
    """A row without a fit: best at a learning rate of 0.01; above 0.5 the fit fails."""
    settings = fit.options.settings
    rate = settings.learning_rate
    error = None if rate > 0.5 else (log10(rate) + 2) ** 2 + 0.1 * settings.hidden + 0.01 * fit.options.seed
    row = {"run": fit.name, "recording": fit.recording.name, "numbers": {}}
    return row | {"error": error, "reason": "" if error else "It failed."}


def test_trials_lie_in_their_ranges_and_are_scored_by_the_mean(study, tmp_path):
    result = run(study, tmp_path / "out")
    assert [trial.number for trial in result.trials] == list(range(20))
    assert [line.trial for line in result.lines] == [number for number in range(20) for _ in range(4)]
    for trial in result.trials:
        assert 1e-4 <= trial.varied["learning_rate"] <= 1
        assert trial.varied["hidden"] in range(4, 9)
        errors = [line.row["error"] for line in result.lines if line.trial == trial.number]
        assert trial.value is None if None in errors else trial.value == pytest.approx(sum(errors) / 4)
    scored = [trial for trial in result.trials if trial.value is not None]
    assert result.best_trial == min(scored, key=lambda trial: trial.value)
    late = sorted(trial.value for trial in scored[-8:])
    assert late[4] < sorted(trial.value for trial in scored[:8])[4]  # the sampler learns


def test_a_study_is_the_same_in_any_order_and_after_every_stop(study, tmp_path):
    whole = run(study, tmp_path / "whole")
    first = Here(backwards=True, stop_after=33)
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "out", first)
    rest = Here(backwards=True)
    run(study, tmp_path / "out", rest)
    assert sorted(first.made + rest.made) == sorted({line.row["run"] for line in whole.lines})
    assert tables(tmp_path / "out") == tables(tmp_path / "whole")

    study.write_text(STUDY.replace("trials = 20", "trials = 25"))
    more = Here()
    assert run(study, tmp_path / "out", more).trials[:18] == whole.trials[:18]
    assert len(more.made) <= 4 * 7  # the last two trials had no third beside them before


def test_another_seed_is_another_study(study, tmp_path):
    one = run(study, tmp_path / "out")
    study.write_text(STUDY.replace("seed = 4", 'seed = 5\nsampler = "random"'))
    assert run(study, tmp_path / "out").trials != one.trials


def test_trials_that_fail_do_not_end_a_study(study, tmp_path):
    study.write_text(STUDY.replace("{low = 1e-4, high = 1, log = true}", "[0.01, 0.9]"))
    result = run(study, tmp_path / "out")
    failed = [trial.varied["learning_rate"] == 0.9 for trial in result.trials]
    assert [trial.value is None for trial in result.trials] == failed
    assert any(failed)
    assert result.best_trial is not None
