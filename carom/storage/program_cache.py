"""Programs that are made ahead of their first call, and kept from one process to the next.

JAX keeps compiled programs on disk but finds them by tracing the function first, which takes longer than most
fits do. Here what was traced is kept too, under a name that stands for the source of this package, the
versions of what it is traced by, and all that the function and its arguments are besides numbers.
"""

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import export

from carom.errors import InputError
from carom.storage.atomic import atomic_write
from carom.storage.fingerprint import fingerprint, source_hash

MOST_IN_MEMORY, MOST_ON_DISK = 32, 256
"""Programs beyond these numbers are forgotten, the oldest first."""

VERSIONS = tuple(f"{name} {version(name)}" for name in ("jax", "jaxlib", "equinox"))
"""What programs are traced by, besides this package."""

QUICKLY = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
"""How these programs are compiled on a processor: in half the time, to run as fast."""

Program = Callable[..., Any]
_made: dict[str, Future[Program]] = {}
_lock = threading.Lock()
# As many as a fit has stages: while one is compiled, the next is traced. Tracing is Python, where threads
# only slow each other down, so that is done in turn.
_background = ThreadPoolExecutor(3, thread_name_prefix="carom-programs")
_tracing = threading.Lock()


@dataclass(frozen=True)
class KeptFunction:
    """A function of trees of arrays whose compiled programs are kept, one for each set of shapes.

    Arguments:
        function: what is compiled; of arguments that are trees of arrays.
        result: a tree of the structure that it returns.
        identity: plain values that stand for everything that the function holds besides its arguments.

    Example:
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
        # What still waits for the background is sooner made here; what failed there is tried again.
        if program is None or program.cancel() or (program.done() and program.exception()):
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
            source_hash(),
            VERSIONS,
            jax.config.values["jax_default_matmul_precision"],
            jax.default_backend(),
            double,
            self.identity,
            described,
        )

        def flat(*leaves):
            return jax.tree.leaves(self.function(*jax.tree.unflatten(structure, leaves)))

        return name, functools.partial(_make, flat, shapes, name, double)


def forget() -> None:
    """Give all programs in memory back, and those up that wait to be made."""
    with _lock:
        for program in _made.values():
            program.cancel()
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
        if not folder or jax.default_backend() != "cpu":
            with _tracing:
                lowered = function.lower(*shapes)
            return _compiled(lowered)
        path = Path(folder) / "traced" / name
        try:
            return _compiled(jax.jit(export.deserialize(bytearray(path.read_bytes())).call).lower(*shapes))
        except Exception:  # missing or damaged, in whatever way that shows: it is made anew
            with _tracing:
                traced = export.export(function)(*shapes)
        program = _compiled(jax.jit(traced.call).lower(*shapes))
        _keep(traced, path)  # for which no caller should wait
        return program


def _compiled(lowered: jax.stages.Lowered) -> Program:
    if jax.default_backend() != "cpu":
        return lowered.compile()
    try:
        return lowered.compile(QUICKLY)
    except jax.errors.JaxRuntimeError:  # another version of XLA may not have this choice
        return lowered.compile()


def _keep(traced: export.Exported, path: Path) -> None:
    # A cache that cannot be written only costs time.
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_bytes(traced.serialize())
        _prune(path.parent)


def _prune(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in files[:-MOST_ON_DISK]:
        path.unlink(missing_ok=True)
