"""Walls that are tilted about a point."""

import equinox as eqx
import numpy as np

from carom.mechanics import ContactGeometry, Wall


def tilted(generator, dimension):
    normal = generator.standard_normal(dimension)
    normal /= np.linalg.norm(normal)
    geometry = ContactGeometry(1, dimension, (Wall(0, tuple(normal), float(generator.normal())),))
    across = np.linalg.svd(normal[None])[2][1]
    changes = 0.1 * across[None], 10 * generator.standard_normal(dimension)
    place = lambda g: (g.tilt, g.pivot)  # noqa: E731
    return geometry, eqx.tree_at(place, geometry, changes, is_leaf=lambda x: x is None)


def test_a_tilt_turns_a_wall_about_the_pivot():
    for seed in range(5):
        generator = np.random.default_rng(seed)
        stated, turned = tilted(generator, 2 + seed % 2)
        at, points = turned.pivot, generator.standard_normal((20, 1, stated.dimension))
        np.testing.assert_allclose(turned.gap(at[None]), stated.gap(at[None]), rtol=1e-12)
        # It is a plane at distance 0 from itself, whose normal makes the stated angle with the old one.
        assert abs(np.degrees(np.arccos(turned.rows.normal[0, 0] @ stated.normal[0])) - 5.71) < 0.01
        distance = turned.gap(at[None]) + (points - at) @ turned.rows.normal[0, 0]
        np.testing.assert_allclose(turned.gap(points), distance, rtol=1e-9, atol=1e-9)


def test_the_declaration_of_a_tilted_wall_is_the_same_plane():
    _, turned = tilted(np.random.default_rng(7), 3)
    points = np.random.default_rng(8).standard_normal((20, 1, 3))
    again = ContactGeometry(1, 3, turned.candidates)
    np.testing.assert_allclose(again.gap(points), turned.gap(points), rtol=1e-9, atol=1e-9)
