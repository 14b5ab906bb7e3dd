"""Functions whose traced programs are kept in memory and on disk, and compiled ahead of their first call.

JAX keeps compiled programs on disk but finds them by tracing the function first, which takes longer than most
fits do. Here the traced program is kept as well, under a name made from the source of this package, the
compiler and its flags, and everything about the function and its arguments except their values.

JAX's own cache is switched on by request, and checked before it is used.
"""

import functools
import hashlib
import json
import os
import platform
import random
import threading
import time
import warnings
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import platformdirs
from jax import export
from jax.experimental.compilation_cache import compilation_cache

from carom.compilation import compiler_description, full_precision
from carom.errors import InputError
from carom.storage.atomic import write_whole
from carom.storage.fingerprint import fingerprint, source_hash

CHECKSUMS = "checksums.json"
CHECK_SECONDS = 0.3
"""The longest that checking may delay the start of a command; a few hundred entries take 0.1 s."""
WRITING_SECONDS = 60.0
"""Entries younger than this may still be in the making by another process: they are hashed next time."""


def configure(*, cache: bool | Path = True) -> Path | None:
    """Choose whether compiled programs are kept on disk; the command line does, `import carom` does not.

    This changes settings of JAX in this process: the folder of its persistent compilation cache and the
    thresholds from which programs are kept. It also raises JAX's logging level to `CRITICAL`, unless the user
    has set one, because XLA reports every program that it finds in the cache as built for another machine: it
    counts two tuning hints of its own compiler ("prefer-no-gather", "prefer-no-scatter") as processor
    features. Failures are raised as Python exceptions all the same.

    Arguments:
        cache: True for the folder that JAX was told to use, else the one that the environment variable
            `CAROM_CACHE` names (`off` for none), else one in the user's cache folder; a path for a folder of
            your own, which must not be shared by processors of different kinds; False for no cache.

    Returns:
        The folder in use, None without one.

    Example:
        >>> import carom
        >>> carom.configure()  # doctest: +SKIP
        PosixPath('/home/me/.cache/carom/xla-ba2edf4442d8')
    """
    folder = _default_folder() if cache is True else None if cache is False else Path(cache)
    if folder == cache_folder():
        return folder
    jax.config.update("jax_compilation_cache_dir", None if folder is None else str(folder))
    compilation_cache.reset_cache()  # JAX reads the setting only once
    if folder is None:
        return None
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if jax.config.values["jax_logging_level"] in (None, "NOTSET"):
        jax.config.update("jax_logging_level", "CRITICAL")
    remove_damaged_entries(folder)
    return folder


def cache_folder() -> Path | None:
    """The folder of JAX's persistent compilation cache, None where it is off."""
    folder = jax.config.values["jax_compilation_cache_dir"]
    return Path(folder) if folder else None


def remove_damaged_entries(folder: Path) -> None:
    """Delete compiled programs that are truncated, or whose SHA-256 differs from when they were first seen.

    JAX does not write entries atomically: a killed process or a full disk leaves a truncated one, which JAX
    can neither read nor replaces. Nor does it check what it reads: entries compressed by zlib have a weak
    checksum, those by Zstandard, which JAX prefers where it is installed, have none, and machine code with a
    flipped bit is executed.
    """
    deadline = time.monotonic() + CHECK_SECONDS
    known = _read_checksums(folder)
    # New entries first, then the others in random order, so that each gets its turn in a large cache.
    entries = sorted(folder.glob("*-cache"), key=lambda path: (path.name in known, random.random()))
    found = {path.name: known[path.name] for path in entries if path.name in known}
    damaged = 0
    for path in entries:
        if time.monotonic() > deadline:
            break
        with suppress(OSError):  # deleted by another process, or unreadable, which JAX reports if it matters
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if path.name not in known and time.time() - path.stat().st_mtime < WRITING_SECONDS:
                continue
            if known.get(path.name, digest) != digest or (path.name not in known and _is_truncated(content)):
                path.unlink()
                damaged += 1
                found.pop(path.name, None)
            else:
                found[path.name] = digest
    if damaged:
        message = f"{folder}: deleted damaged entries of the compilation cache ({damaged}); their programs "
        warnings.warn(message + "are compiled again.", stacklevel=3)
    if found != known:
        with suppress(OSError, InputError):  # a cache that cannot be written only costs time
            write_whole(folder / CHECKSUMS, json.dumps(found))


def _is_truncated(content: bytes) -> bool:
    if not content.startswith(b"\x78"):  # Zstandard, which this Python may not be able to read
        return not content
    try:
        zlib.decompress(content)
    except zlib.error:
        return True
    return False


def _read_checksums(folder: Path) -> dict[str, str]:
    # Without its checksums, or with damaged ones, a cache is as good as one seen for the first time.
    with suppress(OSError, ValueError, RecursionError):
        stored = json.loads((folder / CHECKSUMS).read_text())
        if isinstance(stored, dict):
            return stored
    return {}


def _default_folder() -> Path | None:
    if chosen := cache_folder():
        return chosen
    wanted = os.environ.get("CAROM_CACHE", "")
    if wanted == "off":
        return None
    # Programs are compiled for this processor's instructions, and machines may share a home folder.
    return Path(wanted or platformdirs.user_cache_dir("carom")) / f"xla-{_processor()}"


def _processor() -> str:
    """A short name of the processor's instruction set."""
    description = platform.machine() + platform.processor()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        description += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(description.encode()).hexdigest()[:12]


MAXIMUM_IN_MEMORY, MAXIMUM_ON_DISK = 32, 256
"""Programs beyond these numbers are dropped, the oldest first."""

FAST_COMPILATION = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
"""Options of XLA on CPUs that halve the compilation time of these programs; they run as fast. What the
environment variable `XLA_FLAGS` says instead holds."""

_DIGEST = hashlib.sha256().digest_size
Program = Callable[..., Any]
_programs: dict[str, Future[Program]] = {}
_lock = threading.Lock()
# As many as a fit has stages: while one is compiled, the next is traced. Tracing is Python, where threads
# only slow each other down, so one program is traced at a time.
_background = ThreadPoolExecutor(3, thread_name_prefix="carom-programs")
_tracing = threading.Lock()


@dataclass(frozen=True)
class CachedFunction:
    """A function of trees of arrays whose compiled programs are kept, one for each set of shapes.

    Arguments:
        function: takes and returns trees of arrays.
        result: a tree of the structure that it returns.
        identity: plain values that identify everything the function holds besides its arguments.

    Example:
        >>> halve = CachedFunction(lambda x: {"half": x / 2}, {"half": 0}, ("halve",))
        >>> halve.prepare(np.ones(3))
        >>> float(halve(np.full(3, 5.0))["half"][1])
        2.5
    """

    function: Callable[..., Any]
    result: Any
    identity: tuple[Any, ...]

    def prepare(self, *arguments: Any) -> None:
        """Start compiling the program for arguments of these shapes in the background."""
        name, make = self._plan(arguments)
        with _lock:
            if name not in _programs:
                _store(name, _background.submit(make))

    def __call__(self, *arguments: Any) -> Any:
        """Evaluate the function; its program is compiled now unless `prepare` was called for it."""
        name, make = self._plan(arguments)
        with _lock:
            program = _programs.get(name)
        # A program still queued in the background is sooner made here; one that failed there is tried again.
        if program is None or program.cancel() or (program.done() and program.exception()):
            made = make()
            program = Future()
            program.set_result(made)
            with _lock:
                _store(name, program)
        # NumPy's, whose types are those that the program was compiled for.
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
        return jax.tree.unflatten(jax.tree.structure(self.result), program.result()(*leaves))

    def _plan(self, arguments: tuple[Any, ...]) -> tuple[str, Callable[[], Program]]:
        leaves, structure = jax.tree.flatten(arguments)
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype) for x in leaves)
        described = jax.tree.unflatten(structure, [(x.shape, str(x.dtype)) for x in shapes])
        double = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
        name = fingerprint(source_hash(), compiler_description(), double, self.identity, described)

        def flat(*leaves):
            return jax.tree.leaves(self.function(*jax.tree.unflatten(structure, leaves)))

        return name, functools.partial(_make, flat, shapes, name, double)


def clear() -> None:
    """Release all programs in memory, and cancel those that wait to be compiled."""
    with _lock:
        for program in _programs.values():
            program.cancel()
        _programs.clear()


def _store(name: str, program: Future[Program]) -> None:
    _programs[name] = program
    while len(_programs) > MAXIMUM_IN_MEMORY:
        del _programs[next(iter(_programs))]


def _make(flat: Program, shapes: tuple[jax.ShapeDtypeStruct, ...], name: str, double: bool) -> Program:
    # These settings hold for the caller's thread alone, and this may be another one.
    with jax.enable_x64(double), full_precision():
        function = jax.jit(flat)
        folder = cache_folder()
        # On other devices linear algebra is done by calls that JAX does not promise to keep stable.
        if folder is None or jax.default_backend() != "cpu":
            with _tracing:
                lowered = function.lower(*shapes)
            return _compile(lowered)
        path = folder / "traced" / name
        traced = _read(path)
        if traced is not None:
            return _compile(jax.jit(traced.call).lower(*shapes))
        with _tracing:
            traced = export.export(function)(*shapes)
        program = _compile(jax.jit(traced.call).lower(*shapes))
        _write(traced, path)
        return program


def _compile(lowered: jax.stages.Lowered) -> Program:
    if jax.default_backend() != "cpu":
        return lowered.compile()
    flags = os.environ.get("XLA_FLAGS", "")
    try:
        return lowered.compile({name: value for name, value in FAST_COMPILATION.items() if name not in flags})
    except jax.errors.JaxRuntimeError:  # another version of XLA may not have these options
        return lowered.compile()


def _read(path: Path) -> export.Exported | None:
    """The traced program in a file; None where there is none, or where its bytes are not those written."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    # Checked before JAX parses a byte: a program with a flipped bit may compute something else, or crash.
    digest, payload = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(payload).digest() != digest:
        message = f"{path.parent}: a program in the cache was damaged; it is traced again."
        warnings.warn(message, stacklevel=2)
        return None
    return export.deserialize(bytearray(payload))


def _write(traced: export.Exported, path: Path) -> None:
    # A cache that cannot be written only costs time.
    with suppress(OSError, InputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        payload = traced.serialize()
        write_whole(path, hashlib.sha256(payload).digest() + payload)
        files = sorted(path.parent.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in files[:-MAXIMUM_ON_DISK]:
            old.unlink(missing_ok=True)
