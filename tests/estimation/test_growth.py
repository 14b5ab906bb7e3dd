"""Long recordings: memory that stays flat, blocks that change nothing, refusals before memory is gone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.errors import InputError
from carom.estimation import stages as latent
from carom.estimation.detection import velocity_jumps
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.solver.normal_equations import Parameters, Prior, normal_equations
from carom.estimation.solver.segments import first_states, partition

ROOT = Path(__file__).parents[2]
TRAIN = """
import json, resource, sys
import carom, jax
samples = int(sys.argv[1])
recording = carom.simulate(carom.systems.BouncingBall(), steps=samples, step_size=0.02, noise=0.05)
model = carom.models.ResNet.for_recording(recording, hidden=4, key=jax.random.key(0))
carom.fit(model, recording, carom.TrainingSettings(epochs=1, batch_size=4096))
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
"""


@pytest.mark.campaign
@pytest.mark.skipif(sys.platform != "linux", reason="other systems count peak memory in other units")
def test_memory_hardly_grows_with_the_recording():
    """A sample takes some 100 bytes, simulated and on the device; its windows alone would take 11 times 9."""
    peaks = []
    for samples in (5_000, 405_000):
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, str(samples)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(json.loads(done.stdout.splitlines()[-1]))
    assert (peaks[1] - peaks[0]) / 400_000 < 300


def bouncing(steps: int, seed: int = 1) -> carom.Recording:
    ball = carom.systems.BouncingBall(restitution=1.0)
    return carom.simulate(ball, steps=steps, step_size=0.02, noise=0.05, seed=seed)


def test_impacts_found_in_chunks_are_the_same(monkeypatch):
    recording = bouncing(700)
    whole, parts = (
        find_impacts(recording.runs, recording.scene)[0]
        for _ in (monkeypatch.setattr(velocity_jumps, "CHUNK", size) for size in (1000, 100))
    )
    assert whole.chosen.any()
    np.testing.assert_array_equal(parts.chosen, whole.chosen)


def test_start_states_do_not_look_through_impacts():
    recording = bouncing(300)
    found = find_impacts(recording.runs, recording.scene)[0]
    exact = carom.simulate(carom.systems.BouncingBall(restitution=1.0), steps=300, step_size=0.02).runs[0]
    places = partition([found], 5)
    states = first_states(recording, [found], places)
    assert np.abs(states[:, 0] - exact.position[places.sample, 0, 0]).max() < 0.2
    assert np.abs(states[:, 1] - exact.velocity[places.sample, 0, 0]).max() < 1.0


@pytest.mark.parametrize("size", [1, 3, 4, 10, 11])
def test_normal_equations_in_blocks_are_the_same(size):
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 6)
        data = jax.random.normal(keys[0], (10, 7, 2, 1))
        parameters = Parameters(jax.random.normal(keys[1], (3,)), jax.random.normal(keys[2], (10, 2)))
        prior = Prior(
            jnp.zeros(3), jnp.ones(3), jnp.zeros((10, 2)), jnp.full((10, 2), 0.1), lambda shared: shared[:1]
        )

        def residuals(shared, local, data):
            curve = jnp.sin(shared[0] * jnp.arange(7.0)) * local[0] + shared[1] * local[1]
            return curve[:, None, None] - data, shared[2:] * local[:1]

        def equations(parameters, data, size):
            return normal_equations(residuals, parameters, data, prior, block_size=size)

        whole, blocks = (
            jax.jit(equations, static_argnums=2)(parameters, data, block) for block in (None, size)
        )
        for one, other in zip(whole, blocks, strict=True):
            assert one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.campaign
def test_starts_of_a_long_recording_are_compared_on_a_part(monkeypatch):
    """And the rest is fitted as ever."""
    recording = bouncing(220)
    monkeypatch.setattr(latent, "LONG", 10)
    monkeypatch.setattr(latent, "PART", 6)
    settings = carom.Settings(hidden=8, learn=("restitution", "surfaces"))
    fit = carom.fit(recording, settings=settings)
    assert not fit.failed
    assert not fit.diagnostics.messages
    assert abs(fit.parameters[0].value - 1.0) < 0.01


def test_what_memory_does_not_hold_is_refused(monkeypatch):
    monkeypatch.setattr(latent, "device_memory", lambda: 1000)
    with pytest.raises(InputError, match="around"):
        carom.fit(bouncing(150))
