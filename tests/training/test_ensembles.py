"""Ensembles in one program: rates of their own, groups that fit into memory, several devices."""

import json
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from carom.data import Recording, simulate
from carom.models import ResNet
from carom.systems import BouncingBall
from carom.training import TrainingSettings, train, train_many
from carom.training.ensembles import Partition
from carom.training.epochs import train_epochs
from tests.campaign import shortened

SETTINGS = TrainingSettings(epochs=4, learning_rate=1e-2, l2=1e-3)


def recorded(steps: int = 60, seed: int = 0) -> Recording:
    return simulate(BouncingBall(), steps=steps, step_size=0.02, noise=0.1, seed=seed)


def untrained(recording: Recording, members: int) -> list[ResNet]:
    return [ResNet.for_recording(recording, hidden=4, key=jax.random.key(i)) for i in range(members)]


def assert_close(fits, others, tolerance: float = 1e-9) -> None:
    assert len(fits) == len(others)
    for one, other in zip(fits, others, strict=True):
        for a, b in zip(*(jax.tree.leaves(fit.model) for fit in (one, other)), strict=True):
            np.testing.assert_allclose(a, b, atol=tolerance)
        np.testing.assert_allclose(one.history.state, other.history.state, rtol=tolerance)


def test_each_member_may_have_its_own_rates():
    with jax.enable_x64(True):
        recording = recorded()
        models = untrained(recording, 3)
        settings = [replace(SETTINGS, learning_rate=1e-3 * (1 + i), l2=0.01 * i) for i in range(3)]
        results = train_many(models, [recording], settings, seeds=[0, 1, 2])
        alone = [
            train(model, recording, one, seed=seed)
            for seed, (model, one) in enumerate(zip(models, settings, strict=True))
        ]
        assert_close(results, alone)
        assert [fit.settings for fit in results] == settings


@pytest.mark.parametrize("shared", shortened([True, False], [False]))
def test_groups_give_the_same_results(shared, tmp_path):
    """Seven models one by one, and again from their checkpoints."""
    with jax.enable_x64(True):
        recordings = [recorded(seed=seed) for seed in range(1 if shared else 7)]
        models = untrained(recordings[0], 7)
        whole = train_many(models, recordings, SETTINGS, seeds=range(7))
        fractions: list[float] = []
        in_groups = train_many(
            models,
            recordings,
            SETTINGS,
            seeds=range(7),
            memory=1.0,
            progress=fractions.append,
            checkpoints=tmp_path,
        )
        assert len(list(tmp_path.iterdir())) == 7
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1
        assert_close(whole, in_groups)
        again = train_many(models, recordings, SETTINGS, seeds=range(7), memory=1.0, checkpoints=tmp_path)
        for one, other in zip(in_groups, again, strict=True):
            for a, b in zip(*(jax.tree.leaves(fit.model) for fit in (one, other)), strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("members", "bytes_each", "devices"), [(1, 10, 4), (7, 30, 1), (64, 7, 4), (257, 1, 8)]
)
def test_groups_are_equal_complete_and_within_memory(members, bytes_each, devices):
    partition = Partition.of(members, bytes_each, memory=100.0, devices=devices)
    groups = partition.groups()
    assert {len(group) for group in groups} == {partition.size}
    assert sorted(set(np.concatenate(groups).tolist())) == list(range(members))
    assert partition.size % partition.devices == 0
    assert partition.size // partition.devices * bytes_each <= 100
    # No more groups than needed.
    assert len(groups) == -(-members // (partition.devices * (100 // bytes_each)))


SPLIT = """
import json, sys
import jax
from tests.training.test_ensembles import SETTINGS, train_many, recorded, untrained
jax.config.update("jax_enable_x64", True)
recording = recorded()
fits = train_many(untrained(recording, 6), [recording], SETTINGS, seeds=range(6))
leaves = [[leaf.ravel().tolist() for leaf in jax.tree.leaves(fit.model)] for fit in fits]
print(json.dumps({"devices": jax.local_device_count(), "models": leaves}))
"""


@pytest.mark.campaign
def test_several_devices_give_what_one_gives(monkeypatch):
    """Six models over four devices: two each, and two of padding."""
    found = {}
    for devices in (1, 4):
        monkeypatch.setenv("XLA_FLAGS", f"--xla_force_host_platform_device_count={devices}")
        done = subprocess.run([sys.executable, "-c", SPLIT], capture_output=True, text=True, check=True)
        found[devices] = json.loads(done.stdout.splitlines()[-1])
        assert found[devices]["devices"] == devices
    for one, other in zip(found[1]["models"], found[4]["models"], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_recordings_of_similar_length_share_a_program():
    """The padding changes no result; that is checked by hand in test_recipe."""
    before = train_epochs._cached._cache_size()
    for steps in (80, 100, 120):
        for rate in (1e-2, 1e-3):
            recording = recorded(steps)
            settings = replace(SETTINGS, learning_rate=rate, epochs=3)
            train(untrained(recording, 1)[0], recording, settings)
    assert train_epochs._cached._cache_size() == before + 1
    recording = recorded(200)
    train(untrained(recording, 1)[0], recording, replace(SETTINGS, epochs=3))
    assert train_epochs._cached._cache_size() == before + 2
