"""Balls among planes in pymunk and MuJoCo against the exact motion; tolerances as measured."""

import numpy as np
import pytest

from benchmarks.engines import engine_trajectory
from carom.errors import InputError
from carom.systems import BallBox, Billiards, Stairs

STEPS, H = 40, 0.01


def errors(system, engine, substeps, seeds=range(6)):
    """The greatest distance of any ball from where it should be within 0.4 s, over random starts: medians."""
    found = []
    for seed in seeds:
        start = system.random_start(seed=seed)
        exact = system.exact(start, np.arange(STEPS + 1) * H)
        theirs = engine_trajectory(
            system, start, steps=STEPS, step_size=H, engine=engine, substeps=substeps, velocity_grid="half"
        )
        found.append(np.abs(theirs.position - exact.position).max())
    return np.median(found)


TABLES = {
    "billiards": Billiards(radii=(0.1, 0.12, 0.08), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), ball_masses=(1.0, 2.0, 0.5), restitution=0.9),
    "rough billiards": Billiards(radii=(0.1, 0.12, 0.08), restitution=0.8, friction=0.3),
    "rough box": BallBox(radii=(0.1, 0.12, 0.08), size=(1.0, 1.0), restitution=0.8, friction=0.3),
}


@pytest.mark.parametrize("name", TABLES)
def test_chipmunk_approaches_the_exact_motion(name):
    """Chipmunk's friction is bounded by μ times the same impulse as ours, restitution included."""
    pytest.importorskip("pymunk")
    coarse, fine = errors(TABLES[name], "pymunk", 1), errors(TABLES[name], "pymunk", 32)
    assert fine < 0.15 * coarse
    assert fine < 2e-3


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["billiards", "box"])
def test_mujoco_approaches_the_exact_motion(name):
    pytest.importorskip("mujoco")
    coarse, fine = errors(TABLES[name], "mujoco", 1), errors(TABLES[name], "mujoco", 32)
    assert fine < 0.15 * coarse
    assert fine < 2e-3


@pytest.mark.campaign
def test_mujoco_in_space():
    pytest.importorskip("mujoco")
    box = BallBox(radii=(0.15, 0.2), size=(1.0, 1.0, 1.0), restitution=0.9)
    assert errors(box, "mujoco", 32, seeds=range(3)) < 2e-3


@pytest.mark.parametrize("engine", ["pymunk", "mujoco"])
def test_contacts_are_reported_where_they_are(engine):
    """Every contact of the exact motion before the second impact of any ball, in its sample or the next."""
    pytest.importorskip(engine)
    table = TABLES["billiards"]
    start = table.random_start(seed=3)
    exact = table.exact(start, np.arange(STEPS + 1) * H)
    theirs = engine_trajectory(
        table, start, steps=STEPS, step_size=H, engine=engine, substeps=16, velocity_grid="half"
    )
    first = np.flatnonzero(exact.contact.any(axis=1))[0]
    (which,) = np.flatnonzero(exact.contact[first])
    found = np.flatnonzero(theirs.contact[:, which])[0]
    assert found - first in (0, 1)
    assert not theirs.contact[:first].any()


def test_refusals():
    pytest.importorskip("pymunk")
    pytest.importorskip("mujoco")
    room = BallBox(size=(1.0, 1.0, 1.0), radii=(0.1,))
    with pytest.raises(InputError, match="two dimensions only"):
        engine_trajectory(room, room.random_start(seed=0), steps=1, step_size=0.1, engine="pymunk")
    rough = TABLES["rough box"]
    with pytest.raises(InputError, match="without friction"):
        engine_trajectory(rough, rough.random_start(seed=0), steps=1, step_size=0.1, engine="mujoco")
    for engine in ("pymunk", "mujoco"):
        with pytest.raises(InputError, match="whole planes"):
            engine_trajectory(Stairs(), Stairs().start, steps=1, step_size=0.1, engine=engine)
