"""Which entries share a value: laws, radii, planes and their normals; and from values to a mechanism and
back."""

import equinox as eqx
import numpy as np
import pytest

from carom.contact_laws import CoulombFriction
from carom.errors import InputError
from carom.estimation.parameters.free import FreeParameters, with_values
from carom.estimation.parameters.sharing import groups_of, planes_of
from carom.mechanics import Pair, Scene, Wall, at
from carom.models import Mechanism
from carom.systems import Billiards

SCENE = Billiards(radii=(0.1, 0.2, 0.15), size=(2.0, 1.0)).scene()


def free(scene: Scene, *learn: str, share="each") -> FreeParameters:
    mechanism = Mechanism.of(scene, 0.01, friction=CoulombFriction.for_scene(scene)).with_tilt()
    return FreeParameters.of(mechanism, learn, share=share)


def test_radii_and_planes_make_every_gap():
    """Other radii and another box shift the gaps by what the map says."""
    radii, size = np.array([0.13, 0.17, 0.15]), (2.05, 0.9)
    other = Billiards(radii=tuple(radii.tolist()), size=size).scene()
    offsets = [np.array([c.offset for c in scene.candidates]) for scene in (SCENE, other)]
    changes = [*(radii - [0.1, 0.2, 0.15]), 0.0, -0.05, 0.0, 0.1]
    (sharing,) = free(SCENE, "radii").sharings
    np.testing.assert_allclose(sharing.map @ changes, offsets[1] - offsets[0], atol=1e-12)
    assert len(sharing.names) == len(changes) == np.linalg.matrix_rank(sharing.map)


def test_a_plane_is_the_same_wall_of_every_body():
    assert planes_of(SCENE) == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))
    other = Scene(2, 1, (Wall(0, (1.0,)), Wall(1, (-1.0,), -1.0), Pair(0, 1)))
    with pytest.raises(InputError, match="same walls in the same order"):
        planes_of(other)


def test_tilts_lie_in_their_planes():
    for dimension in (2, 3):
        scene = Billiards(radii=(0.1, 0.1), size=(1.0,) * dimension).scene()
        (sharing,) = free(scene, "normals").sharings
        tilts = sharing.map.T.reshape(-1, scene.contacts, dimension)
        assert len(tilts) == 2 * dimension * (dimension - 1)
        normals = np.array([wall.normal for wall in scene.geometry.walls])
        for tilt in tilts:
            moved = np.abs(tilt).any(axis=1)
            assert moved.sum() == 2  # one plane, two bodies
            np.testing.assert_allclose(np.linalg.norm(tilt[moved], axis=1), 1)
            np.testing.assert_allclose(np.sum(tilt[: len(normals)] * normals, axis=1), 0, atol=1e-12)


def test_contacts_that_share_a_law():
    assert len(groups_of(SCENE, "each")) == SCENE.contacts
    assert [len(members) for _, members in groups_of(SCENE, "all")] == [SCENE.contacts]
    assert sorted(len(members) for _, members in groups_of(SCENE, "kind")) == [3, 12]


@pytest.mark.parametrize("share", ["each", "kind", "all"])
@pytest.mark.parametrize("surfaces", ["surfaces", "radii"])
def test_from_values_to_a_mechanism_and_back(share, surfaces):
    parameters = free(SCENE, "restitution", "friction", "masses", "normals", surfaces, share=share)
    values = np.random.default_rng(0).uniform(0.1, 0.9, parameters.layout.size)
    mechanism = with_values(parameters.layout, parameters.maps, parameters.template, values)
    np.testing.assert_allclose(parameters.values_of(mechanism), values, atol=1e-6)


def test_what_is_not_free_stays():
    """Only the fields of free parameters differ from the template's."""
    parameters = free(SCENE, "restitution")
    values = np.full(parameters.layout.size, 0.25)
    changed = with_values(parameters.layout, parameters.maps, parameters.template, values)
    back = eqx.tree_at(
        at(*parameters.layout.paths), changed, at(*parameters.layout.paths)(parameters.template)
    )
    assert eqx.tree_equal(back, parameters.template)
    np.testing.assert_allclose(changed.restitution.value, 0.25)
