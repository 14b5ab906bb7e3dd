"""Who shares an unknown: laws, radii, planes and their normals."""

import numpy as np
import pytest

from carom.errors import InputError
from carom.estimation.parameters.sharing import law_of, planes, surface_map, surface_names, tilt_map
from carom.mechanics import Pair, Scene, Wall
from carom.systems import Billiards

SCENE = Billiards(radii=(0.1, 0.2, 0.15), size=(2.0, 1.0)).scene()


def test_radii_and_planes_make_every_gap():
    """Other radii and another box shift the gaps by what the map says."""
    radii, size = np.array([0.13, 0.17, 0.15]), (2.05, 0.9)
    other = Billiards(radii=tuple(radii.tolist()), size=size).scene()
    offsets = [np.array([c.offset for c in scene.candidates]) for scene in (SCENE, other)]
    changes = [*(radii - [0.1, 0.2, 0.15]), 0.0, -0.05, 0.0, 0.1]
    np.testing.assert_allclose(surface_map(SCENE, "bodies") @ changes, offsets[1] - offsets[0], atol=1e-12)
    assert len(surface_names(SCENE, "bodies")) == len(changes)
    assert np.linalg.matrix_rank(surface_map(SCENE, "bodies")) == len(changes)


def test_a_plane_is_the_same_wall_of_every_body():
    assert planes(SCENE) == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))
    other = Scene(2, 1, (Wall(0, (1.0,)), Wall(1, (-1.0,), -1.0), Pair(0, 1)))
    with pytest.raises(InputError, match="same walls in the same order"):
        planes(other)


def test_tilts_lie_in_their_planes():
    for dimension in (2, 3):
        scene = Billiards(radii=(0.1, 0.1), size=(1.0,) * dimension).scene()
        tilts = tilt_map(scene)
        assert len(tilts) == 2 * dimension * (dimension - 1)
        normals = np.array([wall.normal for wall in scene.geometry.walls])
        for tilt in tilts:
            moved = np.abs(tilt).any(axis=1)
            assert moved.sum() == 2  # one plane, two bodies
            np.testing.assert_allclose(np.linalg.norm(tilt[moved], axis=1), 1)
            np.testing.assert_allclose(np.sum(tilt[: len(normals)] * normals, axis=1), 0, atol=1e-12)


def test_laws():
    assert len(set(law_of(SCENE, "each"))) == SCENE.contacts
    assert set(law_of(SCENE, "one")) == {0}
    kinds = law_of(SCENE, "kind")
    assert len(set(kinds[:12])) == len(set(kinds[12:])) == 1
    assert kinds[0] != kinds[-1]
