"""Arrays on disk: safetensors with a JSON header, written whole or not at all; reading runs nothing."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from carom.errors import InputError
from carom.storage.atomic import atomic_write
from carom.storage.input_file import complaint, require_file, shown

MAXIMUM_BYTES = 2**28
"""The largest file that is read, unless a caller allows more."""
SCHEMA = 2
"""Of the files of models; raised when a model has other arrays."""
ADDED = {
    2: ("pair_potential.weight", "pair_potential.bias", "pair_potential.output", "friction", "tilt"),
}
"""The arrays that came with a schema; in older files they are zeros, which change nothing."""

Tree = TypeVar("Tree")


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write arrays by name; `header` is anything JSON can hold."""
    plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    content = save(plain, metadata={"carom": json.dumps(header)})
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)  # safetensors' own writing reports a full disk by an error of its own


def read_tensors(
    path: Path, *, kind: str, maximum_bytes: int = MAXIMUM_BYTES
) -> tuple[Any, dict[str, np.ndarray]]:
    """The header, whatever it is, and the arrays of a file that `write_tensors` wrote.

    Arguments:
        path: the file, as the user named it.
        kind: what the file should be, such as "model".
        maximum_bytes: the largest file that is read.
    """
    require_file(path, maximum_bytes=maximum_bytes, kind=kind)
    foreign = f"the file is not a whole Carom {kind}; name one that `carom fit` wrote"
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            if "carom" not in metadata:
                raise complaint(path, foreign)
            header = json.loads(metadata["carom"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise complaint(path, foreign) from error
    return header, tensors


def require_schema(path: Path, schema: Any) -> None:
    """Complain where this version does not know how a file is laid out."""
    if type(schema) is not int or not 1 <= schema <= SCHEMA:
        raise complaint(
            path,
            f"the file has schema {shown(schema)} and this version of Carom reads 1 to {SCHEMA}; "
            "use the version that wrote it",
        )


def arrays_by_place(tree: Any) -> dict[str, Any]:
    """The arrays of a model by their place, such as `potential.weight`."""
    places = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(place).lstrip("."): leaf for place, leaf in places if _is_array(leaf)}


def fill(
    path: Path,
    skeleton: Tree,
    tensors: Mapping[str, np.ndarray],
    *,
    schema: int = SCHEMA,
    members: int | None = None,
) -> Tree:
    """A model from its arrays, each checked against the skeleton's.

    Arguments:
        path: the file, for complaints.
        skeleton: a model of the same shape; its arrays may be shapes alone.
        tensors: the arrays by place.
        schema: of the file.
        members: the length of an axis before the others, where several models are stored together.
    """
    expected = arrays_by_place(skeleton)
    before = () if members is None else (members,)
    new = [place for since, places in ADDED.items() if since > schema for place in places]
    zeros = {
        place: np.zeros((*before, *expected[place].shape), np.float32) for place in new if place in expected
    }
    tensors = {**zeros, **tensors}
    if expected.keys() != tensors.keys():
        odd = sorted(expected.keys() ^ tensors.keys())[0]
        raise complaint(
            path, "the tensors are not those of the model in the header; save it again", f"tensor {odd}"
        )
    for place, leaf in expected.items():
        tensor, shape = tensors[place], (*before, *leaf.shape)
        if tensor.shape != shape or tensor.dtype.kind != "f":
            wanted = f"it should be floating point of shape {shape}, not {tensor.dtype} of {tensor.shape}"
            raise complaint(path, f"{wanted}; save the model again", f"tensor {place}")
        if not np.isfinite(tensor).all():
            raise complaint(path, "some weights are not finite; train the model again", f"tensor {place}")
    leaves, structure = jax.tree.flatten(skeleton)
    loaded = iter([jnp.asarray(tensors[place]) for place in expected])
    return jax.tree.unflatten(structure, [next(loaded) if _is_array(leaf) else leaf for leaf in leaves])


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
