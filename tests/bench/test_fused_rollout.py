"""The fused kernel of the benchmarks makes the forecasts that XLA makes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.fused_rollout import contact_effects, fused_forecast, is_fusible
from carom.mechanics import Scene, Wall
from carom.models import CDLagrangeNetwork, ResNet, forecast_many
from carom.systems import BouncingBall, NewtonsCradle, Pendulum
from carom.types import State

STEPS = 15
SCENES = {
    "ball": BouncingBall(restitution=0.8).scene(velocity_grid="half"),
    "ball, sample grid": BouncingBall(restitution=1.0).scene(velocity_grid="sample"),
    "cradle": NewtonsCradle().scene(velocity_grid="sample", projection="reference_point"),
    "pendulum": Pendulum().scene(velocity_grid="half").without_contacts(),
    "plane": Scene(
        bodies=2,
        dimension=2,
        masses=(1.0, 3.0),
        candidates=(Wall(0, (0.6, 0.8), -0.1), Wall(1, (0.0, 1.0), 0.2)),
        restitution=0.7,
    ),
}


@pytest.fixture(autouse=True)
def single_precision():
    """The kernel's."""
    with jax.enable_x64(False):
        yield


@pytest.fixture(params=list(SCENES))
def scene(request) -> Scene:
    return SCENES[request.param]


def starts(scene: Scene, count: int) -> State:
    shape = 2, count, scene.bodies, scene.dimension
    return State(*map(jnp.asarray, np.random.default_rng(3).standard_normal(shape, np.float32)))


def test_the_kernel_makes_the_same_forecasts(scene):
    activation = "tanh" if scene.velocity_grid == "sample" else "softplus"
    model = CDLagrangeNetwork(
        scene, 0.02, hidden=70, activation=activation, contact_hidden=(20, 33), key=jax.random.key(1)
    )
    assert is_fusible(model)
    many = starts(scene, 130)  # more than a block, and no multiple of one
    if scene.contacts:  # in about half of the steps
        logits = jax.jit(jax.vmap(model.contact_logits))(many)
        model = eqx.tree_at(
            lambda m: m.contact.network.biases[-1], model, -jnp.asarray(np.median(logits, axis=0))
        )
    kernel = fused_forecast(model, many, STEPS, interpret=True)
    apart = forecast_many(model, many, STEPS)
    if scene.contacts:
        assert 0.2 < np.mean(apart.contact > 0.5) < 0.8
    # Where the log-odds are zero to rounding either decision is right, and what follows differs.
    decided = np.abs(np.asarray(apart.contact)[:, 1:] - 0.5).min(axis=(1, 2), initial=1.0) > 1e-5
    assert decided.mean() > 0.9
    for one, other in zip(kernel, apart, strict=True):
        np.testing.assert_allclose(one[decided], other[decided], atol=2e-5)


def test_a_contact_reflects_what_comes_in_and_drops_what_forces_add(scene):
    """Along the normal J: J(V^S + ΔV) = −e J V, whatever V and V^S are."""
    jacobian = scene.geometry.jacobian(jnp.zeros((scene.bodies, scene.dimension)))
    before, smooth = np.random.default_rng(0).normal(size=(2, scene.coordinates))
    for row, effect in zip(np.asarray(jacobian), contact_effects(scene), strict=True):
        kick = effect.matrix[scene.coordinates :, scene.coordinates :] @ np.concatenate([before, smooth])
        after = smooth + kick
        np.testing.assert_allclose(row.ravel() @ after, -scene.restitution * row.ravel() @ before, atol=1e-6)


def test_what_the_kernel_does_not_serve():
    cradle = NewtonsCradle(balls=3).scene(velocity_grid="sample")
    coupled = CDLagrangeNetwork(cradle, 0.01, hidden=8, key=jax.random.key(0))
    heavy = CDLagrangeNetwork(SCENES["ball"], 0.01, hidden=8, learn_inertia=True, key=jax.random.key(0))
    other = ResNet(SCENES["ball"], 0.01, hidden=8, key=jax.random.key(0))
    assert not any(map(is_fusible, (coupled, heavy, other)))
