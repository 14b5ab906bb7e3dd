"""The committed document of the recipe `carom`, `results/learning.json`, and its tables in Markdown."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from carom.digits import MISSING, number
from carom.errors import InputError
from carom.reproduction.formatting import of_total, spread_mean, yes
from carom.reproduction.paper.results import rounded, write_document
from carom.reproduction.paper.statistics import Share, Spread, spread
from carom.reproduction.recipe.rows import ROWS
from carom.reproduction.tables import markdown_of

Document = Mapping[str, Any]
_RESTITUTION = "restitution"
_CLOSE, _CLOSE_BENT = 0.01, 0.02
"""How near to the truth an estimated restitution is asked to be; the second in the bent potential."""


def write_learning(results: Mapping[str, Mapping[str, Any]], path: Path, *, command: str) -> None:
    """One document with every row and seed.

    Arguments:
        results: what `run_rows` gives, by name of the row.
        path: where to write; the folder is made.
        command: the command that makes these results.
    """
    if not results:
        raise InputError("There are no finished rows to write.")
    unknown = sorted(set(results) - set(ROWS))
    if unknown:
        raise InputError(f"There are no rows {unknown}; there are {list(ROWS)}.")
    write_document(
        path,
        command=command,
        devices=[result["device"] for result in results.values()],
        seeds=sorted({line["seed"] for result in results.values() for line in result["rows"]}),
        # In the order of the table, whatever order they were finished or read in.
        rows={name: _condensed(name, results[name]) for name in ROWS if name in results},
    )


def main_markdown(document: Document) -> str:
    """Every row: what was known, the error over seeds beside the bound, the oracle and the paper; impacts."""
    header = ["row", "truth", "touch", "start", "velocities", "mean ± s.e.", "median", "asked: mean ≤"]
    header += ["comes out", "oracle: mean", "impacts: mistimed / missed / spurious of true", "paper"]
    rows = []
    for row in document["rows"].values():
        errors, oracle = _spread(row, "paper_rmse"), _spread(row, "oracle")
        bound = row["bound"]
        rows.append(
            [
                _title(row),
                row["truth"],
                row["touch"],
                "given" if row["start_given"] else "unknown",
                "recorded" if row["velocities"] else "none",
                MISSING if errors is None else spread_mean(errors),
                MISSING if errors is None else number(errors.median),
                MISSING if bound is None else f"{bound:g}",
                MISSING if bound is None or errors is None else yes(errors.mean <= bound),
                MISSING if oracle is None else number(oracle.mean),
                _impacts(row["rows"]),
                row["paper"] or MISSING,
            ]
        )
    caption = (
        f"Error over {len(document['seeds'])} seeds, on the recorded span. A row comes out where the mean is "
        "at or below what was asked; – stands where nothing was asked."
    )
    return markdown_of(caption, header, rows)


def parameters_markdown(document: Document) -> str:
    """Estimated restitutions: how near, how often inside their interval, how sure, how spread."""
    header = ["row", "true e", "asked: within", "seeds within", "95 % interval covers", "mean s.e."]
    header += ["spread over seeds", "mean − true"]
    rows = []
    for name, row in document["rows"].items():
        if "true_restitution" not in row:
            continue
        true, close = row["true_restitution"], _CLOSE_BENT if name == "bent" else _CLOSE
        found = [_parameter(line, _RESTITUTION) for line in row["rows"]]
        # What the data did not determine counts as neither near nor covered.
        known = [p for p in found if p is not None and p["value"] is not None]
        values = np.array([p["value"] for p in known], float)
        within = Share(int(np.sum(np.abs(values - true) <= close)), len(found))
        covers = Share(sum(p["low"] <= true <= p["high"] for p in known), len(found))
        rows.append(
            [
                row["title"],
                f"{true:g}",
                f"{close:g}",
                of_total(within),
                of_total(covers),
                number(float(np.mean([p["error"] for p in known]))) if known else MISSING,
                number(float(np.std(values, ddof=1))) if len(values) > 1 else MISSING,
                _signed(float(values.mean()) - true) if known else MISSING,
            ]
        )
    caption = "Estimated restitution over seeds; the spread is the standard deviation of the estimates."
    return markdown_of(caption, header, rows)


def held_out_markdown(document: Document) -> str:
    """Forecasts from starts that were not recorded, beside the oracle's."""
    header = ["row", "truth", "touch", "start", "median error", "oracle", "ratio"]
    header += ["oracle without floor", "ratio to it", "impacts wrong per seed"]
    rows = []
    for row in document["rows"].values():
        ours, oracle = _spread(row, "held_out_median"), _spread(row, "oracle_held_out_median")
        # Without an oracle only a few starts were tried, which is not the same quantity.
        if ours is None or oracle is None:
            continue
        blind = _spread(row, "oracle_without_floor_held_out_median")
        wrong = [line["held_out_mistimed"] for line in row["rows"] if "impacts" in line]
        rows.append(
            [
                _title(row),
                row["truth"],
                row["touch"],
                "given" if row["start_given"] else "unknown",
                number(ours.median),
                number(oracle.median),
                _ratio(ours.median, oracle.median),
                MISSING if blind is None else number(blind.median),
                MISSING if blind is None else _ratio(ours.median, blind.median),
                number(float(np.median(wrong))) if wrong else MISSING,
            ]
        )
    caption = (
        "Held-out starts: the median error of 50 starts, median over seeds. The second oracle has to find "
        "the floor too, as the learner has. The last column is the median over seeds of the impacts that are "
        "mistimed, missed or spurious from all 50 together."
    )
    return markdown_of(caption, header, rows)


def bent_markdown(document: Document) -> str:
    """How far the learned slope of the bent potential is from the true one."""
    if "bent" not in document["rows"]:
        raise InputError("There are no results of the bent potential.")
    lines = document["rows"]["bent"]["rows"]
    rows = []
    for title, key in (("95th percentile", "slope_95_share"), ("root mean square", "slope_rmse_share")):
        shares = [math.inf if line[key] is None else line[key] for line in lines]
        cells = (spread(shares).median, min(shares), max(shares))
        rows.append([title, *(_percent(share) for share in cells)])
    caption = "Bent potential: error of ∂U/∂q over the recorded samples, as a share of its range there."
    return markdown_of(caption, ["error", "median seed", "best seed", "worst seed"], rows)


LEARNING_TABLES: dict[str, Callable[[Document], str]] = {
    "learning-main": main_markdown,
    "learning-parameters": parameters_markdown,
    "learning-held-out": held_out_markdown,
    "learning-bent": bent_markdown,
}
"""Tables by the name of their marker in a page."""


def _condensed(name: str, result: Mapping[str, Any]) -> dict[str, Any]:
    kept = rounded({key: value for key, value in result.items() if key != "fingerprint"})
    row = ROWS[name]
    if row.learned.restitution == "constant":
        lines = kept.pop("rows")
        # `run_rows` does not carry the truth; the systems whose restitution is estimated have one.
        kept |= {"true_restitution": float(getattr(row.system, _RESTITUTION)), "rows": lines}
    return kept


def _spread(row: Mapping[str, Any], key: str) -> Spread | None:
    """Over the seeds; None where the row has no such number. A null is a forecast that left the numbers."""
    if not all(key in line for line in row["rows"]):
        return None
    return spread(math.inf if line[key] is None else line[key] for line in row["rows"])


def _title(row: Mapping[str, Any]) -> str:
    true = row.get("true_restitution")
    # The title of the bent row says it already.
    return row["title"] if true is None or f"{true:g}" in row["title"] else f"{row['title']} (true {true:g})"


def _impacts(lines: Sequence[Mapping[str, Any]]) -> str:
    names = ("mistimed", "missed", "spurious", "impacts")
    if not all("impacts" in line for line in lines):
        return MISSING
    mistimed, missed, spurious, true = (sum(line[name] for line in lines) for name in names)
    return f"{mistimed} / {missed} / {spurious} of {true}" if true else f"{spurious} spurious"


def _parameter(line: Mapping[str, Any], beginning: str) -> Mapping[str, Any] | None:
    return next((p for p in line["parameters"] if p["name"].startswith(beginning)), None)


def _ratio(ours: float, oracle: float) -> str:
    """Two digits where they say something."""
    ratio = ours / oracle if oracle else math.inf
    return "diverged" if not math.isfinite(ratio) else f"{ratio:.1f}×" if ratio < 10 else f"{ratio:.0f}×"


def _percent(share: float) -> str:
    return "diverged" if math.isinf(share) else f"{100 * share:.1f} %"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + number(abs(value))
