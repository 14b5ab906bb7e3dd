"""What was found, in sentences."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from carom.digits import MISSING, mean_and_error, number, to_error
from carom.evaluation.tables import Table
from carom.models import MODELS
from carom.report.findings import Findings


def overview(findings: Findings) -> list[str]:
    """What was recorded, what was fitted, and how well."""
    recording, model = findings.finished.recording, findings.model
    bodies = _count(recording.bodies, "body", "bodies")
    dimensions = _count(recording.dimension, "dimension", "dimensions")
    runs = _count(len(recording.runs), "run", "runs")
    seconds = sum(float(run.time[-1] - run.time[0]) for run in recording.runs)
    channels = "positions and velocities" if recording.has_velocity else "positions alone"
    touch = ", with touch" if recording.has_touch else ""
    told = [
        f"{bodies} in {dimensions}: {runs}, {recording.samples} samples, {number(seconds)} s of "
        f"{channels}{touch}."
    ]
    name = next(name for name, kind in MODELS.items() if type(model) is kind)
    impacts = findings.notes.get("impacts")
    if isinstance(impacts, list):
        found = sum(len(places) for places in impacts if isinstance(places, list))
        told.append(f"The recipe carom found {_count(found, 'contact', 'contacts')} in what it was given.")
    else:
        told.append(f"The model {name} was trained by the paper's recipe.")
    if findings.noise is not None:
        noise = f"The measured positions scatter by {number(findings.noise[0])}"
        if np.isfinite(findings.noise[1]):
            noise += f", the velocities by {number(findings.noise[1])}"
        told.append(noise + ".")
    told.append(_held_out(findings))
    return told


def _held_out(findings: Findings) -> str:
    error = findings.error
    if error is None:
        return (
            "Nothing was held out of the fit, so this page cannot say how well it forecasts; fit with "
            "--hold-out 0.2 to see."
        )
    if not np.isfinite(error):
        return "The forecast of what was held out leaves all bounds."
    samples = sum(len(part.future) for part in findings.finished.split.held_out)
    parts = findings.finished.split.held_out
    spread = float(np.nanstd(np.concatenate([part.future.position.ravel() for part in parts])))
    sentence = (
        f"Of {_count(samples, 'sample', 'samples')} that the fit has not seen, it forecasts positions with a "
        f"typical error of {number(error)}, where they vary by {number(spread)}"
    )
    if findings.noise is not None:
        sentence += f" and noise alone makes {number(findings.noise[0])}"
    return sentence + "."


def parameters(findings: Findings) -> tuple[list[str], Table | None]:
    """Every physical parameter in plain words, and the same as a table."""
    listed = findings.notes.get("parameters")
    if not isinstance(listed, list):
        return ["The paper's recipe gives no errors of parameters; the recipe carom does."], None
    found = [parameter for parameter in listed if _is_parameter(parameter)]
    if not found:
        return ["No physical parameter was to be estimated."], None
    rows = []
    for parameter in found:
        value, error = parameter["value"], parameter["standard_error"]
        if value is None or error is None:
            rows.append((parameter["name"], "not determined", MISSING, MISSING))
            continue
        interval = f"{to_error(parameter['low'], error)} to {to_error(parameter['high'], error)}"
        rows.append((parameter["name"], mean_and_error(value, error), interval, number(error)))
    header = ("parameter", "value ± error", "95 % interval", "error")
    caption = "Physical parameters, with the standard errors that noise and everything unknown leave them."
    return [in_words(parameter) for parameter in found], Table(caption, header, tuple(rows))


def in_words(parameter: Mapping[str, Any]) -> str:
    """One parameter for people.

    Example:
        >>> at_wall = {"name": "restitution of body 1 at the wall", "value": 0.8312, "standard_error": 0.012}
        >>> in_words(at_wall | {"low": 0.81, "high": 0.85})
        'Restitution of body 1 at the wall: 0.831 ± 0.012. A bounce keeps 83 % of the speed.'
        >>> in_words({"name": "mass of body 2 over that of body 1", "value": None, "standard_error": None})
        'Mass of body 2 over that of body 1: not determined by these data.'
    """
    name, value, error = parameter["name"], parameter["value"], parameter["standard_error"]
    title = name[:1].upper() + name[1:]
    if value is None or error is None:
        reason = str(parameter.get("words", "")).partition("(")[2].rpartition(")")[0]
        return f"{title}: not determined by these data{f' ({reason})' if reason else ''}."
    sentence = f"{title}: {mean_and_error(value, error)}."
    if name.startswith("restitution") and "," not in name:
        if parameter.get("high") == 1.0 and parameter.get("low") is not None:
            sentence = f"{title}: {number(value)}, at least {number(parameter['low'])} (95 %)."
        sentence += f" A bounce keeps {100 * value:.0f} % of the speed."
    return sentence


def doubts(findings: Findings) -> list[str]:
    """What does not fit, by the fit's own diagnosis."""
    messages = findings.notes.get("misfit")
    return [message for message in messages if isinstance(message, str)] if isinstance(messages, list) else []


def _is_parameter(parameter: Any) -> bool:
    """Notes come from a file; what is not as it should be is left out."""
    if not isinstance(parameter, dict) or not isinstance(parameter.get("name"), str):
        return False
    numbers = [parameter.get(key) for key in ("value", "standard_error", "low", "high")]
    return all(value is None or type(value) in (int, float) for value in numbers) and (
        None not in numbers or parameter["value"] is None
    )


def _count(amount: int, singular: str, plural: str) -> str:
    return f"{amount} {singular if amount == 1 else plural}"
