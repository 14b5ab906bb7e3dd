"""The compilation cache: damaged entries are deleted before JAX reads them."""

import os
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from carom.storage.program_cache import CHECKSUMS, cache_folder, configure, remove_damaged_entries


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("carom.storage.program_cache.CHECK_SECONDS", 60.0)  # the machine may be busy
    before = cache_folder()
    configure(cache=tmp_path)
    yield tmp_path
    configure(cache=before or False)


def solve(seed: int) -> jax.Array:
    matrix = np.random.default_rng(seed).standard_normal((5, 5)).astype(np.float32)
    return jax.jit(lambda x: jnp.linalg.inv(jnp.sin(x @ x.T) + 3 * jnp.eye(5, dtype=np.float32)))(matrix)


def test_entries_with_flipped_bits_are_deleted(folder):
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    expected = solve(0)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    entries = sorted(folder.glob("*-cache"))
    assert entries
    for path in entries:  # old enough to be complete
        os.utime(path, (0, 0))
    remove_damaged_entries(folder)
    entry = max(entries, key=lambda path: path.stat().st_size)
    whole = entry.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(200):
        flipped = bytearray(whole)
        flipped[generator.integers(len(whole))] ^= 1 << int(generator.integers(8))
        entry.write_bytes(flipped)
        with pytest.warns(UserWarning, match="deleted damaged entries of the compilation cache"):
            remove_damaged_entries(folder)
        assert not entry.exists()
        entry.write_bytes(whole)
        os.utime(entry, (0, 0))
        remove_damaged_entries(folder)
    (folder / CHECKSUMS).unlink()
    entry.write_bytes(whole[: len(whole) // 2])  # as by a process that was killed while writing
    os.utime(entry, (0, 0))
    with pytest.warns(UserWarning, match="damaged"):
        remove_damaged_entries(folder)
    assert not entry.exists()
    entry.write_bytes(whole)
    jax.clear_caches()
    compilation_cache.reset_cache()
    np.testing.assert_array_equal(solve(0), expected)


def test_fresh_entries_and_lost_checksums_are_accepted(folder):
    entry = folder / "jit_f-0-cache"
    entry.write_bytes(b"half")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        remove_damaged_entries(folder)  # another process may still be writing it
        entry.write_bytes(b"whole")
        remove_damaged_entries(folder)
        os.utime(entry, (0, 0))
        remove_damaged_entries(folder)
        for content in ("", "[]", "{"):
            (folder / CHECKSUMS).write_text(content)
            remove_damaged_entries(folder)
    assert entry.exists()
    entry.unlink()
    remove_damaged_entries(folder)
    assert (folder / CHECKSUMS).read_text() == "{}"


def test_the_environment_names_another_folder_or_none(tmp_path, monkeypatch):
    before = cache_folder()
    try:
        configure(cache=False)
        monkeypatch.setenv("CAROM_CACHE", "off")
        assert configure() is None
        monkeypatch.setenv("CAROM_CACHE", str(tmp_path))
        assert configure().parent == tmp_path
        monkeypatch.delenv("CAROM_CACHE")
        assert configure().parent == tmp_path  # the folder that JAX already uses
    finally:
        configure(cache=before or False)
