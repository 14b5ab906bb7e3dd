"""The tables of what is learned of many bodies, from `results/bodies.json`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from carom.digits import MISSING, number
from carom.reproduction.formatting import yes
from carom.reproduction.tables import markdown_of

Document = Mapping[str, Any]
NOT_YET = "*Not in the results yet.*"


def restitution_markdown(document: Document) -> str:
    """Estimated restitution beside the oracle and the peer."""
    if "learning" not in document:
        return NOT_YET
    header = [
        "true e",
        "noise",
        "estimates",
        "standard error",
        "greatest error",
        "asked: within",
        "comes out",
    ]
    header += ["oracle: greatest error", "chunks set aside", "e by DiffCoSim"]
    rows = []
    for piece in _pieces(document, "restitution"):
        row, lines = piece["row"], piece["rows"]
        worst = max(line["error"] for line in lines)
        rows.append(
            [
                number(row["restitution"]),
                number(row["noise"]),
                ", ".join(f"{line['estimates'][0]:.4f}" for line in lines),
                number(float(np.mean([line["standard_errors"][0] for line in lines]))),
                number(worst),
                number(row["bound"]),
                yes(worst <= row["bound"]),
                number(max(line["oracle_error"] for line in lines)),
                ", ".join(str(line["set_aside"]) for line in lines),
                MISSING if row["peer"] is None else number(row["peer"]),
            ]
        )
    caption = (
        "Restitution of five balls of radius 0.1 in a unit box from 800 chunks of 5 steps of 0.01 s, by "
        "seed: each has starts and noise of its own. The oracle is told the starts, the learner is not."
    )
    return markdown_of(caption, header, rows)


def masses_markdown(document: Document) -> str:
    """Estimated ratios of masses beside the oracle."""
    if "learning" not in document:
        return NOT_YET
    header = ["noise", "estimates by seed", "greatest relative error", "asked: within", "comes out"]
    header += ["oracle: greatest error", "intervals that cover"]
    rows = []
    for piece in _pieces(document, "masses"):
        row, lines = piece["row"], piece["rows"]
        worst = max(line["error"] for line in lines)
        covered = [inside for line in lines for inside in line["covered"]]
        rows.append(
            [
                number(row["noise"]),
                "; ".join(" : ".join(["1", *(f"{x:.4g}" for x in line["estimates"])]) for line in lines),
                f"{100 * worst:.2g} %",
                f"{100 * row['bound']:g} %",
                yes(worst <= row["bound"]),
                f"{100 * max(line['oracle_error'] for line in lines):.2g} %",
                f"{sum(covered)} of {len(covered)}",
            ]
        )
    caption = "Masses 1 : 2 : 6 : 8 : 10 of the same balls, e = 1 unknown too."
    return markdown_of(caption, header, rows)


def transfer_markdown(document: Document) -> str:
    """Forecasts of models from elsewhere beside those trained in place."""
    if "transfer" not in document:
        return NOT_YET
    header = ["learned on", "forecast", "positions off by / m", "trained in place / m", "ratio"]
    header += ["the paper's error", "trained in place"]
    rows = []
    for piece in document["transfer"].values():

        def median(model: str, kind: str, piece: Mapping[str, Any] = piece) -> float:
            return float(np.median([error for line in piece["rows"] for error in line[model][kind]]))

        moved, own = median("transferred", "position"), median("in_place", "position")
        names = [_setting(piece[key]) for key in ("learned", "forecast")]
        paper = [number(median(model, "paper")) for model in ("transferred", "in_place")]
        rows.append([*names, number(moved), number(own), f"{moved / own:.2g}", *paper])
    caption = (
        "Balls that fall in a box, field and restitution learned from 400 chunks of 5 steps with noise 0.01: "
        "error of forecasts of 0.4 s against exact physics, median over 40 held-out starts. "
        "Positions: root mean square of one coordinate."
    )
    return markdown_of(caption, header, rows)


def _pieces(document: Document, quantity: str) -> list[Mapping[str, Any]]:
    return [piece for piece in document["learning"].values() if piece["row"]["quantity"] == quantity]


def _setting(setting: Mapping[str, Any]) -> str:
    size = " × ".join(f"{length:g}" for length in setting["size"])
    return f"{setting['balls']} balls, box {size}, step {setting['step_size']:g} s"


BODIES_LEARNING_TABLES = {
    "bodies-restitution": restitution_markdown,
    "bodies-masses": masses_markdown,
    "bodies-transfer": transfer_markdown,
}
"""Tables by the name of their marker."""
