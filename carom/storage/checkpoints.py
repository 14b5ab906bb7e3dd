"""Intermediate states of a fit on disk, so that a killed fit continues where it was.

A fit is a sequence of stages, a stage a sequence of rounds. After every round the file of the stage is
replaced, whole or not at all: it holds the state that the next round starts from, and a small record of every
round so far. The work between rounds is cheap and deterministic; a fit that is started again repeats it, and
reads the rounds that are on disk instead of computing them.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from carom.compilation import compiler_description
from carom.errors import InputError
from carom.storage.atomic import make_folder
from carom.storage.fingerprint import fingerprint, source_hash
from carom.storage.tensor_file import read_tensors, write_tensors

State = TypeVar("State")

MAXIMUM_BYTES = 2**33
"""A state may be as large as memory allows: the process that continues a fit could have made it."""


class Progress:
    """The stages of one fit, in their order.

    Several fits may share a folder: each has files of its own, named by a fingerprint of everything it
    depends on, the source, the compiler with its flags and the device included. A damaged file is ignored.

    Arguments:
        folder: where checkpoints are kept, created when needed; None keeps none.
        inputs: everything the fit depends on: recordings, settings, seeds …
        report: called after every round with the estimated share of the work done.
    """

    def __init__(self, folder: Path | None, *inputs: Any, report: Callable[[float], None] | None = None):
        self._folder = folder
        self._report = report
        self._fingerprint = ""
        if folder is not None:
            self._fingerprint = fingerprint(source_hash(), compiler_description(), *inputs)
        self._stages = self._expected = 0
        self._reported = 0.0
        self._began = time.perf_counter()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """Time spent, including that of killed processes up to their last round."""
        return self._earlier + time.perf_counter() - self._began

    def stage(self, state: State, record: Any) -> "Stage[State]":
        """The next stage.

        Arguments:
            state: a tree with leaves of the same shapes and types as the states that rounds return.
            record: a tree of the structure of the records that rounds return.
        """
        number, self._stages = self._stages, self._stages + 1
        path = None
        if self._folder is not None:
            path = self._folder / f"{self._fingerprint[:16]}-{number:02}.safetensors"
        return Stage(self, path, self._fingerprint, state, record)

    def expect(self, stages: int) -> None:
        """Announce how many stages are still to come, as far as is known."""
        self._expected = self._stages + stages

    def finish_round(self, number: int) -> None:
        """Report the share done. The number of rounds of a stage is not known in advance; most take few."""
        if self._report is not None and self._expected:
            # Each round is taken to do a fifth of what is left of its stage.
            share = (self._stages - 0.8**number) / max(self._expected, self._stages)
            self._reported = max(self._reported, share)
            self._report(self._reported)

    def add_earlier(self, seconds: float) -> None:
        """Count the time that an earlier process spent."""
        self._earlier = max(self._earlier, seconds)


class Stage(Generic[State]):
    """The rounds of one stage; made by `Progress.stage`."""

    def __init__(self, progress: Progress, path: Path | None, mark: str, state: State, record: Any):
        self._progress = progress
        self._path, self._mark = path, mark
        self._state = state
        self._record = jax.tree.structure(record)
        self._records: list[Any] = []
        self._returned = 0
        if path is not None and path.exists():
            with suppress(InputError, KeyError, TypeError, ValueError):
                self._load(path)

    def round(self, make: Callable[[], tuple[State, Any]]) -> tuple[State, Any]:
        """The next round, computed by `make` unless it is on disk.

        Of the rounds on disk only the last has its own state. Those before it return that one too; they need
        none, because the rounds after them are not computed again.
        """
        if self._returned == len(self._records):
            self._state, record = make()
            self._records.append(record)
            if self._path is not None:
                self._save(self._path)
        self._returned += 1
        self._progress.finish_round(self._returned)
        return self._state, self._records[self._returned - 1]

    def _save(self, path: Path) -> None:
        make_folder(path.parent)
        tensors = {f"state.{i}": _stored(leaf) for i, leaf in enumerate(jax.tree.leaves(self._state))}
        for number, record in enumerate(self._records):
            leaves = jax.tree.leaves(record)
            tensors |= {f"record.{number}.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        header = {"fit": self._mark, "rounds": len(self._records), "seconds": self._progress.seconds}
        write_tensors(path, tensors, header | {"sha256": _digest(tensors)})

    def _load(self, path: Path) -> None:
        header, tensors = read_tensors(path, kind="checkpoint", maximum_bytes=MAXIMUM_BYTES)
        if header["fit"] != self._mark or header["sha256"] != _digest(tensors):
            return
        leaves, structure = jax.tree.flatten(self._state)
        state = [_restored(leaf, tensors[f"state.{i}"]) for i, leaf in enumerate(leaves)]
        rounds, parts = range(int(header["rounds"])), range(self._record.num_leaves)
        stored = [[tensors[f"record.{number}.{i}"] for i in parts] for number in rounds]
        records = [jax.tree.unflatten(self._record, leaves) for leaves in stored]
        self._progress.add_earlier(float(header["seconds"]))
        self._state, self._records = jax.tree.unflatten(structure, state), records


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _restored(like: Any, tensor: np.ndarray) -> jax.Array:
    """A leaf of the state, of the shape and type of `like`."""
    array = jnp.asarray(tensor)
    if _is_key(like):
        array = jax.random.wrap_key_data(array, impl=jax.random.key_impl(like))
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError("this is the state of another fit")
    return array


def _digest(tensors: Mapping[str, np.ndarray]) -> str:
    return fingerprint({name: tensors[name] for name in sorted(tensors)})
