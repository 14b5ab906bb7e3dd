"""The header of a model file and its notes on the fit, checked when they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from carom.data.io.toml_file import Number, Positive, Whole
from carom.storage.input_file import complaint

MAXIMUM_SCENE = 2**20
"""Characters of the scene, as for system files."""
_Index = Annotated[Whole, Field(ge=0, lt=2**31)]


class ParameterNote(TypedDict):
    """One estimated parameter, as `carom.estimation.parameters.report.Parameter`."""

    name: str
    value: Number | None
    standard_error: Number | None
    low: Number | None
    high: Number | None
    words: str
    unit: NotRequired[str]


class Notes(TypedDict, total=False):
    """How a model was fitted, and what was found; all of it may be missing.

    Impacts are pairs of a step and a contact, by run.
    """

    __pydantic_config__ = ConfigDict(extra="allow")  # pyright: ignore[reportGeneralTypeIssues]

    recording: str
    recording_sha256: str
    seed: Whole
    hold_out: Annotated[Number, Field(ge=0, lt=1)]
    names: list[str]
    start: list[Annotated[Number, Field(gt=-1e38, lt=1e38)]]
    noise: tuple[Positive | None, Positive | None]
    parameters: list[ParameterNote]
    impacts: list[list[tuple[_Index, _Index]]]
    diagnostics: list[str]
    samples: dict[str, Whole]
    log_likelihood: Number


class Header(TypedDict):
    """The header of a model file."""

    kind: str
    options: dict[str, Any]
    step_size: Positive
    scene: Annotated[str, Field(max_length=MAXIMUM_SCENE)]
    notes: Notes


_HEADER = TypeAdapter(Header)


def checked_header(path: Path, header: Mapping[str, Any]) -> Header:
    """The header of a model file with entries of these types; `path` is for error messages."""
    try:
        return _HEADER.validate_python(header)
    except ValidationError as error:
        place = ", ".join(map(str, error.errors(include_url=False)[0]["loc"]))
        raise complaint(path, f"the header has no usable entry {place}; fit it again") from None


def noise_from_notes(notes: Notes) -> tuple[float, float] | None:
    """Standard deviations of positions and velocities, where the fit estimated them."""
    position, velocity = notes.get("noise", (None, None))
    return None if position is None else (position, float("nan") if velocity is None else velocity)
