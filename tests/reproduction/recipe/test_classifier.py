"""Classifier against gap: what is compared, and that nothing else differs."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from carom.evaluation import contact_score
from carom.evaluation.results import read_results, wide
from carom.execution.tasks import run_tasks
from carom.forces import UniformGravity
from carom.integrators import CDLagrange
from carom.models import Mechanism, forecast_many
from carom.models.contact_signal import CandidateContact
from carom.reproduction.recipe.classifier import classifier_tasks, forecast_by_classifier
from carom.reproduction.recipe.configuration import CASES, CLASSIFIER_BALL, Case, drops

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("truth", ["exact", "scheme"])
def test_every_drop_bounces_once(truth):
    for seed in range(5):
        recording = Case(truth, 20).record(seed)
        assert len(recording.runs) == 20
        for run in recording.runs:
            assert run.touch is not None
            assert contact_score(run.touch[:, 0], run.touch[:, 0]).true_events == 1


def test_more_bounces_are_those_of_fewer_and_others():
    fewer, more = (Case("exact", bounces).record(3) for bounces in (2, 5))
    for one, other in zip(fewer.runs, more.runs[:2], strict=True):
        np.testing.assert_array_equal(one.position, other.position)
    assert {(case.truth, case.bounces) for case in CASES} == {
        (truth, bounces) for truth in ("exact", "scheme") for bounces in (1, 2, 3, 5, 10, 20)
    }


def gap_as_a_network(surface: float) -> CandidateContact:
    """min(surface − q, −v), positive where the gap is negative and closing, in the layers of the paper."""
    signal = CandidateContact(CLASSIFIER_BALL.geometry, hidden=(3, 3), key=jax.random.key(0))
    # relu(s − q), relu(q − s) and relu(s − q + v); min(x, y) = x − relu(x − y).
    weights = (jnp.array([[-1.0, 0], [1, 0], [-1, 1]]), jnp.eye(3), jnp.array([[1.0, -1, -1]]))
    biases = (jnp.array([surface, -surface, surface]), jnp.zeros(3), jnp.zeros(1))
    return eqx.tree_at(lambda s: (s.network.weights, s.network.biases), signal, (weights, biases))


def test_a_classifier_that_knows_the_gap_forecasts_as_the_gap_does():
    """Whoever decides, the motion is the same one if the decisions are."""
    case = Case("scheme", 1)
    scene = case.record(0).scene
    assert scene is not None
    gravity, stepper = UniformGravity(jnp.array([-9.81])), CDLagrange.for_scene(scene)
    model = Mechanism.of(scene, case.step_size, forces=[gravity], stepper=stepper)
    starts = jax.tree.map(lambda *x: jnp.stack(x), *drops(np.random.default_rng(5), 8, (1.0, 3.0)))
    by_gap = forecast_many(model, starts, 150)
    by_network = forecast_by_classifier(model, gap_as_a_network(CLASSIFIER_BALL.radius), starts, 150)
    assert int((by_gap.contact > 0.5).sum()) > 15
    np.testing.assert_array_equal(by_network.contact > 0.5, by_gap.contact > 0.5)
    np.testing.assert_allclose(by_network.position, by_gap.position, atol=1e-5)
    np.testing.assert_allclose(by_network.velocity, by_gap.velocity, atol=1e-5)


@pytest.mark.campaign
def test_a_case_from_recording_to_scores(tmp_path):
    """Five bounces: the gap has most impacts on time, and both have the same impacts to time."""
    (result,) = run_tasks(classifier_tasks([100, 101], tmp_path, cases=[Case("exact", 5)]))
    fits = wide(pl.DataFrame(result["rows"]).filter(heights="as recorded"))
    gap, classifier = (fits.filter(model=model) for model in ("gap", "classifier"))
    assert gap["impacts"].to_list() == classifier["impacts"].to_list()
    assert min(gap["impacts"]) > 80
    assert (gap["on_time"] >= 0.5 * gap["forecasts"]).all()
    assert classifier["held_out_median"].is_finite().all()


def test_what_the_page_says_of_the_committed_results():
    fits = wide(read_results(ROOT / "results" / "classifier.json").rows)
    assert sorted(fits["seed"].unique()) == list(range(20))
    wrong = pl.sum_horizontal("mistimed", "missed", "spurious").sum()
    by = ("truth", "heights", "bounces")
    lines = fits.group_by(*by, "model").agg(wrong=wrong, error=pl.col("held_out_median").median())
    lines = lines.filter(model="gap").join(lines.filter(model="classifier"), on=by, suffix="_classifier")
    fewer = (lines["wrong"] < lines["wrong_classifier"]).sum()
    better = (lines["error"] < lines["error_classifier"]).sum()
    ratio = lines.with_columns(ratio=pl.col("wrong_classifier") / pl.col("wrong"))
    few = ratio.filter(pl.col("bounces") <= 5)["ratio"].to_list()
    many = ratio.filter(pl.col("bounces") == 20)["ratio"].to_list()
    text = " ".join((ROOT / "docs" / "learning.md").read_text().split())
    assert f"fewer wrong impacts in {fewer} of {lines.height} lines" in text
    assert f"the larger one in {better} of {lines.height} lines" in text
    assert f"classifier has {min(few):.1f} to {max(few):.1f} times as many wrong, typically twice" in text
    assert np.median(few) == pytest.approx(2, abs=0.15)
    assert f"after twenty still {min(many):.1f} to {max(many):.1f} times" in text
