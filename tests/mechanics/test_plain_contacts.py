"""The loops' contacts are those of compiled programs."""

import numpy as np
import pytest

from carom.mechanics.plain_contacts import PlainContacts
from carom.systems import Billiards, NewtonsCradle, Stairs


@pytest.mark.parametrize("system", [Billiards(), NewtonsCradle(balls=3), Stairs()])
def test_gaps_and_normals_agree(system):
    geometry = system.geometry
    position = np.random.default_rng(0).normal(size=(20, geometry.bodies, geometry.dimension))
    plain, rows = PlainContacts(geometry), geometry.rows
    np.testing.assert_allclose(plain.gap(position), rows.gap(position), atol=1e-12)
    relative = plain.relative(position)
    np.testing.assert_allclose(relative, rows.relative(position), atol=1e-12)
    np.testing.assert_allclose(plain.normal_of(relative), rows.normal_of(relative), atol=1e-12)
