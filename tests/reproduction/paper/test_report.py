"""Figures and the page of a tiny reproduction."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from carom.errors import InputError
from carom.evaluation.results import Results
from carom.evaluation.tables import markdown
from carom.reproduction.paper.figures import load_trials, write_figure
from carom.reproduction.paper.tables import (
    experiment_table,
    fits_of,
    hyperparameter_tables,
    paper_page,
    summary_tables,
)
from tests.reproduction.synthetic_trials import ERRORS, write_trials

FIGURES = ["ball-table.text", "ball.text", "cradle.text", "damped-pendulum.text"]


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    folder = tmp_path_factory.mktemp("trials")
    return folder, write_trials(folder)


@pytest.fixture(scope="module")
def figures(trials: tuple[Path, Results], tmp_path_factory: pytest.TempPathFactory) -> Path:
    figures = tmp_path_factory.mktemp("results") / "figures"
    figures.mkdir()
    fits = fits_of(trials[1].rows).filter(protocol="text")
    written = [write_figure(part, trials[0], figures) for part in fits.partition_by("experiment")]
    assert sorted(path.stem for path in written) == FIGURES
    return figures


def test_figures_are_pictures_of_modest_size(figures: Path):
    assert sorted(path.name for path in figures.iterdir()) == sorted(
        f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")
    )
    for name in FIGURES:
        with Image.open(figures / f"{name}.png") as picture:
            assert picture.width > 800
        svg = figures / f"{name}.svg"
        assert ElementTree.parse(svg).getroot().tag.endswith("svg")
        assert svg.stat().st_size < 1_000_000


def test_trials_are_in_the_order_of_the_paper(trials: tuple[Path, Results]):
    folder, results = trials
    fits = fits_of(results.rows)
    assert list(fits["experiment"].unique(maintain_order=True)) == [
        *dict.fromkeys(name for name, _ in ERRORS)
    ]
    group = load_trials(fits.filter(experiment="ball", protocol="text"), folder)
    assert list(group) == ["CD-Lagrange", "CD-Lagrange (no touch)", "ResNet", "ResNetContact", "oracle"]
    assert group["CD-Lagrange"].median_index == 1
    assert group["ResNetContact"].median_index == 0


def test_page_has_the_tables_and_figures(trials: tuple[Path, Results]):
    fits, text = fits_of(trials[1].rows), paper_page(trials[1])
    expected = summary_tables(fits) + hyperparameter_tables()
    expected += [experiment_table(fits, name) for name in dict.fromkeys(name for name, _ in ERRORS)]
    assert [line for line in text.splitlines() if line.startswith("|")] == [
        line for table in expected for line in markdown(table).splitlines() if line.startswith("|")
    ]
    pictures = re.findall(r"\(figures/(.*)\.png\)", text)
    assert pictures == ["ball.text", "ball-table.text", "cradle.text", "damped-pendulum.text"]
    assert "of 2 rows of the printed tables 1 agree" in text
    assert "the error of CD-Lagrange is larger in 3 of 3 runs" in text
    assert f"{len(ERRORS)}.0 hours of training" in text
    assert "no results" not in text
    quick = trials[1]._replace(header=trials[1].header | {"command": "carom reproduce paper --quick"})
    assert "these numbers are no results" in paper_page(quick)


def test_unreadable_arrays_are_named(tmp_path: Path):
    fits = fits_of(write_trials(tmp_path).rows)
    path = tmp_path / "ball.text.CD-Lagrange.safetensors"
    path.write_bytes(b"PK")
    with pytest.raises(InputError, match=r"ball\.text\.CD-Lagrange\.safetensors"):
        load_trials(fits.filter(experiment="ball", protocol="text"), tmp_path)
