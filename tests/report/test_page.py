"""The page is one file, says what it should, and shows nothing of a file as code."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from carom.errors import InputError
from carom.fits import load_fit_directory
from carom.report import write_run_report
from carom.report.inline_svg import inline_svg
from carom.report.words import in_words

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
    assert charts.keys() == {"data", "phase", "forecast", "energy", "slope", "gap", "history"}
    assert all(len(attributes["aria-label"]) > 20 for attributes in reader.all("svg"))
    assert {"play", "instant", "clock"} <= {a.get("id") for _, a in reader.elements}
    words = " ".join(reader.text)
    if kind == "fitted_page":
        value, error = (
            float(x) for x in re.search(r"[Rr]estitution[^:]*: ([\d.]+) ± ([\d.]+\d)", words).groups()
        )
        assert abs(value - 0.8) < max(4 * error, 0.02)
        assert "A bounce keeps" in words
    else:
        assert "gives no errors of parameters" in words


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


def test_touch_is_told_body_by_body(trained_page):
    finished = load_fit_directory(trained_page.parent / "run")
    (run,) = finished.split.training.runs
    text = " ".join(trained_page.read_text(encoding="utf-8").split())
    for body, name in enumerate(("q1", "q2")):
        count = int(run.touch[:, body].sum())
        told = "1 touch was" if count == 1 else f"{count} touches were" if count else "No touch was"
        assert re.search(rf"{name} in run 1(?:(?! in run ).)*?{told} recorded", text), name


def test_a_page_cannot_be_made_of_anything_else(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        write_run_report(tmp_path / "nothing", tmp_path / "page.html")
    with pytest.raises(InputError, match="not a fit directory"):
        write_run_report(tmp_path, tmp_path / "page.html")


def test_parameters_in_words():
    lost = {"name": "mass of body 2 over that of body 1", "value": None, "standard_error": None}
    words = "mass of body 2 over that of body 1: not determined by these data (no such impact was seen)."
    assert in_words(lost | {"words": words}) == words[0].upper() + words[1:]
    at_bound = {"name": "restitution of body 1 at the wall", "value": 1.0, "standard_error": 0.01}
    assert "at least 0.980" in in_words(at_bound | {"low": 0.98, "high": 1.0})


def test_figures_of_one_page_do_not_share_names():
    from matplotlib.figure import Figure

    pictures = []
    for name in ("a", "b"):
        figure = Figure()
        figure.add_subplot().plot([0, 1], [0, 1], color="#0072b2")
        pictures.append(inline_svg(figure, name=name, description="a < b"))
    ids = [set(re.findall(r'id="([^"]*)"', picture)) for picture in pictures]
    assert not ids[0] & ids[1]
    assert all('aria-label="a &lt; b"' in picture and "var(--model)" in picture for picture in pictures)
    assert all("#0072b2" not in picture for picture in pictures)
