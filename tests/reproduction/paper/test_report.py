"""Figures, animations and the page of a tiny reproduction."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from carom.errors import InputError
from carom.evaluation.results import Results
from carom.reproduction.paper.figures import write_figures
from carom.reproduction.paper.panels import load_errors, load_trials
from carom.reproduction.paper.report import write_report
from carom.reproduction.paper.tables import (
    experiment_table,
    fits_of,
    hyperparameter_tables,
    summary_tables,
)
from tests.reproduction.synthetic_trials import ERRORS, SAMPLES, write_trials

FIGURES = ["ablations", "ball-table.text", "ball.text", "cradle.text", "damped-pendulum.text"]
VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """Collects what the tests ask about, and checks that elements are closed in order."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    folder = tmp_path_factory.mktemp("trials")
    return folder, write_trials(folder)


@pytest.fixture(scope="module")
def figures(trials: tuple[Path, Results], tmp_path_factory: pytest.TempPathFactory) -> Path:
    figures = tmp_path_factory.mktemp("results") / "figures"
    figures.mkdir()
    fits = fits_of(trials[1].rows)
    written = write_figures(fits, trials[0], figures)
    assert sorted(path.stem for path in written if path.suffix == ".png") == FIGURES
    assert [path.name for path in written if path.suffix == ".gif"] == ["ball.text.gif", "cradle.text.gif"]
    return figures


@pytest.fixture(scope="module")
def page(trials: tuple[Path, Results], figures: Path) -> tuple[str, Page]:
    write_report(trials[1], figures, figures.parent / "report.html")
    text = (figures.parent / "report.html").read_text()
    parsed = Page()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    return text, parsed


def test_figures_are_pictures_of_modest_size(figures: Path):
    assert sorted(path.name for path in figures.iterdir()) == sorted(
        [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
        + ["ball.text.gif", "cradle.text.gif"]
    )
    for name in FIGURES:
        with Image.open(figures / f"{name}.png") as picture:
            assert picture.width > 800
        svg = figures / f"{name}.svg"
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert svg.stat().st_size < 1_000_000


def test_animations_move(figures: Path):
    with Image.open(figures / "ball.text.gif") as picture:
        assert getattr(picture, "n_frames", 1) == SAMPLES
        first = np.asarray(picture.convert("RGB"))
        picture.seek(SAMPLES // 2)
        later = np.asarray(picture.convert("RGB"))
    assert np.any(first != later)
    assert np.all(first[-1, 0] == 255)


def test_trials_are_in_the_order_of_the_paper(trials: tuple[Path, Results]):
    folder, results = trials
    fits = fits_of(results.rows)
    assert list(fits["experiment"].unique(maintain_order=True)) == [
        *dict.fromkeys(name for name, _ in ERRORS)
    ]
    group = load_trials(fits, folder, "ball", "text")
    assert list(group) == ["CD-Lagrange", "CD-Lagrange (no touch)", "ResNet", "ResNetContact"]
    assert list(load_errors(fits, "ball", "text")) == [*group, "oracle"]
    assert group["CD-Lagrange"].median_index == 1
    assert group["ResNetContact"].median_index == 0


def test_page_needs_nothing_but_itself(page: tuple[str, Page]):
    text, parsed = page
    assert "http://" not in text
    assert "https://" not in text
    assert not parsed.attributes("script")
    for tag, attributes in parsed.elements:
        for name in ("src", "href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("data:", "#")), f"{tag} refers to {target}"
    places = {attributes.get("id") for _, attributes in parsed.elements}
    assert all(str(link["href"])[1:] in places for link in parsed.attributes("a"))


def test_page_can_be_read_without_eyes_and_on_a_phone(page: tuple[str, Page]):
    text, parsed = page
    images = parsed.attributes("img")
    assert len(images) == len(FIGURES) + 2
    assert all(len(str(image.get("alt") or "")) > 20 for image in images)
    assert len(parsed.attributes("caption")) == len(parsed.tables)
    assert all(cell.get("scope") in ("row", "col") for cell in parsed.attributes("th"))
    assert [meta for meta in parsed.attributes("meta") if meta.get("name") == "viewport"]
    assert "prefers-color-scheme: dark" in text
    assert "&lt;here&gt;" in text


def test_page_has_the_numbers_of_the_tables(trials: tuple[Path, Results], page: tuple[str, Page]):
    fits = fits_of(trials[1].rows)
    expected = summary_tables(fits) + hyperparameter_tables()
    expected += [experiment_table(fits, name) for name in dict.fromkeys(name for name, _ in ERRORS)]
    wanted = [[list(table.header), *map(list, table.rows)] for table in expected]
    assert page[1].tables == wanted
    assert "of 2 rows of the printed tables 1 agree" in page[0]
    assert "the error of CD-Lagrange is larger in 3 of 3 runs" in page[0]
    assert f"{len(ERRORS)}.0 hours of training" in page[0]


def test_page_says_what_is_missing_or_short(trials: tuple[Path, Results], tmp_path: Path):
    write_report(trials[1], tmp_path / "none", tmp_path / "report.html", quick=True)
    text = (tmp_path / "report.html").read_text()
    assert "The figure has not been drawn." in text
    assert "these numbers are no results" in text
    assert "<img" not in text


def test_unreadable_arrays_are_named(tmp_path: Path):
    fits = fits_of(write_trials(tmp_path).rows)
    path = tmp_path / "ball.text.CD-Lagrange.npz"
    path.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"ball\.text\.CD-Lagrange\.npz"):
        load_trials(fits, tmp_path, "ball", "text")
    path.unlink()
    with pytest.raises(InputError, match=r"CD-Lagrange\.json.* are missing.*delete it"):
        load_trials(fits, tmp_path, "ball", "text")
