"""JAX's persistent compilation cache: switched on by request, and checked before it is used."""

import hashlib
import json
import os
import platform
import random
import time
import warnings
import zlib
from contextlib import suppress
from pathlib import Path

import jax
import platformdirs
from jax.experimental.compilation_cache import compilation_cache

from carom.errors import InputError
from carom.storage.atomic import write_whole

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
        warnings.warn(
            f"{folder}: deleted damaged entries of the compilation cache ({damaged}); their programs are "
            "compiled again.",
            stacklevel=3,
        )
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
