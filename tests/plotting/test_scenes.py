"""Pictures of scenes: radii from offsets, solids inside a view, planes through a box, files."""

import numpy as np
import pytest
from PIL import Image

from carom.data import Run
from carom.mechanics import Scene, Wall
from carom.plotting.scenes import body_radii, polygon, solids, view_of, write_run_picture
from carom.systems import BallBox, Billiards, NewtonsCradle, Stairs


@pytest.mark.parametrize(
    "system",
    [
        Billiards(radii=(0.1, 0.15, 0.05, 0.2), size=(2.0, 3.0)),
        BallBox(radii=(0.1, 0.25), size=(1.0, 1.0, 1.0)),
        BallBox(radii=(0.3, 0.1, 0.2), size=(4.0,)),
    ],
)
def test_radii_and_walls_are_those_of_the_system(system):
    scene = system.scene()
    radii = body_radii(scene)
    np.testing.assert_allclose(radii, system.radii, atol=1e-12)
    found = {(normal, round(offset, 9)) for ((normal, offset),) in solids(scene, radii)}
    assert found == {(normal, round(offset, 9)) for ((normal, offset),) in system.solids}


def test_points_have_no_radius():
    np.testing.assert_array_equal(body_radii(NewtonsCradle(balls=3).scene()), 0)
    np.testing.assert_array_equal(body_radii(Scene(bodies=2, dimension=2)), 0)


def test_a_solid_inside_a_view():
    """Areas: half of the unit square behind its diagonal, a quarter behind two planes, and by chance."""
    view = np.array([[0.0, 1.0], [0.0, 1.0]])

    def area(corners):
        x, y = corners.T
        return 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))

    slant = (np.sqrt(0.5), np.sqrt(0.5))
    assert area(polygon(view, behind=((slant, np.sqrt(0.5)),))) == pytest.approx(0.5)
    assert area(polygon(view, behind=(((1.0, 0.0), 0.5), ((0.0, 1.0), 0.5)))) == pytest.approx(0.25)
    assert len(polygon(view, behind=(((1.0, 0.0), -1.0),))) == 0
    random = np.random.default_rng(0)
    for _ in range(20):
        angle, offset = random.uniform(0, 2 * np.pi), random.uniform(-0.5, 1.0)
        normal = (float(np.cos(angle)), float(np.sin(angle)))
        corners = polygon(view, behind=((normal, offset),))
        points = random.uniform(size=(20_000, 2))
        share = (points @ normal <= offset).mean()
        assert (area(corners) if len(corners) else 0.0) == pytest.approx(share, abs=0.015)


def test_planes_through_a_box():
    """A face, a hexagon through the middle, and nothing."""
    cube = np.array([[0.0, 1.0]] * 3)
    face = polygon(cube, on=(((0.0, 0.0, 1.0), 0.0),))
    assert sorted(map(tuple, face)) == [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)]
    # Around the face, corner by corner: neighbours are 1 apart.
    np.testing.assert_allclose(np.linalg.norm(face - np.roll(face, 1, axis=0), axis=1), 1)
    diagonal = 1 / np.sqrt(3)
    hexagon = polygon(cube, on=(((diagonal,) * 3, 1.5 * diagonal),))
    assert len(hexagon) == 6
    np.testing.assert_allclose(np.linalg.norm(hexagon - np.roll(hexagon, 1, axis=0), axis=1), np.sqrt(0.5))
    assert len(polygon(cube, on=(((0.0, 0.0, 1.0), 2.0),))) == 0


def test_a_view_reaches_out_to_walls_that_are_near():
    scene = Billiards(radii=(0.1, 0.1)).scene()
    radii = body_radii(scene)
    position = np.array([[[0.3, 0.3], [0.7, 0.5]]])
    np.testing.assert_allclose(view_of(position, radii, solids(scene, radii)), [[0, 1], [0, 1]], atol=1e-12)
    far = Scene(bodies=1, dimension=2, candidates=(Wall(0, (1.0, 0.0), -100.0),))
    position = np.array([[[0.0, 0.0]], [[1.0, 2.0]]])
    np.testing.assert_allclose(view_of(position, np.zeros(1), solids(far, np.zeros(1))), [[0, 1], [0, 2]])


def test_steps_of_stairs_are_solids_with_two_planes():
    scene = Stairs(steps=3).scene()
    assert [len(solid) for solid in solids(scene, body_radii(scene))] == [2, 2, 2, 1]


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_runs_are_drawn_and_animated(dimension, tmp_path):
    """In any dimension; an animation has a frame for every sample, and the same run gives the same bytes."""
    system = BallBox(radii=(0.1, 0.2), size=(1.0,) * dimension)
    generator = np.random.default_rng(0)
    position = generator.uniform(0.2, 0.8, (3, 2, dimension))
    run = Run(time=0.1 * np.arange(3), position=position, velocity=None, touch=None)
    for name in ("a", "b"):
        for suffix in (".png", ".gif"):
            write_run_picture(run, system.scene(), tmp_path / f"{name}{suffix}", title="$5")
    for suffix in (".png", ".svg", ".gif"):
        assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert Image.open(tmp_path / "a.gif").n_frames == 3
    colors = np.asarray(Image.open(tmp_path / "a.png").convert("RGB")).reshape(-1, 3)
    assert (colors == 255).all(axis=1).mean() > 0.3  # the background stays white
