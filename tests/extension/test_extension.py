"""Parts defined outside of the package: simulated, learned with an error, reported and saved; no other file
knows."""

import inspect
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.fits import load_fit_directory, save_fit
from carom.forces import UniformGravity
from carom.storage.fingerprint import _class_name, fingerprint
from carom.systems import ComposedSystem
from tests.extension.air_drag import AirDrag
from tests.extension.soft_law import SoftRestitution
from tests.extension.spring_system import SpringBead

HERE = Path(__file__).parent
FLOOR = carom.Scene(bodies=1, dimension=1, candidates=(carom.Wall(0, (1.0,)),), restitution=0.8)
DRAG = 0.08
QUICK = carom.Settings(stepper="constraint_exact", horizons=())
"""Fits by one scheme and in one stage: fewer programs to compile."""


@pytest.fixture(scope="module")
def falling():
    """A ball with drag over a floor, by the constraint-exact step in small steps."""
    start = carom.State(jnp.full((1, 1), 4.0), jnp.zeros((1, 1)))
    forces = (UniformGravity(jnp.array([-9.81])), AirDrag(jnp.array([DRAG])))
    return ComposedSystem(FLOOR, forces, start)


@pytest.fixture(scope="module")
def recording(falling):
    return carom.simulate(falling, steps=99, step_size=0.03, noise=0.01, seed=3)


@pytest.fixture(scope="module")
def fit(recording):
    settings = replace(QUICK, learn=("air-drag", "restitution", "surfaces", "gravity"), potential="none")
    return carom.fit(recording, settings=settings)


def test_every_extension_is_one_short_file_that_the_documentation_shows():
    page = (HERE.parents[1] / "docs/extending.md").read_text(encoding="utf-8")
    for name in ("air_drag", "soft_law", "spring_system"):
        text = (HERE / f"{name}.py").read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60
        assert f"```python\n{text}```" in page


def test_a_force_of_ones_own_is_simulated(falling):
    """It loses more energy than the bounces alone explain, and halving the step changes little."""
    times = np.linspace(0, 0.8, 41)
    fine = ComposedSystem(falling.stated, falling.acting, falling.begin, substeps=64)
    coarse, finer = (system.exact(falling.start, times).position for system in (falling, fine))
    np.testing.assert_allclose(coarse, finer, atol=1e-5)
    without = ComposedSystem(FLOOR, falling.acting[:1], falling.begin).exact(falling.start, times)
    assert coarse[30, 0, 0] > without.position[30, 0, 0] + 0.01


def test_a_force_of_ones_own_is_learned_with_its_error(fit):
    found = {parameter.key: parameter for parameter in fit.parameters}
    drag, gravity = found["air-drag"], found["gravity"]
    assert drag.standard_error < 0.2 * DRAG
    assert abs(drag.value - DRAG) < 4 * drag.standard_error
    assert abs(gravity.value + 9.81) < 4 * gravity.standard_error
    assert drag.unit == "1/length"


def test_a_force_of_ones_own_is_saved_and_reported(fit, recording, tmp_path):
    directory = tmp_path / "fit"
    directory.mkdir()
    save_fit(fit, directory, recording=recording, recording_path=Path("drop.csv"), seed=0)
    loaded = load_fit_directory(directory)
    drag = next(force for force in loaded.model.forces if isinstance(force, AirDrag))
    saved = next(force for force in fit.model.forces if isinstance(force, AirDrag))
    np.testing.assert_array_equal(drag.thickness, saved.thickness)
    from carom.report import write_report

    write_report(directory, tmp_path / "page.html")
    assert "Drag of the air" in (tmp_path / "page.html").read_text()


def test_a_contact_law_of_ones_own_is_learned():
    truth = carom.Mechanism.of(
        FLOOR,
        0.03,
        forces=[UniformGravity(jnp.array([-9.81]))],
        restitution=SoftRestitution(jnp.array([20.0])),
    )
    start = carom.State(jnp.full((1, 1), 4.0), jnp.zeros((1, 1)))
    motion = carom.forecast(truth, start, 99)
    noise = 0.01 * np.random.default_rng(0).standard_normal((2, 100, 1, 1))
    run = carom.data.Run(
        0.03 * np.arange(100), np.asarray(motion.position) + noise[0], np.asarray(motion.velocity) + noise[1]
    )
    settings = replace(QUICK, learn=("soft-restitution", "surfaces", "gravity"), potential="none")
    fit = carom.fit(carom.Recording((run,), 0.03, FLOOR), settings=settings)
    law = next(parameter for parameter in fit.parameters if parameter.key == "soft-restitution")
    assert abs(law.value - 20) < 4 * law.standard_error
    assert law.standard_error < 2


def test_a_system_of_ones_own_is_recorded_and_fitted():
    bead = SpringBead()
    recording = carom.simulate(bead, steps=99, step_size=0.03, noise=0.005, seed=0)
    fit = carom.fit(recording, settings=replace(QUICK, learn=("restitution",), hidden=8, starts=1))
    values = [parameter for parameter in fit.parameters if parameter.key == "restitution"]
    assert all(abs(value.value - bead.restitution) < 4 * value.standard_error for value in values)


def test_programs_and_checkpoints_know_the_code_of_parts_from_elsewhere(monkeypatch):
    """Other code under the same name must not be served by a program that was compiled for the old one."""
    drag = AirDrag(np.zeros(1))
    before = fingerprint(drag)
    assert fingerprint(drag) == before
    monkeypatch.setattr(inspect, "getsource", lambda kind: "other code")
    _class_name.cache_clear()
    assert fingerprint(drag) != before
    _class_name.cache_clear()
