"""Models under test: every kind, on scenes with one, several and no contacts, in double precision."""

from dataclasses import replace

import jax
import pytest

from carom.mechanics import Pair, Scene, Wall
from carom.models import CDLagrangeNetwork, ContactResNet, ResNet, VariationalIntegratorNetwork

BALL = Scene(1, 1, (Wall(0, (1.0,)),), restitution=0.8)
PLANE = Scene(
    2,
    2,
    (Wall(0, (0.0, 1.0)), Wall(1, (0.6, 0.8)), Pair(0, 1, 0.3)),
    masses=(1.0, 0.5),
    restitution=0.7,
)

KINDS = {
    "cd-lagrange, half grid": lambda scene, key: CDLagrangeNetwork(
        scene, 0.02, hidden=12, contact_hidden=(8, 8), key=key
    ),
    "cd-lagrange, sample grid": lambda scene, key: CDLagrangeNetwork(
        _on(scene, "sample"), 0.02, hidden=12, activation="softplus", key=key
    ),
    "cd-lagrange, inertia and damping": lambda scene, key: CDLagrangeNetwork(
        scene, 0.02, hidden=12, learn_inertia=True, learn_damping=True, key=key
    ),
    "cd-lagrange, no contact": lambda scene, key: CDLagrangeNetwork(
        scene.without_contacts(), 0.02, hidden=12, key=key
    ),
    "velocity verlet": lambda scene, key: VariationalIntegratorNetwork(scene, 0.02, hidden=12, key=key),
    "stormer verlet": lambda scene, key: VariationalIntegratorNetwork(
        scene, 0.02, hidden=12, scheme="stormer_verlet", key=key
    ),
    "resnet": lambda scene, key: ResNet(scene, 0.02, hidden=12, key=key),
    "contact resnet": lambda scene, key: ContactResNet(scene, 0.02, hidden=12, contact_hidden=(8,), key=key),
}


def _on(scene: Scene, grid) -> Scene:
    return replace(scene, velocity_grid=grid)


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=["ball", "plane"])
def scene(request):
    return {"ball": BALL, "plane": PLANE}[request.param]
