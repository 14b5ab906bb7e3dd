"""Arrays on disk: safetensors with a JSON header, written whole or not at all; reading executes nothing."""

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
from carom.storage.atomic import make_folder, write_whole
from carom.storage.input_file import complaint, require_file, size

MAXIMUM_BYTES = 2**28
"""The largest file that is read, unless a caller allows more."""
MAXIMUM_HEADER_BYTES = 2**24
"""The largest header that is parsed: notes on ten thousand impacts take a hundredth of it."""

Tree = TypeVar("Tree")


def write_tensors(
    path: str | os.PathLike[str], tensors: Mapping[str, np.ndarray], header: Mapping[str, Any]
) -> None:
    """Write arrays by name; `header` is anything JSON can hold."""
    plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    content = save(plain, metadata={"carom": json.dumps(header)})
    # Not by safetensors, which reports a full disk by an error of its own.
    write_whole(path, content)


def read_tensors(
    path: Path, *, kind: str, maximum_bytes: int = MAXIMUM_BYTES
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a file that `write_tensors` wrote.

    Arguments:
        path: the file, as the user named it.
        kind: what the file should be, such as "model".
        maximum_bytes: the largest file that is read.
    """
    require_file(path, maximum_bytes=maximum_bytes, kind=kind)
    foreign = f"the file is not a whole Carom {kind}; name another, or make it again"
    try:
        with path.open("rb") as file:
            stated = int.from_bytes(file.read(8), "little")  # the length of safetensors' own header
        if min(stated, path.stat().st_size) > MAXIMUM_HEADER_BYTES:
            limit = size(MAXIMUM_HEADER_BYTES)
            raise complaint(path, f"the header is larger than {limit}, the most that is read; fit it again")
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["carom"])
            if not isinstance(header, dict):
                raise complaint(path, foreign)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise complaint(path, foreign) from error
    return header, tensors


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name; missing folders are created."""
    make_folder(path.parent)
    write_tensors(path, arrays, {})


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote; nothing in the file is executed."""
    return read_tensors(path, kind="file of arrays")[1]


def arrays_by_place(tree: Any) -> dict[str, Any]:
    """The arrays of a model by their path in it, such as `potential.weight`."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves if _is_array(leaf)}


def fill(path: Path, skeleton: Tree, tensors: Mapping[str, np.ndarray], *, models: int | None = None) -> Tree:
    """A model with the given arrays, each checked against the skeleton's.

    Arguments:
        path: the file, for error messages.
        skeleton: a model of the same structure; its arrays may be shapes alone.
        tensors: the arrays by their path in the model.
        models: the length of a leading axis, where several models are stored together.
    """
    expected = arrays_by_place(skeleton)
    # Names first: a shape alone might fit by accident.
    if expected.keys() != tensors.keys():
        name = min(expected.keys() ^ tensors.keys())
        problem = "the tensors are not those of the model in the header; fit it again"
        raise complaint(path, problem, f"tensor {name}")
    leading = () if models is None else (models,)
    for name, leaf in expected.items():
        tensor, shape = tensors[name], (*leading, *leaf.shape)
        if tensor.shape != shape or tensor.dtype.kind != "f":
            wanted = f"it should be floating point of shape {shape}, not {tensor.dtype} of {tensor.shape}"
            raise complaint(path, f"{wanted}; fit it again", f"tensor {name}")
        if not np.isfinite(tensor).all():
            raise complaint(path, "some values are not finite; fit it again", f"tensor {name}")
    leaves, structure = jax.tree.flatten(skeleton)
    loaded = iter([jnp.asarray(tensors[name]) for name in expected])
    return jax.tree.unflatten(structure, [next(loaded) if _is_array(leaf) else leaf for leaf in leaves])


def _is_array(leaf: Any) -> bool:
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)
