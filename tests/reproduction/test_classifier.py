"""Classifier against gap: what is compared, that nothing else differs, and the table by hand."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from carom.reproduction.recipe.classifier_tables import classifier_markdown, write_classifier

from carom.evaluation import contact_score
from carom.models import ImpactNetwork, forecast_many
from carom.models.contact_signal import CandidateContact
from carom.reproduction.recipe.classifier import BALL, CASES, Case, drops, forecast_by_classifier, run_cases
from tests.reproduction.test_tables import cells

ROOT = Path(__file__).parents[2]


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
    signal = CandidateContact(BALL.geometry, hidden=(3, 3), key=jax.random.key(0))
    # relu(s − q), relu(q − s) and relu(s − q + v); min(x, y) = x − relu(x − y).
    weights = (jnp.array([[-1.0, 0], [1, 0], [-1, 1]]), jnp.eye(3), jnp.array([[1.0, -1, -1]]))
    biases = (jnp.array([surface, -surface, surface]), jnp.zeros(3), jnp.zeros(1))
    return eqx.tree_at(lambda s: (s.network.weights, s.network.biases), signal, (weights, biases))


def test_a_classifier_that_knows_the_gap_forecasts_as_the_gap_does():
    """Whoever decides, the motion is the same one if the decisions are."""
    case = Case("scheme", 1)
    scene = case.record(0).scene
    assert scene is not None
    model = ImpactNetwork(scene, case.step_size, scheme="cd_lagrange", key=jax.random.key(1))
    # A force that is nearly g everywhere, so that the balls come back.
    slope = eqx.tree_at(lambda p: (p.weight, p.bias, p.output), model.potential, (
        jnp.full_like(model.potential.weight, 9.81 / 32), jnp.full_like(model.potential.bias, 9.0),
        jnp.ones_like(model.potential.output),
    ))  # fmt: skip
    model = eqx.tree_at(lambda m: m.potential, model, slope)
    starts = jax.tree.map(lambda *x: jnp.stack(x), *drops(np.random.default_rng(5), 8, (1.0, 3.0)))
    by_gap = forecast_many(model, starts, 150)
    by_network = forecast_by_classifier(model, gap_as_a_network(BALL.radius), starts, 150)
    assert int((by_gap.contact > 0.5).sum()) > 15
    np.testing.assert_array_equal(by_network.contact > 0.5, by_gap.contact > 0.5)
    np.testing.assert_allclose(by_network.position, by_gap.position, atol=1e-5)
    np.testing.assert_allclose(by_network.velocity, by_gap.velocity, atol=1e-5)


@pytest.mark.campaign
def test_a_case_from_recording_to_scores(tmp_path):
    """Five bounces: the gap has most impacts on time, and both have the same impacts to time."""
    (result,) = run_cases([Case("exact", 5)], [100, 101], tmp_path)
    for row in result["rows"]:
        line = row["as recorded"]
        assert line["gap"]["impacts"] == line["classifier"]["impacts"] > 80
        assert line["gap"]["on_time"] >= 0.5 * line["gap"]["starts"]
        assert np.isfinite(line["classifier"]["median_error"])


def test_what_the_page_says_of_the_committed_results():
    document = json.loads((ROOT / "results" / "classifier.json").read_text())
    assert document["seeds"] == list(range(20))
    fewer = better = lines = 0
    few, many = [], []
    for case, starts in product(document["cases"], ("as recorded", "higher")):
        scores = [row[starts] for row in case["rows"]]
        wrong, error = (
            [measure([score[by] for score in scores]) for by in ("gap", "classifier")]
            for measure in (
                lambda s: sum(x[name] for x in s for name in ("mistimed", "missed", "spurious")),
                lambda s: np.median([x["median_error"] for x in s]),
            )
        )
        fewer, better, lines = fewer + (wrong[0] < wrong[1]), better + (error[0] < error[1]), lines + 1
        if case["bounces"] <= 5:
            few.append(wrong[1] / wrong[0])
        elif case["bounces"] == 20:
            many.append(wrong[1] / wrong[0])
    text = " ".join((ROOT / "docs" / "learning.md").read_text().split())
    assert f"fewer wrong impacts in {fewer} of {lines} lines" in text
    assert f"the larger one in {better} of {lines} lines" in text
    assert f"classifier has {min(few):.1f} to {max(few):.1f} times as many wrong, typically twice" in text
    assert np.median(few) == pytest.approx(2, abs=0.15)
    assert f"after twenty still {min(many):.1f} to {max(many):.1f} times" in text


def score(*counts: int, error: float | None) -> dict[str, Any]:
    names = ("impacts", "mistimed", "missed", "spurious", "on_time", "starts")
    return {**dict(zip(names, counts, strict=True)), "median_error": error}


def test_the_table_by_hand(tmp_path):
    rows = [
        {"seed": seed, "near": {"gap": score(10, seed, 0, 1, 4, 8, error=0.5 * seed), "classifier": other}}
        for seed, other in (
            (0, score(10, 1, 2, 3, 0, 8, error=float("inf"))),
            (2, score(10, 1, 2, 3, 2, 8, error=7.0)),
        )
    ]
    result = {"truth": "exact", "bounces": 3, "noise": 0.05, "device": "cpu", "rows": rows}
    write_classifier([result], tmp_path / "new" / "classifier.json", command="carom")
    document = json.loads((tmp_path / "new" / "classifier.json").read_text())
    assert document["seeds"] == [0, 2]
    assert document["cases"][0]["rows"][0]["near"]["classifier"]["median_error"] is None
    table = classifier_markdown(document)
    assert "over 2 seeds" in table
    # Medians of (0, 1) and of (∞, 7); 8 of 16 and 2 of 16 starts are on time.
    wrong = ["2 / 0 / 2", "2 / 4 / 6"]
    assert cells(table, "exact") == ["exact", "near", "3", "20", *wrong, "50 %", "12 %", "0.500", "diverged"]
