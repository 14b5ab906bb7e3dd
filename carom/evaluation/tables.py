"""Tables of text from tidy rows: grouped, summarised by polars, then shown in Markdown, a terminal or a page;
and two-sided comparisons of seeds with published numbers, and of models on the same seeds.

A forecast that diverged counts as an infinite error, never as a missing one: a mean over the seeds that
happened to survive would flatter the model.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Float
from scipy import stats

from carom.digits import MISSING, mean_and_error, number, signed

Cell = Callable[[pl.DataFrame], str]
"""The text of one cell, from the rows (one per fit, metrics as columns) that belong to it."""


@dataclass(frozen=True)
class Table:
    """Cells as text.

    Arguments:
        caption: one sentence that says what is shown.
        header: names of the columns; the first column names the row.
        rows: as many cells each.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Columns that hold numbers, to be set flush right."""
        columns = zip(*self.rows, strict=True)
        return tuple(all(cell == MISSING or cell[:1].isdigit() for cell in column) for column in columns)

    def without_empty_columns(self) -> "Table":
        """The same without columns in which nothing is known."""
        kept = [i for i in range(len(self.header)) if any(row[i] != MISSING for row in self.rows)]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        return Table(self.caption, tuple(self.header[i] for i in kept), rows)


def table_of(caption: str, rows: Sequence[Mapping[str, str]]) -> Table:
    """A table from one dictionary per row, with the headings as keys; `MISSING` where a row lacks one.

    Example:
        >>> table_of("Sizes.", [{"body": "1", "radius": "0.1"}, {"body": "2"}]).rows
        (('1', '0.1'), ('2', '–'))
    """
    header = tuple(dict.fromkeys(heading for row in rows for heading in row))
    return Table(caption, header, tuple(tuple(row.get(key, MISSING) for key in header) for row in rows))


def tabulate(
    rows: pl.DataFrame,
    by: Mapping[str, str],
    columns: Mapping[str, Cell],
    *,
    caption: str,
    labels: Mapping[str, Mapping[Any, str]] | None = None,
) -> Table:
    """One line per group of rows and one column per statistic.

    Groups come in the order in which they first appear; see `arrange`. A heading with a name in braces, such
    as "ours, {protocol}", stands for a column for every value that this key has in `rows` (a pivot).

    Arguments:
        rows: one per fit, metrics as columns, as `carom.evaluation.results.wide` gives them.
        by: keys that name a line, and their headings.
        columns: what each cell shows, by heading.
        caption: of the table.
        labels: texts for values of the keys in `by`, where they differ from the values.

    Example:
        >>> rows = pl.DataFrame({"model": ["a", "a", "b"], "noise": [1, 2, 1], "error": [0.5, 1.5, 2.0]})
        >>> columns = {"σ = {noise}": cell("error", median_text)}
        >>> table = tabulate(rows, {"model": "model"}, columns, caption="Median errors.")
        >>> table.header, table.rows
        (('model', 'σ = 1', 'σ = 2'), (('a', '0.500', '1.50'), ('b', '2.00', '–')))
    """
    # From all rows, so that every line has the same columns.
    shown = _pivoted(rows, columns)
    lines = []
    for values, group in rows.group_by(list(by), maintain_order=True):
        names = [
            str((labels or {}).get(key, {}).get(value, MISSING if value is None else value))
            for key, value in zip(by, values, strict=True)
        ]
        lines.append((*names, *(show(group) for _, show in shown)))
    return Table(caption, (*by.values(), *(heading for heading, _ in shown)), tuple(lines))


def arrange(rows: pl.DataFrame, **orders: Iterable[Any]) -> pl.DataFrame:
    """Sort by given orders of values, the first key slowest; what an order does not name comes last.

    Example:
        >>> arrange(pl.DataFrame({"model": ["a", "b", "c"]}), model=["c", "a"])["model"].to_list()
        ['c', 'a', 'b']
    """
    ranks = {key: {value: i for i, value in enumerate(order)} for key, order in orders.items()}
    places = [pl.col(key).replace_strict(rank, default=None) for key, rank in ranks.items()]
    return rows.sort(places, maintain_order=True, nulls_last=True) if rows.height else rows


def cell(metric: str, show: Callable[[pl.Series], str]) -> Cell:
    """A cell that shows the measured values of one metric; `MISSING` where there are none."""

    def text(group: pl.DataFrame) -> str:
        values = measured(group, metric)
        return show(values) if len(values) else MISSING

    return text


def measured(group: pl.DataFrame, metric: str) -> pl.Series:
    """The values of a metric where it was measured."""
    if metric not in group.columns:
        return pl.Series(metric, [], dtype=pl.Float64)
    return group[metric].drop_nulls()


@dataclass(frozen=True)
class Summary:
    """Numbers of many seeds in short.

    Arguments:
        count: how many.
        mean: over all; infinite where one is.
        standard_error: s/√n with the n − 1 variance; None where it does not exist.
        median: the middle one, or the mean of the two in the middle.
        diverged: how many are infinite.
    """

    count: int
    mean: float
    standard_error: float | None
    median: float
    diverged: int


def summarize(values: Iterable[Any]) -> Summary:
    """Mean, standard error and median of at least one number; what is not finite counts as infinite.

    Example:
        >>> summarize([1.0, 2.0, 6.0])
        Summary(count=3, mean=3.0, standard_error=1.5275252316519468, median=2.0, diverged=0)
    """
    # A diverged forecast may be NaN as well as infinite.
    given = pl.Series(values, dtype=pl.Float64).fill_null(math.inf).fill_nan(math.inf)
    diverged = int(given.is_infinite().sum())
    mean, median, deviation = given.mean(), given.median(), given.std()
    assert isinstance(mean, float)
    assert isinstance(median, float)
    error = deviation / math.sqrt(len(given)) if isinstance(deviation, float) and diverged == 0 else None
    return Summary(len(given), mean, error, median, diverged)


def mean_text(values: Iterable[Any]) -> str:
    """Mean and standard error, or how many values diverged.

    Example:
        >>> mean_text([1.0, 2.0, 6.0]), mean_text([1.0, math.inf])
        ('3.0 ± 1.5', '1 of 2 diverged')
    """
    found = summarize(values)
    if found.diverged:
        return f"{found.diverged} of {found.count} diverged"
    return mean_and_error(found.mean, found.standard_error)


def average_text(values: Iterable[Any]) -> str:
    """The mean with three digits."""
    return number(summarize(values).mean)


def median_text(values: Iterable[Any]) -> str:
    """The median with three digits."""
    return number(summarize(values).median)


def largest_text(values: Iterable[Any]) -> str:
    """The largest value with three digits."""
    return number(max(values))


def share_text(holds: Iterable[Any]) -> str:
    """How many of how many.

    Example:
        >>> share_text([True, False, True])
        '2 of 3'
    """
    answers = [bool(answer) for answer in holds]
    return f"{sum(answers)} of {len(answers)}"


def impacts_text(group: pl.DataFrame) -> str:
    """Impacts of the forecasts that are mistimed, missed or spurious, and how many there truly are.

    Sums over seeds; a mean of counts would hide that most seeds are right or all wrong.
    """
    names = ("impacts", "mistimed", "missed", "spurious")
    if measured(group, "impacts").is_empty():
        return MISSING
    true, mistimed, missed, spurious = (int(measured(group, name).sum()) for name in names)
    return f"{mistimed} / {missed} / {spurious} of {true}" if true else f"{spurious} spurious"


def markdown(table: Table) -> str:
    """The table as Markdown, under its caption where it has one.

    Example:
        >>> print(markdown(Table("Errors.", ("model", "mean"), (("ResNet", "6.6"),))))
        *Errors.*
        <BLANKLINE>
        | model | mean |
        |:---|---:|
        | ResNet | 6.6 |
    """
    rule = "|" + "|".join("---:" if numeric else ":---" for numeric in table.numeric) + "|"
    lines = [_line(table.header), rule, *map(_line, table.rows)]
    return "\n".join([f"*{table.caption}*", "", *lines] if table.caption else lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"


def _pivoted(rows: pl.DataFrame, columns: Mapping[str, Cell]) -> list[tuple[str, Cell]]:
    """The columns that headings stand for; neighbours with the same key in braces alternate."""
    found: list[tuple[str, Cell]] = []
    for key, chosen in groupby(columns, key=lambda heading: heading.partition("{")[2].partition("}")[0]):
        headings = list(chosen)
        if not key:
            found += [(heading, columns[heading]) for heading in headings]
            continue
        for value in rows[key].drop_nulls().unique(maintain_order=True):
            for heading in headings:
                name = heading.replace(f"{{{key}}}", str(value))
                found.append((name, where(key, value, columns[heading])))
    return found


def where(key: str, value: Any, show: Cell) -> Cell:
    """A cell of those rows of a group that have this value; `MISSING` where there are none."""

    def text(group: pl.DataFrame) -> str:
        chosen = group.filter(pl.col(key) == value)
        return show(chosen) if chosen.height else MISSING

    return text


LEVEL = 0.05
"""Of all tests: one in twenty comparisons of equal things is called a difference."""

Values = Float[np.ndarray, "seeds"]


class Difference(NamedTuple):
    """An estimated difference, its 95 % interval, and the probability of a larger one by chance."""

    value: float
    low: float
    high: float
    p: float

    def __str__(self) -> str:
        return f"{signed(self.value)} [{signed(self.low)}, {signed(self.high)}]"


def welch(ours: Summary, mean: float, standard_error: float, count: int) -> Difference | None:
    """Our mean less a published one, by Welch's t from means, standard errors and numbers of runs.

    The degrees of freedom are Satterthwaite's: (a + b)²/(a²/(m − 1) + b²/(n − 1)) with the squared standard
    errors a and b. A mean over seeds of which one diverged does not exist: then the result is None.

    Example:
        >>> ours = Summary(count=20, mean=1.5, standard_error=0.45, median=0.1, diverged=0)
        >>> print(welch(ours, 1.9, 1.0, 5))
        −0.400 [−3.11, +2.31]
    """
    if ours.standard_error is None:
        return None
    spread, other = ours.standard_error * math.sqrt(ours.count), standard_error * math.sqrt(count)
    test = stats.ttest_ind_from_stats(ours.mean, spread, ours.count, mean, other, count, equal_var=False)
    a, b = ours.standard_error**2, standard_error**2
    freedom = (a + b) ** 2 / (a**2 / (ours.count - 1) + b**2 / (count - 1))
    reach = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * math.sqrt(a + b)
    difference = ours.mean - mean
    return Difference(difference, difference - reach, difference + reach, float(test.pvalue))


def rank_probability(values: Values, published: float) -> float:
    """Two-sided probability of a single published run that is as far out among our seeds, or farther.

    If the published run came from the distribution of ours, every rank among all n + 1 would be equally
    likely, whatever that distribution is. The least possible value is 2/(n + 1): 0.095 for 20 seeds.

    Example:
        >>> rank_probability(np.arange(20.0), 100.0)
        0.09523809523809523
    """
    below, ties = np.sum(values < published), np.sum(values == published)
    # Half of the ties on either side.
    rank = below + ties / 2 + 1
    return float(min(1.0, 2 * min(rank, len(values) + 2 - rank) / (len(values) + 1)))


def paired(first: Values, second: Values) -> Difference | None:
    """The mean of first less second on the same seeds, by Student's t; None where one of them diverged."""
    differences = first - second
    if len(differences) < 2 or not np.isfinite(differences).all():
        return None
    mean, error, freedom = float(differences.mean()), float(stats.sem(differences)), len(differences) - 1
    reach = float(stats.t.ppf(1 - LEVEL / 2, freedom)) * error
    # Equal differences have no error; they differ from 0 with certainty or not at all.
    p = float(2 * stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Difference(mean, mean - reach, mean + reach, p)


def share_with_interval(holds: Iterable[bool]) -> str:
    """A share of the seeds and its exact 95 % interval (Clopper and Pearson).

    Example:
        >>> share_with_interval([True] * 19 + [False])
        '19 of 20 [75, 100 %]'
    """
    answers = [bool(answer) for answer in holds]
    interval = stats.binomtest(sum(answers), len(answers)).proportion_ci(1 - LEVEL)
    return f"{share_text(answers)} [{100 * interval.low:.0f}, {100 * interval.high:.0f} %]"
