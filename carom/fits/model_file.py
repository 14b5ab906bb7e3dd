"""Models on disk: tensors with a header, from which a model is built without executing anything in the file.

The header holds the schema version, the kind of the model (its name in `carom.models.MODELS`), the options it
is constructed with, its step size, its scene (as the text of a system file) and notes on how it was fitted.
The tensors are the arrays of the model by their path in it. A model class needs nothing for this but
`options` and a constructor that takes them.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, cast

import equinox as eqx
import jax
import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from carom.data.io.system_file import SystemFile, format_system_file, parse_system_file
from carom.data.io.toml_file import Number, Positive, Whole
from carom.errors import InputError
from carom.forces import AbstractForce, AbstractLearnedPotential, LinearisedPotentialForce
from carom.mechanics import Scene
from carom.models import MODELS, AbstractModel, Mechanism
from carom.storage.input_file import complaint, shown, suggestion
from carom.storage.tensor_file import arrays_by_place, fill, read_tensors, write_tensors
from carom.version import __version__

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


SCHEMA = 3
"""Of model files and posterior files."""
MAXIMUM_SIZE, MAXIMUM_LENGTH, MAXIMUM_DEPTH = 100_000, 64, 4
"""Limits on the options of a model: sizes, lengths of lists and texts, and nesting. Checked before anything
is constructed: a list of 100 000 layer sizes would take minutes and gigabytes."""
MAXIMUM_SAMPLES = 10_000
"""Models in a posterior file."""


def save_model(
    model: AbstractModel, path: str | os.PathLike[str], *, notes: Mapping[str, Any] | None = None
) -> None:
    """Write a model; `notes` is anything JSON can hold that should travel with it."""
    kind = next((name for name, kind in MODELS.items() if type(model) is kind), None)
    if kind is None:
        raise InputError(f"Register {type(model).__name__} in carom.models.MODELS before saving it.")
    header = {
        "schema": SCHEMA,
        "kind": kind,
        "options": model.options,
        "step_size": model.step_size,
        "scene": format_system_file(SystemFile(model.scene)),
        "notes": dict(notes or {}),
        "versions": {"carom": __version__, "jax": jax.__version__, "numpy": np.__version__},
    }
    write_tensors(path, _arrays(model), header)


def load_model(path: str | os.PathLike[str]) -> AbstractModel:
    """Read a model that `save_model` wrote."""
    return read_model_file(Path(path))[0]


def read_model_file(path: Path) -> tuple[AbstractModel, Notes]:
    """The model and the notes in a file."""
    # The scene is checked as thoroughly as a system file that a user wrote.
    header, tensors = _read(path)
    scene = parse_system_file(path, header["scene"]).scene
    try:
        # Bounded before anything is constructed from them.
        options = cast(dict[str, Any], _bounded(header["options"]))
        # Shapes only: an absurd size in the header must not allocate anything.
        kind, h = header["kind"], header["step_size"]
        skeleton = eqx.filter_eval_shape(lambda: _construct(kind, scene, h, options))
    except (TypeError, ValueError, KeyError, ArithmeticError, InputError) as error:
        problem = f"the header does not describe a model ({shown(error)}); fit it again"
        raise complaint(path, problem) from error
    return fill(path, skeleton, tensors), header["notes"]


def _construct(kind: str, scene: Scene, step_size: float, options: Mapping[str, Any]) -> AbstractModel:
    """A model of this kind and shape."""
    if MODELS[kind] is Mechanism:
        return Mechanism.from_options(scene, step_size, dict(options))
    return cast(Any, MODELS[kind])(scene, step_size, **options, key=jax.random.key(0))


def save_posterior(models: AbstractModel, path: Path) -> None:
    """Write samples of a model's posterior, or the members of an ensemble, stacked along a leading axis."""
    tensors = _arrays(models)
    forces = models.forces if isinstance(models, Mechanism) else ()
    linearised = any(isinstance(force, LinearisedPotentialForce) for force in forces)
    kind: Literal["laplace", "ensemble"] = "laplace" if linearised else "ensemble"
    # All arrays of stacked models have the same leading axis.
    samples = len(next(iter(tensors.values())))
    write_tensors(path, tensors, {"schema": SCHEMA, "kind": kind, "samples": samples})


def load_posterior(path: Path, model: AbstractModel) -> AbstractModel:
    """Read the posterior of a model that `save_posterior` wrote."""
    header, tensors = read_tensors(path, kind="posterior")
    _require_schema(path, header)
    kind, samples = header.get("kind"), header.get("samples")
    if kind not in ("laplace", "ensemble") or type(samples) is not int or not 0 < samples <= MAXIMUM_SAMPLES:
        raise complaint(path, "the header does not describe the posterior of a model; fit it again")
    skeleton = model
    if kind == "laplace":
        if not isinstance(model, Mechanism):
            raise complaint(path, "these are samples for another kind of model; fit it again")
        # A sample is linear in the weights, as the Laplace approximation has it: the mode, and a difference.
        forces = tuple(
            LinearisedPotentialForce(force, force.network)
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in model.forces
        )
        skeleton = eqx.tree_at(
            lambda m: m.forces, model, forces, is_leaf=lambda x: isinstance(x, AbstractForce)
        )
    return fill(path, skeleton, tensors, models=samples)


def _arrays(model: AbstractModel) -> dict[str, np.ndarray]:
    return {name: np.asarray(array) for name, array in arrays_by_place(model).items()}


def _read(path: Path) -> tuple[Header, dict[str, np.ndarray]]:
    header, tensors = read_tensors(path, kind="model")
    _require_schema(path, header)
    checked = checked_header(path, header)
    if checked["kind"] not in MODELS:
        name = shown(checked["kind"])
        raise complaint(path, f"there is no kind of model called {name}; {suggestion(name, MODELS)}")
    return checked, tensors


def _require_schema(path: Path, header: Mapping[str, Any]) -> None:
    schema = header.get("schema")
    if schema != SCHEMA or type(schema) is not int:
        problem = "the file was written by another version of Carom; fit the recording again with `carom fit`"
        raise complaint(path, f"{problem}, or use the version that wrote it")


def _bounded(value: Any, depth: int = 0) -> Any:
    """An option from a header, its lists as tuples; `ValueError` where it is beyond the limits."""
    plain = (
        value is None
        or (isinstance(value, int) and abs(value) <= MAXIMUM_SIZE)
        or (isinstance(value, float) and math.isfinite(value))
        or (isinstance(value, str) and len(value) <= MAXIMUM_LENGTH)
    )
    if plain:
        return value
    if isinstance(value, list | dict) and len(value) <= MAXIMUM_LENGTH and depth < MAXIMUM_DEPTH:
        if isinstance(value, dict):
            return {key: _bounded(part, depth + 1) for key, part in value.items()}
        return tuple(_bounded(part, depth + 1) for part in value)
    raise ValueError("an option is too large")
