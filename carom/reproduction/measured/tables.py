"""The tables of measured recordings in Markdown, from `results/measured.json`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from carom.digits import MISSING, mean_and_error, number
from carom.reproduction.formatting import spread_mean, yes
from carom.reproduction.paper.statistics import spread
from carom.reproduction.tables import markdown_of

Document = Mapping[str, Any]
KINDS = {"speed": "e(u)", "constant": "constant"}


def errors_markdown(document: Document) -> str:
    """Velocities after the collisions that were left out: by the law, and by the best constant."""
    header = ["bumper", "runs learned from", "left out", "law", "error of the law / (m/s)"]
    header += ["best constant e", "its error / (m/s)", "ratio", "asked: ratio ≤", "comes out"]
    header += ["ratio to the best constant for the runs left out"]
    rows, differences = [], []
    for units in document["air_track"].values():
        first = units[0]
        law, constant, restitution = (
            np.array([unit["errors"][name] for unit in units])
            for name in ("law", "constant", "constant_restitution")
        )
        ratio, strict = (float(np.mean(ratios(units, name))) for name in ("constant", "hindsight"))
        differences.append(np.ptp(law) / law.mean())
        used = [line for line in first["runs"] if line["found"]]
        rows.append(
            [
                first["title"],
                str(sum(not line["left_out"] for line in used)),
                str(sum(line["left_out"] for line in used)),
                " / ".join(KINDS[kind] for kind in dict.fromkeys(unit["kind"] for unit in units)),
                number(law.mean()),
                number(restitution.mean()),
                number(constant.mean()),
                f"{ratio:.2f}",
                f"{first['bound']:g}",
                yes(ratio <= first["bound"]),
                f"{strict:.2f}",
            ]
        )
    caption = (
        f"Velocities after the collisions of runs left out, both riders: root mean square error, mean over "
        f"{len(document['seeds'])} random crops, which differ by at most {100 * max(differences):.1f} %."
    )
    return markdown_of(caption, header, rows)


def parameters_markdown(document: Document) -> str:
    """The laws at a few speeds, how widely runs scatter about them, and the ratio of masses."""
    speeds = next(iter(document["air_track"].values()))[0]["law_at"]["speed"]
    header = ["bumper", *(f"e at {speed:g} m/s" for speed in speeds), "scatter from run to run"]
    header += ["impacts found: one per run", "off the check / ms"]
    rows = []
    for units in document["air_track"].values():
        first = units[0]
        found = [line for line in first["runs"] if line["found"]]
        low, high = (
            edge([line["closing_speed"] for line in found if not line["left_out"]]) for edge in (min, max)
        )
        values = [
            mean_and_error(value, error) if low <= speed <= high else MISSING
            for speed, value, error in zip(*first["law_at"].values(), strict=True)
        ]
        lone = sum(count == 1 for count in first["fit"]["impacts"])
        late = np.median([abs(line["late_by"]) for line in found])
        rows.append(
            [
                first["title"],
                *values,
                _with_error(_parameter(first, "restitution", "scatter")),
                f"{lone} of {len(first['fit']['impacts'])}",
                number(1000 * float(late)),
            ]
        )
    caption = (
        f"What was learned (crop {document['seeds'][0]}); – where no such speed was seen. The last column is "
        "the median distance from the instants that the table of runs states."
    )
    return markdown_of(caption, header, rows)


def masses_markdown(document: Document) -> str:
    """The ratio of masses by all runs together, and by slow and fast ones alone, beside the scales."""
    header = ["bumper", "as weighed", "all runs together", "over that weighed"]
    header += ["slow half, over that weighed", "fast half, over that weighed"]
    rows = []
    for units in document["air_track"].values():
        first = units[0]
        found = sorted(
            (line for line in first["runs"] if line["found"]), key=lambda line: line["closing_speed"]
        )
        shares = [line["mass_ratio"] / line["check"]["mass_ratio"] for line in found]
        halves = shares[: len(shares) // 2], shares[len(shares) // 2 :]
        shared, weighed = _parameter(first, "mass of body 2"), first["weighed"][0]
        rows.append(
            [
                first["title"],
                number(weighed) if len(first["weighed"]) == 1 else "run by run",
                "run by run" if shared is None else _with_error(shared),
                MISSING if shared is None else _with_error(shared, weighed),
                *(spread_mean(spread(half)) for half in halves),
            ]
        )
    caption = (
        "Mass of the second rider over that of the first. The halves are single runs, by what straight lines "
        "say that each velocity changed: mean ± standard error."
    )
    return markdown_of(caption, header, rows)


def misfit_markdown(document: Document) -> str:
    """What an instantaneous impact leaves unexplained, with the samples of the contact hidden and without."""
    header = ["bumper", "contact hidden: residual / mm", "over the noise", "contact counted: residual / mm"]
    header += ["over the noise", "mean square near impacts, over elsewhere"]
    rows = []
    for units in document["air_track"].values():
        hidden, counted = units[0]["fit"], units[0]["fit_without_blind"]
        rows.append(
            [
                units[0]["title"],
                number(1000 * hidden["residual"]),
                f"{hidden['excess']:.1f}×",
                number(1000 * counted["residual"]),
                f"{counted['excess']:.1f}×",
                f"{counted['near_impacts']:.1f}×",
            ]
        )
    caption = (
        "What an impact at an instant leaves unexplained: standard deviation of the positions' residuals."
    )
    return markdown_of(caption, header, rows)


def pendulum_markdown(document: Document) -> str:
    """The energy error beside those published."""
    pendulum = document["pendulum"]
    rows = [
        [f"{name} (published)", mean_and_error(*pair), MISSING]
        for name, pair in pendulum["published"].items()
    ]
    for name, errors in pendulum["validation"].items():
        chosen = name == pendulum["variant"]
        tested = spread_mean(spread(line["energy_mse"] for line in pendulum["rows"])) if chosen else MISSING
        rows.append([f"recipe carom, {name}", tested, spread_mean(spread(errors))])
    header = ["model", "energy error on the last fifth", "on the last fifth of what was learned from"]
    caption = (
        f"Mean squared error of 2.4 (1 − cos o) + v² over a rollout; ours: mean ± standard error over "
        f"{len(pendulum['rows'])} seeds. The variant was chosen by the last column."
    )
    return markdown_of(caption, header, rows)


MEASURED_TABLES: dict[str, Callable[[Document], str]] = {
    "measured-errors": errors_markdown,
    "measured-parameters": parameters_markdown,
    "measured-masses": masses_markdown,
    "measured-misfit": misfit_markdown,
    "measured-pendulum": pendulum_markdown,
}
"""Tables by the name of their marker in a page."""


def ratios(units: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The error of the law over that of a constant, crop by crop."""
    return [unit["errors"]["law"] / unit["errors"][name] for unit in units]


def _parameter(unit: Mapping[str, Any], beginning: str, word: str = "") -> Mapping[str, Any] | None:
    named = (p for p in unit["parameters"] if p["name"].startswith(beginning) and word in p["name"])
    return next(named, None)


def _with_error(parameter: Mapping[str, Any] | None, unit: float = 1.0) -> str:
    if parameter is None or parameter["value"] is None:
        return MISSING
    return mean_and_error(parameter["value"] / unit, parameter["standard_error"] / unit)
