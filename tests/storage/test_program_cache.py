"""Programs cached in memory and on disk: the same values, traced once, never a wrong or damaged one."""

import time
from contextlib import suppress

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from carom.storage import program_cache
from carom.storage.program_cache import CachedFunction, cache_folder, configure


@pytest.fixture
def folder(tmp_path):
    """An empty compilation cache, and the one from before afterwards."""
    before = cache_folder()
    # Not by JAX's setting alone: it opens its cache once, and would keep this one for all later tests.
    configure(cache=tmp_path)
    program_cache.clear()
    yield tmp_path
    configure(cache=before or False)
    program_cache.clear()


class Counted:
    """A function of trees that counts how often it is traced."""

    def __init__(self, power: int = 2):
        self.traced = 0
        self.power = power

    def __call__(self, tree, factor):
        self.traced += 1
        inverse = jnp.linalg.inv(tree["matrix"])
        return {"solved": factor * inverse @ tree["vector"] ** self.power, "sum": jnp.sum(inverse)}

    def kept(self) -> CachedFunction:
        return CachedFunction(self, {"solved": 0, "sum": 0}, ("counted", self.power))


def arguments(size: int, seed: int = 0):
    generator = np.random.default_rng(seed)
    matrix = np.eye(size) + 0.1 * generator.standard_normal((size, size))
    return {"matrix": matrix, "vector": generator.standard_normal(size)}, 3.0


def expected(size: int, seed: int = 0, power: int = 2):
    tree, factor = arguments(size, seed)
    return factor * np.linalg.solve(tree["matrix"], tree["vector"] ** power)


def test_traced_once_for_a_shape_even_by_another_process(folder):
    with jax.enable_x64(True):
        function = Counted()
        for seed in range(3):
            found = function.kept()(*arguments(4, seed))
            np.testing.assert_allclose(found["solved"], expected(4, seed), rtol=1e-12)
        function.kept()(*arguments(5))
        assert function.traced == 2
        program_cache.clear()  # as in another process
        again = Counted()
        np.testing.assert_allclose(again.kept()(*arguments(4, 7))["solved"], expected(4, 7), rtol=1e-12)
        assert again.traced == 0


def test_prepared_programs_are_not_traced_again(folder):
    with jax.enable_x64(True):
        function = Counted()
        function.kept().prepare(*arguments(3))
        function.kept().prepare(*arguments(6))
        np.testing.assert_allclose(function.kept()(*arguments(6))["solved"], expected(6), rtol=1e-12)
        np.testing.assert_allclose(function.kept()(*arguments(3))["solved"], expected(3), rtol=1e-12)
        assert function.traced == 2


def test_another_function_or_precision_is_another_program(folder):
    with jax.enable_x64(True):
        Counted().kept()(*arguments(4))
        cubed = Counted(power=3)
        np.testing.assert_allclose(cubed.kept()(*arguments(4))["solved"], expected(4, power=3), rtol=1e-12)
        assert cubed.traced == 1
    single = Counted()
    with jax.enable_x64(False):
        assert single.kept()(*arguments(4))["solved"].dtype == np.float32


def test_damaged_files_are_traced_again_with_a_warning(folder):
    with jax.enable_x64(True):
        Counted().kept()(*arguments(4))
        (path,) = (folder / "traced").iterdir()
        whole = path.read_bytes()
        generator = np.random.default_rng(0)
        flipped = [bytearray(whole) for _ in range(6)]
        for content in flipped:
            content[generator.integers(len(whole))] ^= 1 << int(generator.integers(8))
        for damaged in (b"", whole[: len(whole) // 2], *flipped):
            path.write_bytes(damaged)
            program_cache.clear()
            function = Counted()
            with pytest.warns(UserWarning, match="a program in the cache was damaged; it is traced again"):
                found = function.kept()(*arguments(4))
            np.testing.assert_allclose(found["solved"], expected(4), rtol=1e-12)
            assert function.traced == 1
            assert path.read_bytes() != damaged


def test_flags_of_the_compiler_are_part_of_the_name(folder, monkeypatch):
    with jax.enable_x64(True):
        Counted().kept()(*arguments(4))
        monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        function = Counted()
        function.kept()(*arguments(4))
    assert function.traced == 1


def test_failures_are_raised_and_not_cached(folder):
    def broken(x):
        raise ValueError("not today")

    function = CachedFunction(broken, 0, ("broken",))
    function.prepare(np.ones(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="not today"):
            function(np.ones(2))


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path):
    before = cache_folder()
    (tmp_path / "file").write_text("no folder")
    program_cache.clear()
    try:
        configure(cache=tmp_path / "file")
        with jax.enable_x64(True):
            found = Counted().kept()(*arguments(4))
    finally:
        configure(cache=before or False)
        program_cache.clear()
    np.testing.assert_allclose(found["solved"], expected(4), rtol=1e-12)


def test_failures_in_the_background_are_tried_again(folder):
    attempts = []

    def fails_once(x):
        attempts.append(x)
        if len(attempts) == 1:
            raise MemoryError("not now")
        return 2 * x

    function = CachedFunction(fails_once, 0, ("fails once",))
    function.prepare(np.ones(2))
    while not attempts:
        time.sleep(0.01)
    with suppress(MemoryError):  # unless the failure is known by now
        function(np.ones(2))
    np.testing.assert_array_equal(function(np.ones(2)), [2.0, 2.0])


def test_old_files_make_room(folder, monkeypatch):
    monkeypatch.setattr(program_cache, "MAXIMUM_ON_DISK", 2)
    for size in (2, 3, 4):
        Counted().kept()(*arguments(size))
    assert len(list((folder / "traced").iterdir())) == 2
