"""What holds for tests and doctests alike."""

import gc
from pathlib import Path

import jax
import pytest

from carom.storage import program_cache as programs

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Give compiled programs back before their memory maps are more than Linux allows a process (65 530)."""
    yield
    if MAPS.exists() and len(MAPS.read_bytes().splitlines()) > MOST_MAPS:
        programs.forget()
        jax.clear_caches()
        gc.collect()
