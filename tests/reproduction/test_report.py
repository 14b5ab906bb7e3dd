"""Figures, animations and the page from a tiny folder of units."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from carom.errors import InputError
from carom.reproduction.paper.animation import write_animations
from carom.reproduction.paper.comparison import experiment_table, summary_tables
from carom.reproduction.paper.figures import write_figures
from carom.reproduction.paper.report import write_report
from carom.reproduction.paper.trials import grouped, load_oracle, load_units
from carom.storage.result_file import read_result, write_result
from tests.reproduction.synthetic_trials import SAMPLES, write_units

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
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Units, and the pictures made from them."""
    units, figures = tmp_path_factory.mktemp("units"), tmp_path_factory.mktemp("results") / "figures"
    write_units(units)
    drawn = write_figures(units, figures)
    assert sorted(path.stem for path in drawn) == FIGURES
    moving = write_animations(units, figures)
    assert [path.name for path in moving] == ["ball.text.gif", "cradle.text.gif"]
    return units, figures


@pytest.fixture(scope="module")
def page(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Page]:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(*folders, out, command="carom reproduce --runs 3 <here>")
    text = out.read_text()
    parsed = Page()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    return text, parsed


def test_figures_are_pictures_of_modest_size(folders: tuple[Path, Path]):
    assert sorted(path.name for path in folders[1].iterdir()) == sorted(
        [f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")]
        + ["ball.text.gif", "cradle.text.gif"]
    )
    for name in FIGURES:
        with Image.open(folders[1] / f"{name}.png") as picture:
            assert picture.width > 800
        svg = folders[1] / f"{name}.svg"
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert svg.stat().st_size < 1_000_000


def test_animations_move(folders: tuple[Path, Path]):
    with Image.open(folders[1] / "ball.text.gif") as picture:
        assert getattr(picture, "n_frames", 1) == SAMPLES
        first = np.asarray(picture.convert("RGB"))
        picture.seek(SAMPLES // 2)
        later = np.asarray(picture.convert("RGB"))
    assert np.any(first != later)
    assert np.all(first[-1, 0] == 255)


def test_units_are_read_in_the_order_of_the_paper(folders: tuple[Path, Path]):
    groups = grouped(load_units(folders[0]))
    assert [name for name, _ in groups] == ["ball", "ball-table", "cradle", "damped-pendulum", "ablation-l2"]
    assert list(groups["ball", "text"]) == [
        "CD-Lagrange",
        "CD-Lagrange (no touch)",
        "ResNet",
        "ResNetContact",
    ]
    assert groups["ball", "text"]["CD-Lagrange"].median_place == 1
    assert groups["ball", "text"]["ResNetContact"].median_place == 0


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


def test_page_has_the_numbers_of_the_statistics(folders: tuple[Path, Path], page: tuple[str, Page]):
    scores = [unit.score for unit in load_units(folders[0])]
    expected = summary_tables(scores)
    expected += [
        experiment_table(scores, load_oracle(folders[0]), name)
        for name in ("ball", "ball-table", "cradle", "damped-pendulum", "ablation-l2")
    ]
    wanted = [[list(table.header), *map(list, table.rows)] for table in expected]
    assert page[1].tables == wanted
    assert "Of 2 rows of the printed tables, 0 come out" in page[0]
    assert "the error of CD-Lagrange is larger in 3 of 3 runs" in page[0]


def test_page_says_which_figures_are_missing(folders: tuple[Path, Path], tmp_path: Path):
    write_report(folders[0], tmp_path / "none", tmp_path / "report.html", command="carom reproduce")
    text = (tmp_path / "report.html").read_text()
    assert "The figure has not been drawn." in text
    assert "<img" not in text


def test_page_warns_of_short_runs(tmp_path: Path):
    write_units(tmp_path)
    path = tmp_path / "ball.text.CD-Lagrange.json"
    unit = read_result(path)
    write_result(path, unit | {"settings": {"epochs": 1, **unit["settings"]}})
    write_report(tmp_path, tmp_path, tmp_path / "report.html", command="carom reproduce --quick")
    assert "1 of 10 units were trained for fewer epochs" in (tmp_path / "report.html").read_text()


def test_unreadable_units_are_named(tmp_path: Path):
    with pytest.raises(InputError, match="no finished unit"):
        load_units(tmp_path)
    write_units(tmp_path)
    (tmp_path / "ball.text.CD-Lagrange.npz").write_bytes(b"PK")
    units = load_units(tmp_path)
    with pytest.raises(InputError, match=r"ball\.text\.CD-Lagrange\.npz"):
        _ = units[0].arrays
    (tmp_path / "ball.text.CD-Lagrange.json").write_text("{}")
    with pytest.raises(InputError, match=r"ball\.text\.CD-Lagrange\.json"):
        load_units(tmp_path)
