"""Many bodies as a user records and draws them."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from carom.cli import main
from carom.data import read_described


def recorded(out, *command):
    """The recording that a command writes, and its scene."""
    main(["simulate", *command, "--out", str(out)])
    recording, description = read_described(out, None)
    return recording, description.scene


def test_balls_of_given_masses_in_space(tmp_path):
    command = ["billiards", "--masses", "1,2,6", "--dimension", "3", "--restitution", "0.8", "--steps", "40"]
    recording, scene = recorded(tmp_path / "table.npz", *command, "--runs", "2", "--seed", "4")
    assert (scene.bodies, scene.dimension, scene.masses) == (3, 3, (1.0, 2.0, 6.0))
    assert scene.contacts == 3 * 6 + 3
    assert len(recording.runs) == 2
    first, second = (run.position[0] for run in recording.runs)
    assert np.abs(first - second).max() > 0.01
    for run in recording.runs:
        kinetic = np.einsum("k,nkd->n", scene.masses, run.velocity**2)
        assert (np.diff(kinetic) <= 1e-9).all()
    again, _ = recorded(tmp_path / "again.npz", *command, "--seed", "5")
    np.testing.assert_array_equal(again.runs[0].position, recording.runs[1].position)


@pytest.mark.campaign
def test_a_heap_in_a_box_comes_to_rest(tmp_path):
    options = ["--balls", "4", "--size", "1,2", "--restitution", "0.3", "--friction", "0.4", "--speed", "0"]
    recording, scene = recorded(
        tmp_path / "box.csv", "box", *options, "--steps", "100", "--step-size", "0.03"
    )
    assert scene.friction == 0.4
    (run,) = recording.runs
    assert np.abs(run.velocity[0]).max() == 0
    assert np.abs(run.velocity[-1]).max() < 1e-6
    assert run.touch[-1].all()


@pytest.mark.campaign
def test_stairs_keep_their_edges_in_the_system_file(tmp_path):
    recording, scene = recorded(tmp_path / "stairs.csv", "stairs", "--restitution", "0.7", "--steps", "300")
    assert [len(wall.edges) for wall in scene.geometry.walls] == [1, 1, 1, 1, 0]
    (run,) = recording.runs
    assert run.touch.any()
    gaps = np.array([scene.geometry.gap(jnp.asarray(place)) for place in run.position[::30]])
    assert gaps.min() > -1e-6  # single precision


@pytest.mark.parametrize(
    "command",
    [["cradle", "--balls", "3"], ["billiards"], ["box", "--dimension", "3", "--balls", "2"], ["stairs"]],
    ids=lambda command: command[0],
)
def test_pictures_of_every_dimension(command, tmp_path, capsys):
    recording = tmp_path / "motion.csv"
    main(["simulate", *command, "--steps", "8", "--out", str(recording)])
    for suffix, frames in (("png", 1), ("gif", 9)):
        picture = tmp_path / f"picture.{suffix}"
        capsys.readouterr()
        main(["show", str(recording), "--out", str(picture), "--json", "--title", r"5 $\frac$"])
        assert json.loads(capsys.readouterr().out) == {"picture": str(picture), "run": 1, "samples": 9}
        with Image.open(picture) as image:
            assert getattr(image, "n_frames", 1) == frames
            assert min(image.size) > 150
            assert len(np.unique(np.asarray(image.convert("L")))) > 10


def test_bodies_are_drawn_where_they_are(tmp_path):
    """The last sample of a run, read off the picture: a large dark ball in a light room."""
    main(
        [
            "simulate", "billiards", "--balls", "1", "--radius", "0.2", "--steps", "2",
            "--step-size", "0.5", "--start", "0.3,0.6,0.45,-0.1", "--out", str(tmp_path / "one.csv"),
        ]
    )  # fmt: skip
    main(["show", str(tmp_path / "one.csv"), "--out", str(tmp_path / "one.png")])
    with Image.open(tmp_path / "one.png") as image:
        colors = np.asarray(image.convert("RGB")).astype(int)
    ball = np.argwhere(np.abs(colors - [0, 0x72, 0xB2]).sum(axis=2) < 40)
    assert len(ball) > 20
    # A single body is a point to the picture, and its walls are where its centre stops: 0.2 to 0.8.
    (top, bottom), (left, right) = _room_edges(colors)
    share = (ball.mean(axis=0) - [top, left]) / [bottom - top, right - left]
    np.testing.assert_allclose(share, [(0.8 - 0.5) / 0.6, (0.75 - 0.2) / 0.6], atol=0.02)


def _room_edges(colors):
    """Rows and columns of the white room, inside the grey walls."""
    grey = np.abs(colors - 0xD8).sum(axis=2) < 25
    row, column = (np.argmax(grey.sum(axis=axis)) for axis in (1, 0))  # along a wall
    inside = [_between(grey[:, column]), _between(grey[row])]
    middle = [round(sum(edges) / 2) for edges in inside]
    return _between(grey[:, middle[1]]), _between(grey[middle[0]])


def _between(grey):
    """The longest stretch between grey pixels, or of them where they are most of the line."""
    walls = np.flatnonzero(grey)
    longest = np.argmax(np.diff(walls))
    gap = walls[longest], walls[longest + 1]
    return gap if gap[1] - gap[0] > grey.sum() else (walls[0], walls[-1])
