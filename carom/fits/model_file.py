"""Models on disk: tensors with a header, from which a model is built without running anything of the file.

The header holds the schema version, the model's name, options, step size and scene (as the text of a system
file), and notes on how it was trained. The tensors are the model's arrays by their place in the model.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax
import numpy as np

from carom.data.io.system_file import Learn, SystemFile, format_system_file, parse_system_file
from carom.errors import InputError
from carom.models import MODELS, AbstractModel
from carom.storage.input_file import complaint, shown, suggestion
from carom.storage.tensor_file import (
    SCHEMA,
    arrays_by_place,
    fill,
    read_tensors,
    require_schema,
    write_tensors,
)
from carom.version import __version__

HEADER_KEYS = ("schema", "model", "options", "step_size", "system", "notes", "versions")


def save_model(
    model: AbstractModel, path: str | os.PathLike[str], *, notes: Mapping[str, Any] | None = None
) -> None:
    """Write a model; `notes` is anything JSON can hold that should travel with it."""
    name = next((name for name, kind in MODELS.items() if type(model) is kind), None)
    if name is None:
        raise InputError(f"Register {type(model).__name__} in carom.models.MODELS before saving it.")
    header = {
        "schema": SCHEMA,
        "model": name,
        "options": model.options,
        "step_size": model.step_size,
        "system": format_system_file(SystemFile(model.scene, columns=None, step_size=None, learn=Learn())),
        "notes": dict(notes or {}),
        "versions": {"carom": __version__, "jax": jax.__version__, "numpy": np.__version__},
    }
    write_tensors(path, {place: np.asarray(array) for place, array in arrays_by_place(model).items()}, header)


def load_model(path: str | os.PathLike[str]) -> AbstractModel:
    """Read a model that `save_model` wrote."""
    path = Path(path)
    header, tensors = _read(path)
    options = header["options"]
    scene = parse_system_file(path, header["system"]).scene
    construct = cast(Any, MODELS[header["model"]])
    try:
        if "contact_hidden" in options:
            options["contact_hidden"] = tuple(options["contact_hidden"])
        # Shapes only: an absurd size in the header must not allocate anything.
        skeleton = eqx.filter_eval_shape(
            lambda: construct(scene, float(header["step_size"]), **options, key=jax.random.key(0))
        )
    except (TypeError, ValueError, KeyError, ArithmeticError, InputError) as error:
        raise complaint(
            path, f"the header does not describe a model ({shown(error)}); save it again"
        ) from error
    return fill(path, skeleton, tensors, schema=header["schema"])


def read_notes(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The notes that were saved with a model."""
    return _read(Path(path))[0]["notes"]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header, tensors = read_tensors(path, kind="model")
    _check_header(path, header)
    return header, tensors


def _check_header(path: Path, header: Any) -> None:
    if not isinstance(header, dict) or any(key not in header for key in HEADER_KEYS):
        raise complaint(path, f"the header needs the keys {', '.join(HEADER_KEYS)}; save the model again")
    require_schema(path, header["schema"])
    if not isinstance(header["model"], str) or header["model"] not in MODELS:
        name = shown(header["model"])
        raise complaint(path, f"there is no model called {name}; {suggestion(name, MODELS)}")
    if not isinstance(header["options"], dict) or not isinstance(header["notes"], dict):
        raise complaint(path, "options and notes of the header must be objects; save the model again")
    step_size = header["step_size"]
    if (
        isinstance(step_size, bool)
        or not isinstance(step_size, int | float)
        or not 0 < step_size < float("inf")
    ):
        raise complaint(path, "the step size in the header must be a positive number; save the model again")
    if not isinstance(header["system"], str):
        raise complaint(
            path, "the system in the header must be the text of a system file; save the model again"
        )
