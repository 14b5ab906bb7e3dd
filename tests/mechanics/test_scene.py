"""What a scene fills in and what it refuses."""

import pytest

from carom.errors import InputError
from carom.mechanics import Pair, Scene, Wall


def test_defaults():
    scene = Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),))
    assert scene.masses == (1.0, 1.0)
    assert (scene.contacts, scene.coordinates) == (1, 2)
    assert scene.without_contacts().contacts == 0
    assert hash(scene) == hash(Scene(bodies=2, dimension=1, candidates=(Pair(0, 1),)))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"bodies": 0}, "at least one body"),
        ({"masses": (1.0,)}, "1 masses were given for 2"),
        ({"masses": (1.0, 0.0)}, "must be positive"),
        ({"masses": (1.0, float("nan"))}, "must be positive"),
        ({"restitution": 1.1}, "between 0 and 1"),
        ({"restitution": float("nan")}, "between 0 and 1"),
        ({"projection": "reference_point"}, "reference position"),
        ({"candidates": (Wall(2, (1.0,)),)}, "beyond the 2 of the scene"),
    ],
)
def test_refusals(settings, complaint):
    with pytest.raises(InputError, match=complaint):
        Scene(**{"bodies": 2, "dimension": 1, **settings})
