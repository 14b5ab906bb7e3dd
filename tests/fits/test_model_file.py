"""Models survive a round trip to disk bit by bit."""

import json
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from carom.errors import InputError
from carom.fits import load_fitted_model, load_model, save_model
from carom.models import forecast
from carom.types import State
from tests.models.conftest import BALL, KINDS, PLANE


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("scene", [BALL, PLANE], ids=["ball", "plane"])
def test_round_trip(name, scene, tmp_path):
    model = KINDS[name](scene, jax.random.key(1))
    save_model(model, tmp_path / "model.safetensors", notes={"seed": 3})
    loaded = load_model(tmp_path / "model.safetensors")
    assert eqx.tree_equal(model, loaded)
    assert loaded.scene == model.scene
    assert loaded.step_size == model.step_size
    assert load_fitted_model(tmp_path / "model.safetensors")[1] == {"seed": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_loaded_model_forecasts_the_same(tmp_path):
    model = KINDS["cd-lagrange, half grid"](BALL, jax.random.key(1))
    save_model(model, tmp_path / "model.safetensors")
    start = State(jnp.ones((1, 1)), jnp.zeros((1, 1)))
    expected = forecast(model, start, 50)
    found = forecast(load_model(tmp_path / "model.safetensors"), start, 50)
    np.testing.assert_array_equal(expected.position, found.position)
    np.testing.assert_array_equal(expected.contact, found.contact)


def test_a_failing_write_keeps_the_old_model(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save_model(KINDS["resnet"](BALL, jax.random.key(1)), path)
    before = path.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        save_model(KINDS["resnet"](BALL, jax.random.key(2)), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.safetensors"]


def rewritten(path: Path, **changes) -> Path:
    """The file with other entries in its header."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()["carom"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    other = path.with_name("other.safetensors")
    save_file(tensors, other, metadata={"carom": json.dumps(header | changes)})
    return other


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(KINDS["contact resnet"](BALL, jax.random.key(1)), path)
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": 2}, "written by another version of Carom; fit the recording again"),
        ({"schema": 4}, "written by another version"),
        ({"schema": None}, "written by another version"),
        ({"kind": "contact-resnt"}, "did you mean contact-resnet"),
        ({"kind": ["resnet"]}, "no usable entry kind"),
        ({"step_size": 0}, "no usable entry step_size"),
        ({"scene": 3}, "no usable entry scene"),
        ({"scene": "#" * 2**21}, "no usable entry scene"),
        ({"options": {"hidden": 10**9}}, "an option is too large"),
        ({"options": {"hidden": 3, "contact_hidden": [1] * 100_000}}, "an option is too large"),
        ({"options": {"hidden": [[[[[3]]]]]}}, "an option is too large"),
        ({"options": {"hidden": 3, "contact_hidden": [2], "color": "red"}}, "does not describe a model"),
        ({"notes": {"text": "x" * 2**24}}, "the header is larger"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:20],
)
def test_headers_are_refused_before_any_work(changes, message, saved):
    other = rewritten(saved, **changes)
    began = time.process_time()
    with pytest.raises(InputError, match=message):
        load_model(other)
    assert time.process_time() - began < 2
