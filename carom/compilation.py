"""How programs are compiled: kept between runs, and with matrix products in full precision."""

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path

import jax
import platformdirs


def enable_compilation_cache() -> Path | None:
    """Switch on JAX's persistent compilation cache, unless the user has set one or `CAROM_CACHE=off`.

    `CAROM_CACHE` may name another folder. Programs are compiled for this processor's instructions, so
    machines that share a home folder get a subfolder each.
    """
    wanted = os.environ.get("CAROM_CACHE", "")
    if wanted == "off" or jax.config.values["jax_compilation_cache_dir"]:
        return None
    folder = Path(wanted or platformdirs.user_cache_dir("carom")) / f"xla-{_processor()}"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    if jax.config.values["jax_logging_level"] in (None, "NOTSET"):
        # XLA reports each cached program as built for another machine, because it counts two tuning hints of
        # its own compiler ("prefer-no-gather", "prefer-no-scatter") as processor features: pages that would
        # bury what the user should read. What really fails is raised in Python all the same.
        jax.config.update("jax_logging_level", "CRITICAL")
    return folder


def multiply_in_full_precision() -> None:
    """Have matrix products of float32 computed in float32, unless the user has chosen otherwise.

    JAX rounds their factors to 10 bits on recent GPUs, which moves a bounce by samples over a long forecast.
    """
    if jax.config.values["jax_default_matmul_precision"] is None:
        jax.config.update("jax_default_matmul_precision", "highest")


def _processor() -> str:
    """A short name of the processor's instruction set."""
    description = platform.machine() + platform.processor()
    information = Path("/proc/cpuinfo")
    if information.exists():
        flags = [
            line for line in information.read_text().splitlines() if line.startswith(("flags", "Features"))
        ]
        description += flags[0] if flags else ""
    return hashlib.sha256(description.encode()).hexdigest()[:12]


UNKNOWN_MEMORY = 2**33
"""Bytes that a device is taken to have where it does not tell."""


def device_memory() -> int:
    """Bytes that one device has: of processors, its part of what this process may take."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stated = device.memory_stats() or {}
        return int(stated.get("bytes_limit", UNKNOWN_MEMORY))
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max" where there is no limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits, default=UNKNOWN_MEMORY) // len(jax.local_devices())
