"""What holds for tests and doctests alike."""

import gc
import os
from importlib.metadata import version
from pathlib import Path

# Before JAX is imported, which reads them once.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
# Most of the time goes into compiling programs that run for milliseconds: optimising them does not pay. With
# LLVM's fast instruction selection, which goes with level 0, some event-driven motions lose momentum.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=0 "
    "--xla_backend_extra_options=-fast-isel=0"
    # XLA ends the process if it does not know a flag.
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)

# In one process per core, more threads only wait for each other: they took a sixth of the time.
os.environ.setdefault("NPROC", "1")  # of XLA
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of NumPy and LAPACK

import jax
import pytest

import carom
from carom.storage import program_cache

MAPS = Path("/proc/self/maps")
MAXIMUM_MAPS = 20_000

carom.configure()

# Tracing makes many short-lived objects beside millions that stay: collecting as often as Python does by
# default takes a tenth of the time.
gc.collect()
gc.freeze()
gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Release compiled programs before they take more memory maps than Linux allows a process (65 530)."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MAXIMUM_MAPS:
        program_cache.clear()
        jax.clear_caches()
        gc.collect()
