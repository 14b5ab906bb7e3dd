"""Two independent engines against our scheme and against exact physics; tolerances as measured."""

import numpy as np
import pytest

from benchmarks.engines import engine_trajectory
from carom.errors import InputError
from carom.systems import BouncingBall, NewtonsCradle, Pendulum
from tests.campaign import shortened
from tests.systems.closed_forms import start_state

ENGINES = ["pymunk", "mujoco"]
PUBLISHED = BouncingBall(radius=0.01)
DROP = start_state([10.0], [0.0])


@pytest.fixture(params=ENGINES)
def engine(request):
    pytest.importorskip(request.param)
    return request.param


def distance(one, other):
    return max(np.abs(one.position - other.position).max(), np.abs(one.velocity - other.velocity).max())


def test_the_published_ball(engine):
    """Radius 0.01, drop from 10 m, h = 0.02: impacts at samples 72, 215 and 358."""
    motion = engine_trajectory(PUBLISHED, DROP, steps=500, step_size=0.02, engine=engine)
    np.testing.assert_array_equal(np.flatnonzero(motion.contact[:, 0]), [72, 215, 358])
    assert motion.position.shape == motion.velocity.shape == (501, 1, 1)
    np.testing.assert_array_equal(motion.position[0], 10.0)
    np.testing.assert_array_equal(motion.velocity[0], 0.0)


@pytest.mark.parametrize("velocity_grid", ["sample", "half"])
@pytest.mark.parametrize("restitution", [1.0, 0.7, 0.0])
def test_chipmunk_ball_is_our_scheme_to_rounding(restitution, velocity_grid):
    """Through every bounce and through rest. Measured: 4e-15."""
    pytest.importorskip("pymunk")
    ball = BouncingBall(radius=0.01, restitution=restitution)
    ours = ball.scheme(DROP, steps=500, step_size=0.02, velocity_grid=velocity_grid)
    theirs = engine_trajectory(
        ball, DROP, steps=500, step_size=0.02, engine="pymunk", velocity_grid=velocity_grid
    )
    assert distance(ours, theirs) < 1e-12
    np.testing.assert_array_equal(ours.contact, theirs.contact)


@pytest.mark.parametrize("restitution", [1.0, 0.7, 0.0])
def test_mujoco_ball_is_our_scheme_but_for_its_impedance(restitution):
    """10⁻⁴ of gravity leaks through a contact: 2e-5 m/s per touching step, 1.7e-4 m in 10 s."""
    pytest.importorskip("mujoco")
    ball = BouncingBall(radius=0.01, restitution=restitution, mass=2.5)
    ours = ball.scheme(DROP, steps=500, step_size=0.02, velocity_grid="sample")
    theirs = engine_trajectory(ball, DROP, steps=500, step_size=0.02, engine="mujoco")
    np.testing.assert_allclose(theirs.velocity, ours.velocity, atol=2.1e-5)
    np.testing.assert_allclose(theirs.position, ours.position, atol=2e-4)
    np.testing.assert_array_equal(ours.contact, theirs.contact)


@pytest.mark.parametrize("restitution", shortened([1.0, 0.7], [1.0]))
def test_ball_approaches_exact_physics_with_the_substep(engine, restitution):
    """Root mean square error of position over 10 s at 1, 10 and 20 substeps of h = 0.02.

    Measured for both engines at 1, 10 and 40: 0.39, 0.005 and 0.005 with e = 1; 0.10, 0.0077 and 0.0021
    with e = 0.7.
    """
    ball = BouncingBall(restitution=restitution)
    exact = ball.exact(DROP, np.arange(501) * 0.02)
    errors = []
    for substeps in (1, 10, 20):
        motion = engine_trajectory(
            ball, DROP, steps=500, step_size=0.02, engine=engine, substeps=substeps, velocity_grid="half"
        )
        errors.append(np.sqrt(np.mean((motion.position - exact.position) ** 2)))
    assert errors[0] < 0.6
    assert errors[1] < 0.02
    assert errors[2] < 0.01


def test_cradle_follows_our_scheme(engine):
    """Five impacts at h = 0.01. Measured: pymunk 6.8e-4 rad and 2.7e-3 rad/s, MuJoCo 4.3e-4 and 1.3e-3."""
    cradle = NewtonsCradle()
    ours = cradle.scheme(cradle.start, steps=540, step_size=0.01, velocity_grid="sample")
    theirs = engine_trajectory(cradle, cradle.start, steps=540, step_size=0.01, engine=engine)
    np.testing.assert_array_equal(ours.contact, theirs.contact)
    np.testing.assert_allclose(theirs.position, ours.position, atol=1.5e-3)
    np.testing.assert_allclose(theirs.velocity, ours.velocity, atol=5e-3)


def test_mujoco_angles_before_the_first_impact_are_our_scheme():
    """MuJoCo has the same coordinates; the balls' own inertia of 1e-12 m l² is all that differs."""
    pytest.importorskip("mujoco")
    cradle = NewtonsCradle(length=0.8, mass=0.6)
    ours = cradle.scheme(cradle.start, steps=80, step_size=0.01, velocity_grid="sample")
    theirs = engine_trajectory(cradle, cradle.start, steps=80, step_size=0.01, engine="mujoco")
    assert distance(ours, theirs) < 1e-10


@pytest.mark.parametrize(("restitution", "tolerance"), [(1.0, 8e-3), (0.6, 3e-3)])
def test_cradle_approaches_exact_physics(engine, restitution, tolerance):
    """Ten substeps of h = 0.01, five impacts. Measured: 5e-3 rad with e = 1, 1.3e-3 with e = 0.6."""
    cradle = NewtonsCradle(restitution=restitution)
    exact = cradle.exact(cradle.start, np.arange(541) * 0.01)
    motion = engine_trajectory(
        cradle, cradle.start, steps=540, step_size=0.01, engine=engine, substeps=10, velocity_grid="half"
    )
    np.testing.assert_allclose(motion.position, exact.position, atol=tolerance)
    if restitution == 1:
        np.testing.assert_array_equal(motion.contact, exact.contact)


def test_row_of_balls_passes_momentum_through(engine):
    """Four balls, first passage: the engines hit one after another, as the scheme does."""
    cradle = NewtonsCradle(balls=4)
    motion = engine_trajectory(cradle, cradle.start, steps=112, step_size=0.01, engine=engine)
    np.testing.assert_array_equal([np.flatnonzero(touch)[0] for touch in motion.contact.T], [104, 105, 106])
    np.testing.assert_allclose(motion.velocity[106, :, 0], [0, 0, 0, -2], atol=0.02)


def test_refusals(monkeypatch):
    with pytest.raises(InputError, match="balls and the cradle, not Pendulum"):
        engine_trajectory(Pendulum(), DROP, steps=1, step_size=0.1, engine="pymunk")
    with pytest.raises(InputError, match="at least 1 step per sample"):
        engine_trajectory(PUBLISHED, DROP, steps=1, step_size=0.1, engine="pymunk", substeps=0)

    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr("benchmarks.engines.common.importlib.import_module", missing)
    for engine in ENGINES:
        with pytest.raises(InputError, match=r'pip install "carom\[engines\]"'):
            engine_trajectory(PUBLISHED, DROP, steps=1, step_size=0.1, engine=engine)
