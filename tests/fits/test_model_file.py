"""Models survive a round trip to disk bit by bit."""

import json
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from carom.errors import InputError
from carom.fits import load_model, read_notes, save_model
from carom.models import ImpactNetwork, forecast
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
    assert read_notes(tmp_path / "model.safetensors") == {"seed": 3}
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


def test_files_of_the_first_schema_open(tmp_path):
    """Models had no friction, no tilted walls and no potential of pairs: read anew they forecast the same."""
    new, old = tmp_path / "new.safetensors", tmp_path / "old.safetensors"
    model = ImpactNetwork(BALL, 0.02, hidden=4, key=jax.random.key(1))
    save_model(model, new)
    with safe_open(new, framework="numpy") as file:
        header = json.loads(file.metadata()["carom"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["schema"] = 1
    for name in ("rough", "tilted"):
        del header["options"][name]
    for name in ("friction", "tilt", "pair_potential.weight", "pair_potential.bias", "pair_potential.output"):
        del tensors[name]
    save_file(tensors, old, metadata={"carom": json.dumps(header)})
    start = State(jnp.ones((1, 1)), jnp.zeros((1, 1)))
    before, after = (forecast(each, start, 50) for each in (model, load_model(old)))
    np.testing.assert_array_equal(before.position, after.position)
    header["schema"] = 2
    save_file(tensors, old, metadata={"carom": json.dumps(header)})
    with pytest.raises(InputError, match="the tensors are not those of the model"):
        load_model(old)
