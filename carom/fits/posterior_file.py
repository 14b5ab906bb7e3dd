"""The alternatives of a model on disk: draws from its fit, or the same training from other seeds."""

from pathlib import Path
from typing import Literal

import equinox as eqx
import numpy as np

from carom.models import AbstractModel, ImpactNetwork, LinearisedPotential, PotentialNetwork
from carom.storage.input_file import complaint
from carom.storage.tensor_file import (
    SCHEMA,
    arrays_by_place,
    fill,
    read_tensors,
    require_schema,
    write_tensors,
)

Kind = Literal["laplace", "ensemble"]
MAXIMUM_MEMBERS = 10_000


def save_alternatives(models: AbstractModel, path: Path) -> None:
    """Write models whose arrays have an axis over them before their own."""
    tensors = {place: np.asarray(array) for place, array in arrays_by_place(models).items()}
    kind: Kind = "laplace" if _is_drawn(models) else "ensemble"
    write_tensors(
        path, tensors, {"schema": SCHEMA, "kind": kind, "members": len(next(iter(tensors.values())))}
    )


def load_alternatives(path: Path, model: AbstractModel) -> AbstractModel:
    """Read the alternatives of a model that `save_alternatives` wrote."""
    header, tensors = read_tensors(path, kind="set of alternatives")
    kind = header.get("kind") if isinstance(header, dict) else None
    members = header.get("members") if isinstance(header, dict) else None
    if kind not in ("laplace", "ensemble") or type(members) is not int or not 0 < members <= MAXIMUM_MEMBERS:
        raise complaint(path, "the header does not describe alternatives of a model; fit it again")
    schema = header.get("schema", 1)  # which the first files do not state
    require_schema(path, schema)
    skeleton = model
    if kind == "laplace":
        if not (isinstance(model, ImpactNetwork) and isinstance(model.potential, PotentialNetwork)):
            raise complaint(path, "these are draws from a fit of another kind of model; fit it again")
        pair = LinearisedPotential(model.potential, model.potential)
        skeleton = eqx.tree_at(lambda m: m.potential, model, pair)
    return fill(path, skeleton, tensors, schema=schema, members=members)


def _is_drawn(models: AbstractModel) -> bool:
    return isinstance(models, ImpactNetwork) and isinstance(models.potential, LinearisedPotential)
