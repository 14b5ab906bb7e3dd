"""Rounds that are on disk are read and not made; what is on disk is used only where it is whole and fits."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.estimation import fit_recording
from carom.models import CDLagrangeNetwork
from carom.storage.checkpoints import Progress
from carom.storage.program_cache import CachedFunction
from carom.training import train_many


class Killed(BaseException):
    """What stands for the end of a process."""


def wander(folder: Path | None, rounds: int, *, stop: int | None = None, start: float = 1.0):
    """Two stages of `rounds` random steps each, and the rounds that were made."""
    made = []
    progress = Progress(folder, "wander", start)
    state = (jax.random.key(7), jnp.full(3, start), jnp.zeros((), jnp.int32))
    records = []
    for number in range(2):
        stage = progress.stage(state, {"sum": 0})

        def step(number: int, state):
            made.append(number)
            if len(made) == stop:
                raise Killed
            key, value, count = state
            key, other = jax.random.split(key)
            value = value * 1.01 + jax.random.normal(other, (3,))
            return (key, value, count + 1), {"sum": jnp.sum(value)}

        for _ in range(rounds):
            state, record = stage.round(lambda number=number, state=state: step(number, state))
            records.append(np.asarray(record["sum"]))
    return [np.asarray(state[1]), np.asarray(jax.random.key_data(state[0])), *records], made


def same(one, other) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_every_moment_of_ending_leaves_the_same_result(tmp_path):
    expected, made = wander(None, 4)
    assert len(made) == 8
    for stop in range(1, 9):
        folder = tmp_path / str(stop)
        with pytest.raises(Killed):
            wander(folder, 4, stop=stop)
        found, made = wander(folder, 4)
        assert same(found, expected)
        assert len(made) == 8 - (stop - 1)
        assert wander(folder, 4)[1] == []


def test_other_inputs_have_other_checkpoints(tmp_path):
    one, _ = wander(tmp_path, 2)
    other, made = wander(tmp_path, 2, start=2.0)
    assert len(made) == 4
    assert not same(one, other)
    assert wander(tmp_path, 2)[1] == wander(tmp_path, 2, start=2.0)[1] == []


def test_a_damaged_checkpoint_is_as_good_as_none(tmp_path):
    expected, _ = wander(tmp_path, 3)
    first, second = sorted(tmp_path.iterdir())
    whole = second.read_bytes()
    generator = np.random.default_rng(0)
    for place in generator.integers(0, len(whole), 40):
        second.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        found, made = wander(tmp_path, 3)
        assert same(found, expected)
        assert made in ([], [1, 1, 1])  # a changed time is none that matters
    for place in (0, 1, 9, len(whole) // 2, len(whole) - 1):
        second.write_bytes(whole[:place])
        assert same(wander(tmp_path, 3)[0], expected)
    first.unlink()
    found, made = wander(tmp_path, 3)
    assert same(found, expected)
    assert made == [0, 0, 0]


def test_a_fit_together_continues_from_any_chunk(tmp_path, monkeypatch):
    ball = carom.systems.BouncingBall()
    recording = carom.simulate(ball, steps=40, step_size=0.02, noise=0.05, seed=1)
    models = [CDLagrangeNetwork.for_recording(recording, hidden=4, key=jax.random.key(k)) for k in range(2)]
    settings = carom.TrainingSettings(epochs=30)
    expected = train_many(models, [recording], settings, seeds=[0, 1])

    def told(share: float) -> None:
        if share > 0.5:
            raise Killed

    with pytest.raises(Killed):
        train_many(models, [recording], settings, seeds=[0, 1], progress=told, checkpoints=tmp_path)
    shares: list[float] = []
    found = train_many(
        models, [recording], settings, seeds=[0, 1], progress=shares.append, checkpoints=tmp_path
    )
    for one, other in zip(expected, found, strict=True):
        leaves = (jax.tree.leaves(fit.model) + list(fit.history) for fit in (one, other))
        assert all(np.array_equal(a, b) for a, b in zip(*leaves, strict=True))


@pytest.mark.campaign
def test_a_fit_of_states_and_contacts_reads_all_its_rounds(tmp_path, monkeypatch):
    ball = carom.systems.BouncingBall(restitution=0.8)
    recording = carom.simulate(ball, steps=60, step_size=0.02, noise=0.02, starts=[ball.start], seed=1)
    settings = carom.Settings(hidden=4, starts=2)
    told: list[float] = []
    first = fit_recording(recording, settings, progress=told.append, checkpoints=tmp_path)
    assert 0 < told[0] < told[-1] < 1
    assert told == sorted(told)
    call = CachedFunction.__call__

    def refuse_rounds(self, *arguments):
        if self.identity[0] == "improve":
            pytest.fail("a round was made again")
        return call(self, *arguments)

    monkeypatch.setattr(CachedFunction, "__call__", refuse_rounds)
    second = fit_recording(recording, settings, checkpoints=tmp_path)
    assert first.history == second.history
    assert first.parameters == second.parameters
    assert second.seconds > 0.5 * first.seconds
    for a, b in zip(jax.tree.leaves(first.samples), jax.tree.leaves(second.samples), strict=True):
        assert np.array_equal(a, b)
