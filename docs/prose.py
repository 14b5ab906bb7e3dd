"""Sentences about the paper's experiments, with numbers filled in from the files of results.

`prose.j2` has one block for every marker of a page. Blocks use the functions of `PaperNumbers`, so that no
number is copied by hand; the words around them remain a judgement of the numbers that there were.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
from jinja2 import Environment, FileSystemLoader, StrictUndefined

import carom.evaluation.tables as text
from carom.digits import number
from carom.errors import InputError
from carom.evaluation.metrics import paper_rmse
from carom.evaluation.tables import paired
from carom.reproduction.paper.data import motion_of
from carom.reproduction.paper.experiments import ALL, OURS
from carom.reproduction.paper.tables import against, quartiles


class PaperNumbers:
    """The numbers of some models as text; `protocol` is "published" unless it is given.

    Arguments:
        fits: as `carom.reproduction.paper.tables.fits_of` gives them.
    """

    def __init__(self, fits: pl.DataFrame):
        self._fits = fits

    def mean(
        self, experiment: str, model: str, protocol: str = "published", metric: str = "paper_rmse"
    ) -> str:
        """Mean ± standard error over seeds."""
        return text.mean_text(self._values(experiment, model, protocol, metric))

    def median(
        self, experiment: str, model: str, protocol: str = "published", metric: str = "paper_rmse"
    ) -> str:
        return text.median_text(self._values(experiment, model, protocol, metric))

    def ordered(self, experiment: str, model: str, rank: int, protocol: str = "published") -> str:
        """The error of the seed with this rank: 0 is the least, −1 the largest."""
        return number(np.sort(self._values(experiment, model, protocol, "paper_rmse"))[rank])

    def against(self, experiment: str, model: str, protocol: str = "published") -> str:
        """Whether it agrees with the printed number."""
        return against(self._rows(experiment, model, protocol))

    def difference(
        self,
        experiment: str,
        first: str,
        second: str,
        protocol: str = "published",
        *,
        metric: str = "paper_rmse",
        other: str = "",
    ) -> str:
        """First less second model on the same seeds, with 95 % interval; the second from `other`."""
        return str(paired(*self._pairs(experiment, first, second, protocol, metric, other)) or "diverged")

    def shift(
        self, experiment: str, first: str, second: str, protocol: str = "published", *, metric: str
    ) -> str:
        """The same as mean ± standard error."""
        one, two = self._pairs(experiment, first, second, protocol, metric, "")
        return text.mean_text(one - two)

    def below(
        self, experiment: str, second: str, protocol: str = "published", *, first: str = OURS, other: str = ""
    ) -> str:
        """Seeds in which the first model has the smaller error."""
        one, two = self._pairs(experiment, first, second, protocol, "paper_rmse", other)
        return text.share_text(one < two)

    def energy(self, experiment: str, model: str, protocol: str = "published") -> str:
        """Median and quartiles of the energy gained by the end."""
        return quartiles(self._rows(experiment, model, protocol)["energy_error"])

    def losing(self, experiment: str, model: str, protocol: str = "published") -> str:
        """Seeds whose forecast has lost energy by the end."""
        return text.share_text(self._values(experiment, model, protocol, "energy_error") < 0)

    def count(self, experiment: str, model: str, metric: str, protocol: str = "published") -> int:
        """A number of impacts, over all seeds."""
        return int(self._values(experiment, model, protocol, metric).sum())

    def scheme(self, experiment: str) -> str:
        """The error of the true equations in the CD-Lagrange step itself; no result, but computed here."""
        one = ALL[experiment]
        truth = motion_of(one, "published", one.system, one.start)
        step = one.system.scheme(
            one.start,
            steps=len(truth.time) - 1,
            step_size=one.step_size,
            velocity_grid="sample",
            projection=one.projection,
        )
        return number(paper_rmse(step, truth))

    def _rows(self, experiment: str, model: str, protocol: str) -> pl.DataFrame:
        rows = self._fits.filter(experiment=experiment, model=model, protocol=protocol).sort("seed")
        if rows.is_empty():
            raise InputError(f"There are no results of {model} in {experiment}, {protocol}.")
        return rows

    def _values(self, experiment: str, model: str, protocol: str, metric: str) -> np.ndarray:
        return self._rows(experiment, model, protocol)[metric].fill_nan(np.inf).to_numpy()

    def _pairs(
        self, experiment: str, first: str, second: str, protocol: str, metric: str, other: str
    ) -> tuple[np.ndarray, np.ndarray]:
        one, two = self._rows(experiment, first, protocol), self._rows(other or experiment, second, protocol)
        both = one.select("seed", one=metric).join(two.select("seed", two=metric), on="seed")
        return both["one"].fill_nan(np.inf).to_numpy(), both["two"].fill_nan(np.inf).to_numpy()


def paper_prose(fits: pl.DataFrame) -> Iterator[tuple[str, str]]:
    """Every block of the template by its name."""
    folder = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=folder, undefined=StrictUndefined, trim_blocks=True, autoescape=False)
    template = environment.get_template("prose.j2")
    for name, block in template.blocks.items():
        yield name, "".join(block(template.new_context({"n": PaperNumbers(fits)}))).strip()
