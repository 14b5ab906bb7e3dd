"""What notebooks show of recordings, models and fits: well-formed, complete, no file as code."""

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import jax
import pytest

import carom
from carom.notebook import table


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


def test_a_fit_of_latent_states(recording):
    # By the programs of the small fits in `test_stages`.
    settings = carom.Settings(learn=("restitution", "surfaces"), hidden=8, starts=1, horizons=(100,))
    fit = carom.estimation.fit_recording(recording, settings)
    text = " ".join(parsed(fit._repr_html_()).itertext())
    assert "restitution" in text
    assert "failed" not in text
    assert "failed" in replace(fit, log_likelihood=float("nan"))._repr_html_()
