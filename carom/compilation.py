"""How Carom's programs are compiled: matrix products in full precision, within the memory of the device."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import equinox as eqx
import jax
import jaxlib.version


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute products of float32 matrices in float32, unless the user has chosen a precision for JAX.

    On recent GPUs JAX rounds the factors to 10 bits by default, which moves a bounce by several samples over
    a long forecast. Precision is chosen when a program is traced, so that every compiled entry point is
    decorated inside its `jit`; the JAX configuration of the calling process is left alone.

    Example:
        >>> import jax.numpy as jnp
        >>> square = jax.jit(full_precision()(lambda x: x @ x))
        >>> "HIGHEST" in square.lower(jnp.ones((2, 2))).as_text()
        True
    """
    with jax.default_matmul_precision(_precision()):
        yield


def compiler_description() -> tuple[str, ...]:
    """What decides the last bits of a result besides the source and the inputs: compiler, flags, device."""
    return (
        f"jax {jax.__version__}",
        f"jaxlib {jaxlib.version.__version__}",
        f"equinox {eqx.__version__}",
        f"XLA_FLAGS {' '.join(sorted(os.environ.get('XLA_FLAGS', '').split()))}",
        f"precision {_precision()}",
        f"device {jax.devices()[0].device_kind}",
    )


def _precision() -> str:
    return jax.config.values["jax_default_matmul_precision"] or "highest"


UNKNOWN_MEMORY = 2**33
"""Bytes of memory assumed for a device that does not report them."""


def device_memory() -> int:
    """Bytes of memory of one device; on CPUs, its share of what this process may use."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stated = device.memory_stats() or {}
        return int(stated.get("bytes_limit", UNKNOWN_MEMORY))
    # In a container the machine has more memory than the process may use.
    limits = []
    with suppress(AttributeError, ValueError, OSError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(ValueError, OSError):  # "max" where there is no limit
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits, default=UNKNOWN_MEMORY) // len(jax.local_devices())
