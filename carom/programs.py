"""Programs that are made ahead of their first call, and kept from one process to the next.

JAX keeps compiled programs on disk but finds them by tracing the function first, which takes longer than most
fits do. Here what was traced is kept too, under a name that stands for the source of this package, the
version of JAX, and all that the function and its arguments are besides numbers.
"""

import functools
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from carom.atomic import atomic_write
from carom.errors import InputError
from carom.fingerprint import fingerprint

MOST_IN_MEMORY, MOST_ON_DISK = 32, 256
"""Programs beyond these numbers are forgotten, the oldest first."""

Program = Callable[..., Any]
_made: dict[str, Future[Program]] = {}
_lock = threading.Lock()
# One more thread: while the first program runs or is compiled, the next is traced.
_background = ThreadPoolExecutor(1, thread_name_prefix="carom-programs")


@dataclass(frozen=True)
class KeptFunction:
    """A function of trees of arrays whose compiled programs are kept, one for each set of shapes.

    Arguments:
        function: what is compiled; of arguments that are trees of arrays.
        result: a tree of the structure that it returns.
        identity: plain values that stand for everything that the function holds besides its arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> halve = KeptFunction(lambda x: {"half": x / 2}, {"half": 0}, ("halve",))
        >>> halve.prepare(np.ones(3))
        >>> float(halve(np.full(3, 5.0))["half"][1])
        2.5
    """

    function: Callable[..., Any]
    result: Any
    identity: tuple[Any, ...]

    def prepare(self, *arguments: Any) -> None:
        """Have the program for arguments of these shapes made in the background."""
        name, make = self._recipe(arguments)
        with _lock:
            if name not in _made:
                _remember(name, _background.submit(make))

    def __call__(self, *arguments: Any) -> Any:
        """The function's value; its program is made now where `prepare` was not called for it."""
        name, make = self._recipe(arguments)
        with _lock:
            program = _made.get(name)
        # What still waits for the background is sooner made here.
        if program is None or program.cancel():
            made = make()
            program = Future()
            program.set_result(made)
            with _lock:
                _remember(name, program)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
        return jax.tree.unflatten(jax.tree.structure(self.result), program.result()(*leaves))

    def _recipe(self, arguments: tuple[Any, ...]) -> tuple[str, Callable[[], Program]]:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in leaves)
        described = jax.tree.unflatten(structure, [(x.shape, str(x.dtype)) for x in shapes])
        double = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        name = fingerprint(
            _sources(), jax.__version__, jax.default_backend(), double, self.identity, described
        )

        def flat(*leaves):
            return jax.tree.leaves(self.function(*jax.tree.unflatten(structure, leaves)))

        return name, functools.partial(_make, flat, shapes, name, double)


def forget() -> None:
    """Give all programs in memory back."""
    with _lock:
        _made.clear()


def _remember(name: str, program: Future[Program]) -> None:
    _made[name] = program
    while len(_made) > MOST_IN_MEMORY:
        del _made[next(iter(_made))]


def _make(flat: Program, shapes: tuple[jax.ShapeDtypeStruct, ...], name: str, double: bool) -> Program:
    # What holds in the caller's thread alone is set in this one too.
    with jax.enable_x64(double):
        function = jax.jit(flat)
        folder = jax.config.values["jax_compilation_cache_dir"]
        # Elsewhere than on a processor, linear algebra is by calls that JAX does not promise to keep.
        if folder and jax.default_backend() == "cpu":
            function = jax.jit(_traced(function, shapes, Path(folder) / "traced" / name).call)
        return function.lower(*shapes).compile()


def _traced(function: Any, shapes: tuple[jax.ShapeDtypeStruct, ...], path: Path) -> export.Exported:
    """What an earlier process has kept, or else made now and kept."""
    try:
        return export.deserialize(bytearray(path.read_bytes()))
    except FileNotFoundError:
        pass
    except Exception:  # whatever a damaged file may cause, it is made anew
        path.unlink(missing_ok=True)
    traced = export.export(function)(*shapes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(traced.serialize())
        _prune(path.parent)
    except (OSError, InputError):  # a cache that cannot be written only costs time
        pass
    return traced


def _prune(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in files[:-MOST_ON_DISK]:
        path.unlink(missing_ok=True)


@functools.cache
def _sources() -> str:
    """A hash of this package's source: another source may be another program."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
