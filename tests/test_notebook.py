"""What notebooks show of recordings, models and fits: well-formed, complete, bounded, no file as code."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import jax
import numpy as np
import pytest

import carom
from carom.notebook import MOST_POINTS, curves, table


def paths(page: ElementTree.Element) -> list[str]:
    """The outlines of the curves."""
    groups = [group for group in page.iter() if group.get("id", "").startswith("curve")]
    return [path.get("d", "") for group in groups for path in group if path.tag.endswith("path")]


def parsed(html: str) -> ElementTree.Element:
    """As XML, which refuses what is not closed or not escaped."""
    return ElementTree.fromstring(f"<div>{html}</div>")


@pytest.fixture(scope="module")
def recording():
    return carom.simulate(carom.systems.BouncingBall(), steps=250, step_size=0.02, noise=0.05, seed=1)


def test_a_recording(recording):
    page = parsed(recording._repr_html_())
    text = " ".join(page.itertext())
    assert "251 samples" in text
    assert "velocities" in text
    assert len(paths(page)) == 1


def test_missing_samples_leave_gaps_and_many_samples_few_points(recording):
    run = recording.runs[0]
    position = run.position.copy()
    position[50:60] = np.nan
    page = parsed(replace(recording, runs=(replace(run, position=position),))._repr_html_())
    (path,) = paths(page)
    assert path.count("M") == 2
    time = np.linspace(0, 1, 100_000)
    (path,) = paths(parsed(curves(time, np.sin(time)[:, None], x="x", y="y")))
    assert path.count("L") <= 2 * MOST_POINTS


def test_curves_of_nothing_and_of_a_constant():
    nothing = np.full((5, 1), np.nan)
    assert curves(np.arange(5.0), nothing, x="x", y="y") == ""
    (path,) = paths(parsed(curves(np.arange(5.0), np.ones((5, 1)), x="x", y="y")))
    assert "nan" not in path


def test_names_are_not_markup():
    page = parsed(table("<b>", [("<script>alert(1)</script>", "a & b")]))
    assert page.find(".//script") is None
    assert "a & b" in "".join(page.itertext())


def test_models_and_a_trained_fit(recording):
    model = carom.models.CDLagrangeNetwork.for_recording(recording, hidden=8, key=jax.random.key(0))
    assert "CDLagrangeNetwork" in "".join(parsed(model._repr_html_()).itertext())
    fit = carom.fit(model, recording, carom.TrainingSettings(epochs=3))
    page = parsed(fit._repr_html_())
    assert "epochs" in "".join(page.itertext())
    assert len(paths(page)) == 3


def test_a_fit_of_latent_states(recording):
    fit = carom.estimation.fit_recording(recording, carom.Settings(learn=("restitution", "surfaces")))
    text = " ".join(parsed(fit._repr_html_()).itertext())
    assert "restitution" in text
    assert "failed" not in text
    assert "failed" in replace(fit, log_likelihood=float("nan"))._repr_html_()
