"""Work kept on disk while a fit goes on, so that a killed one continues where it was.

A fit is a sequence of stages, a stage a sequence of rounds. After every round the stage's file is replaced,
whole or not at all: the state that the next round starts from, and a small record of every round so far. What
lies between rounds is cheap and the same every time; a fit that is started again goes the same way, and reads
the rounds that are on disk instead of making them.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from carom.errors import InputError
from carom.storage.atomic import make_folder
from carom.storage.fingerprint import fingerprint, source_hash
from carom.storage.tensor_file import read_tensors, write_tensors

State = TypeVar("State")

MAXIMUM_BYTES = 2**33
"""A state may be as large as memory allows: whoever continues a fit has made it."""


class Progress:
    """The stages of one fit, in their order.

    Several fits may share a folder: each has files of its own, named by a fingerprint of all that it depends
    on, this code and this device included. A file that is damaged is as good as none.

    Arguments:
        folder: where checkpoints are kept, made when needed; None keeps none.
        inputs: all that the fit depends on: recordings, settings, seeds …
        tell: called after every round with the share that seems done.
    """

    def __init__(self, folder: Path | None, *inputs: Any, tell: Callable[[float], None] | None = None):
        self._folder = folder
        self._tell = tell
        self._expected = 0
        self._told = 0.0
        self._mark = ""
        if folder is not None:
            device = jax.devices()[0].device_kind
            self._mark = fingerprint(source_hash(), jax.__version__, device, *inputs)
        self._stages = 0
        self._began = time.perf_counter()
        self._earlier = 0.0

    @property
    def seconds(self) -> float:
        """Time spent, that of processes that were killed included, up to their last round."""
        return self._earlier + time.perf_counter() - self._began

    def stage(self, state: State, record: Any) -> "Stage[State]":
        """The next stage.

        Arguments:
            state: a tree like those that rounds give, its leaves of the same shapes and types.
            record: a tree like the records of rounds; only its structure counts.
        """
        number, self._stages = self._stages, self._stages + 1
        path = None
        if self._folder is not None:
            path = self._folder / f"{self._mark[:16]}-{number:02}.safetensors"
        return Stage(self, path, self._mark, state, record)

    def expect(self, stages: int) -> None:
        """Say how many stages are still to come, as far as is known."""
        self._expected = self._stages + stages

    def tell_round(self, number: int) -> None:
        """Tell how far it seems: nobody knows how many rounds a stage takes, but most take few."""
        if self._tell is not None and self._expected:
            share = (self._stages - 0.8**number) / max(self._expected, self._stages)
            self._told = max(self._told, share)
            self._tell(self._told)

    def add_earlier(self, seconds: float) -> None:
        """Count the time that a process before this one had spent."""
        self._earlier = max(self._earlier, seconds)


class Stage(Generic[State]):
    """The rounds of one stage; `Progress.stage` makes it."""

    def __init__(self, progress: Progress, path: Path | None, mark: str, state: State, record: Any):
        self._progress = progress
        self._path, self._mark = path, mark
        self._state = state
        self._like = jax.tree.map(lambda leaf: _Like(leaf), state)
        self._record = jax.tree.structure(record)
        self._records: list[Any] = []
        self._given = 0
        if path is not None and path.exists():
            with suppress(InputError, KeyError, TypeError, ValueError):
                self._load(path)

    def round(self, make: Callable[[], tuple[State, Any]]) -> tuple[State, Any]:
        """The next round, made unless it is on disk.

        Of rounds on disk only the last has its own state; those before it get that one too, and need none,
        because the rounds after them are not made anew.
        """
        if self._given == len(self._records):
            self._state, record = make()
            self._records.append(record)
            if self._path is not None:
                self._save(self._path)
        self._given += 1
        self._progress.tell_round(self._given)
        return self._state, self._records[self._given - 1]

    def _save(self, path: Path) -> None:
        make_folder(path.parent)
        tensors = {f"state.{i}": _stored(leaf) for i, leaf in enumerate(jax.tree.leaves(self._state))}
        for number, record in enumerate(self._records):
            leaves = jax.tree.leaves(record)
            tensors |= {f"record.{number}.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        header = {
            "fit": self._mark,
            "rounds": len(self._records),
            "seconds": self._progress.seconds,
            "sha256": _digest(tensors),
        }
        write_tensors(path, tensors, header)

    def _load(self, path: Path) -> None:
        header, tensors = read_tensors(path, kind="checkpoint", maximum_bytes=MAXIMUM_BYTES)
        if header["fit"] != self._mark or header["sha256"] != _digest(tensors):
            return
        likes, structure = jax.tree.flatten(self._like)
        state = [like.restored(tensors[f"state.{i}"]) for i, like in enumerate(likes)]
        records = [
            jax.tree.unflatten(
                self._record, [tensors[f"record.{number}.{i}"] for i in range(self._record.num_leaves)]
            )
            for number in range(int(header["rounds"]))
        ]
        self._progress.add_earlier(float(header["seconds"]))
        self._state, self._records = jax.tree.unflatten(structure, state), records


class _Like:
    """How a leaf of a state looks, to restore it."""

    def __init__(self, leaf: Any):
        self.shape, self.dtype = leaf.shape, leaf.dtype
        self.key = jax.random.key_impl(leaf) if _is_key(leaf) else None

    def restored(self, tensor: np.ndarray) -> jax.Array:
        array = jnp.asarray(tensor)
        if self.key is not None:
            array = jax.random.wrap_key_data(array, impl=self.key)
        if array.shape != self.shape or array.dtype != self.dtype:
            raise ValueError("this is the state of another fit")
        return array


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _stored(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _digest(tensors: Mapping[str, np.ndarray]) -> str:
    return fingerprint({name: tensors[name] for name in sorted(tensors)})
