"""The page is one file, says what it should, and shows nothing of a file as code."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure

from carom.contact_laws import SpeedDependentRestitution
from carom.errors import InputError
from carom.forces import LinearDamping
from carom.models import Mechanism
from carom.report import write_report
from carom.report.charts import inline_svg
from carom.report.findings import read_findings
from carom.report.fit_page import parameter_table

VOID = {"meta", "link", "input", "br", "img"}


class Reader(HTMLParser):
    """Elements and text of a page; every element that opens must close."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module", params=["fitted_page", "trained_page"])
def page(request):
    path = request.getfixturevalue(request.param)
    return request.param, path, Reader(path.read_text(encoding="utf-8"))


def test_it_needs_nothing_but_itself(page):
    _, path, reader = page
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 8e6
    named = [
        value
        for _, attributes in reader.elements
        for key, value in attributes.items()
        if key in ("src", "href", "xlink:href", "data", "action", "poster")
    ]
    assert named
    assert all(value.startswith(("#", "data:")) for value in named)
    assert not re.search(r"@import|url\((?!#)", text)


def test_ids_are_unique_and_links_lead_somewhere(page):
    _, _, reader = page
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a["href"] for a in reader.all("a")] + [u["xlink:href"] for u in reader.all("use")]
    assert {target[1:] for target in targets} <= set(ids)


def test_every_kind_of_figure_is_there_and_has_words(page):
    kind, _, reader = page
    charts = {a["data-chart"].partition("-")[0]: a for a in reader.all("svg") if "data-chart" in a}
    assert charts.keys() == {"data", "phase", "forecast", "energy", "force", "gap", "history"}
    assert all(len(attributes["aria-label"]) > 20 for attributes in reader.all("svg"))
    assert {"play", "instant", "clock"} <= {a.get("id") for _, a in reader.elements}
    words = " ".join(reader.text)
    if kind == "fitted_page":
        numbers = re.search(r"Restitution of body 1 at the wall\s+([\d.]+) ± ([\d.]+\d)", words).groups()
        value, error = map(float, numbers)
        assert abs(value - 0.8) < max(4 * error, 0.02)
        assert "90 % credible bands from 64 posterior samples" in " ".join(words.split())
    else:
        assert "estimates no errors of parameters" in words


def test_names_from_a_file_stay_text(page):
    kind, _, reader = page
    if kind == "trained_page":
        pytest.skip("its names are plain")
    assert len(reader.all("script")) == 2
    assert "<b>ball.csv" in " ".join(reader.text)
    assert "alert(1)" in " ".join(reader.text)
    assert not reader.all("b")


def test_the_scene_moves_as_the_recording_does(page):
    """Heights on the page are an affine map of what the model and the recording say."""
    kind, path, _ = page
    if kind == "trained_page":
        pytest.skip("one dimension is enough")
    text = path.read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="scene-data">(.*?)</script>', text, re.DOTALL)[1])
    recorded = np.array([frame[0][1] for frame in data["recorded"]])
    lines = (path.parent.parent / "<b>ball.csv").read_text().splitlines()[1:]
    heights = np.array([float(line.split(",")[1]) for line in lines])
    slope, offset = np.polyfit(heights, recorded, 1)
    assert slope < 0  # down the page is down
    np.testing.assert_allclose(recorded, slope * heights + offset, atol=0.02)
    model = np.array([frame[0][1] for frame in data["model"]])
    assert np.abs(model - recorded).max() < 40 * 0.005 * -slope
    assert data["held_out_from"] == len(heights) - round(0.2 * len(heights))


def test_touch_is_reported_body_by_body(trained_page):
    (run,) = read_findings(trained_page.parent / "run").runs
    text = " ".join(trained_page.read_text(encoding="utf-8").split())
    for body, name in enumerate(("q1", "q2")):
        count = int(run.touch[:, body].sum())
        caption = "1 touch" if count == 1 else f"{count} touches" if count else "No touch"
        assert re.search(rf"{name} in run 1(?:(?! in run ).)*?{caption} recorded", text), name


def test_a_page_cannot_be_made_of_anything_else(tmp_path):
    with pytest.raises(InputError, match="not a fit directory"):
        write_report(tmp_path / "nothing", tmp_path / "page.html")
    with pytest.raises(InputError, match="not a fit directory"):
        write_report(tmp_path, tmp_path / "page.html")


def with_notes(findings, **notes):
    return replace(findings, fit=findings.fit._replace(notes=findings.fit.notes | notes))


def test_whatever_parameters_a_fit_has_are_listed(fitted_page):
    """Names and units are those of the fit."""
    findings = read_findings(fitted_page.parent)
    drag = {"name": "drag of body 1", "value": 0.5, "standard_error": 0.02, "low": 0.46, "high": 0.54}
    lost = {"name": "mass of body 2", "value": None, "standard_error": None, "low": None, "high": None}
    rows = [
        drag | {"words": "drag of body 1: 0.500 ± 0.020.", "unit": "1/m"},
        lost | {"words": "mass of body 2: not determined by these data (no such impact was seen)."},
        drag | {"name": "e", "words": "e: 1.000, at least 0.980 (95 %).", "low": 0.98, "high": 1.0},
    ]
    table = parameter_table(with_notes(findings, parameters=rows))
    assert table.header == ("parameter", "estimate", "95 % interval", "standard error", "unit")
    assert table.rows == (
        ("Drag of body 1", "0.500 ± 0.020", "0.460 to 0.540", "0.0200", "1/m"),
        ("Mass of body 2", "not determined by these data (no such impact was seen)", *"–––"),
        ("E", "1.000, at least 0.980 (95 %)", "0.980 to 1.000", "0.0200", "–"),
    )
    assert parameter_table(with_notes(findings, parameters=[])) is None


@pytest.mark.parametrize("impacts", [[[[1, 7]]], [[[10**9, 0]]], []])
def test_impacts_of_another_recording_are_refused(fitted_page, impacts):
    with pytest.raises(InputError, match="not of it"):
        _ = with_notes(read_findings(fitted_page.parent), impacts=impacts).impacts


def test_forces_and_laws_are_those_of_the_model(fitted_page):
    """Damping appears as a force against velocity, and a law of restitution against the closing speed."""
    findings = read_findings(fitted_page.parent)
    assert findings.resistances == ()
    assert findings.restitutions == ()
    (force,) = findings.forces
    np.testing.assert_allclose(force.value, -9.81, atol=0.6)
    assert np.all(force.low < force.high)
    fit = findings.fit
    damped = Mechanism.of(
        fit.model.scene,
        fit.model.step_size,
        forces=[*fit.model.forces, LinearDamping(jnp.array([0.3]))],
        restitution=SpeedDependentRestitution(jnp.array([[0.8, -0.02]])),
    )
    changed = replace(findings, fit=fit._replace(model=damped, posterior=None))
    (resistance,) = changed.resistances
    np.testing.assert_allclose(resistance.value, -0.3 * resistance.grid, atol=1e-4)
    (law,) = changed.restitutions
    np.testing.assert_allclose(law.value, 0.8 - 0.02 * np.log(law.grid), atol=1e-4)
    assert law.low is None


def test_surfaces_are_drawn_where_they_were_estimated(fitted_page):
    findings = read_findings(fitted_page.parent)
    (wall,), (stated,) = findings.model.scene.candidates, findings.fit.recording.scene.candidates
    (estimate,) = [one for one in findings.fit.notes["parameters"] if one["name"].startswith("surface")]
    assert estimate["value"] != stated.offset
    assert wall.offset == pytest.approx(estimate["value"], abs=1e-6)


def test_figures_of_one_page_do_not_share_names():
    drawings = []
    for name in ("a", "b"):
        figure = Figure()
        figure.add_subplot().plot([0, 1], [0, 1], color="#0072b2")
        drawings.append(inline_svg(figure, name=name)[1])
    ids = [set(re.findall(r'id="([^"]*)"', drawing)) for drawing in drawings]
    assert not ids[0] & ids[1]
    assert all("var(--model)" in drawing and "#0072b2" not in drawing for drawing in drawings)
