"""System files: what is written is read again, defaults, and comments at every key."""

import math
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carom.data import Columns, SystemFile, read_recording, read_system_file, write_system_file
from carom.errors import InputError
from carom.mechanics import Pair, Scene, Wall

EXAMPLE = """
[system]
bodies = 2
dimension = 1
masses = [1, 2.5]
restitution = 0.9
velocity_grid = "sample"
projection = "reference_point"
reference = [[0.0], [0.5]]

[[wall]]
body = 2
normal = [-1.0]
offset = -3

[[pair]]
first = 1
second = 2
offset = 0.25

[columns]
run = "trial"
time = "seconds"
position = ["x_a", "x_b"]
velocity = ["v_a", "v_b"]
touch = ["hit_a", "hit_b"]

[sampling]
step_size = 0.02

[learn]
parameters = ["masses", "surfaces"]
"""
MEANING = SystemFile(
    Scene(
        bodies=2,
        dimension=1,
        candidates=(Wall(1, (-1.0,), -3.0), Pair(0, 1, 0.25)),
        masses=(1.0, 2.5),
        restitution=0.9,
        velocity_grid="sample",
        projection="reference_point",
        reference=((0.0,), (0.5,)),
    ),
    Columns(("x_a", "x_b"), ("v_a", "v_b"), ("hit_a", "hit_b"), "seconds", "trial"),
    0.02,
    ("masses", "surfaces"),
)

finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
# A surrogate is no character that a UTF-8 file could hold.
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


def write(text: str, folder: Path) -> Path:
    path = folder / "ball.toml"
    path.write_bytes(text.encode())
    return path


def test_bodies_are_counted_from_one(tmp_path: Path):
    assert read_system_file(write(EXAMPLE, tmp_path)) == MEANING


def test_windows_editors_are_welcome(tmp_path: Path):
    text = "\ufeff" + EXAMPLE.replace("\n", "\r\n")
    assert read_system_file(write(text, tmp_path)) == MEANING


def test_little_is_needed(tmp_path: Path):
    path = write("[system]\nbodies = 3\ndimension = 2\n", tmp_path)
    assert read_system_file(path) == SystemFile(Scene(bodies=3, dimension=2))


def test_what_columns_leave_out_has_standard_names(tmp_path: Path):
    path = write("[system]\nbodies = 2\ndimension = 2\n[columns]\ntime = 's'\n", tmp_path)
    assert read_system_file(path).columns == Columns(("q1", "q2", "q3", "q4"), None, None, time="s")


@pytest.mark.parametrize(
    ("columns", "velocity", "touch"),
    [
        ("", True, True),
        ("position = ['q1']", True, True),
        ("velocity = ['v1']", True, True),
        ("touch = []", True, False),
        ("velocity = []", False, True),
        ("velocity = ['other']\ntouch = []", True, False),
    ],
)
def test_channels_are_dropped_only_when_stated(columns: str, velocity: bool, touch: bool, tmp_path: Path):
    text = f"[system]\nbodies = 1\ndimension = 1\n[columns]\ntime = 's'\n{columns}\n"
    described = read_system_file(write(text, tmp_path))
    rows = "".join(f"{0.1 * n},{n},{n * n},{2 * n},{n % 2}\n" for n in range(5))
    (tmp_path / "ball.csv").write_text("s,other,q1,v1,touch1\n" + rows)
    recording = read_recording(tmp_path / "ball.csv", columns=described.columns, scene=described.scene)
    assert (recording.has_velocity, recording.has_touch) == (velocity, touch)
    if velocity:
        slope = 1 if "other" in columns else 2
        assert np.array_equal(recording.runs[0].velocity[:, 0, 0], slope * np.arange(5.0))
    # A channel that the file lacks is one that was not measured.
    (tmp_path / "bare.csv").write_text("s,q1\n0,0\n0.1,1\n0.2,4\n")
    if columns == "":
        assert not read_recording(tmp_path / "bare.csv", columns=described.columns).has_velocity


def test_walls_come_first(tmp_path: Path):
    """Pairs may stand before walls in the file; a scene has walls first."""
    pair, wall = "[[pair]]\nfirst = 2\nsecond = 1\n", "[[wall]]\nbody = 1\nnormal = [1]\n"
    text = pair + wall + "[system]\nbodies = 2\ndimension = 1\n"
    scene = read_system_file(write(text, tmp_path)).scene
    assert scene.candidates == (Wall(0, (1.0,)), Pair(1, 0))


@settings(max_examples=60)
@given(data=st.data())
def test_reading_gives_what_was_written(data: st.DataObject, tmp_path_factory):
    bodies, dimension = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    coordinates = bodies * dimension
    column_names = data.draw(
        st.lists(
            names, min_size=2 * coordinates + bodies + 2, max_size=2 * coordinates + bodies + 2, unique=True
        )
    )
    angle = data.draw(st.floats(0, 2 * math.pi))
    normals = [(1.0,), (math.cos(angle), math.sin(angle)), (0.0, 0.6, 0.8)]
    offsets = data.draw(st.lists(finite, max_size=3, unique=True))
    edges = data.draw(st.lists(st.tuples(st.sampled_from([normals[dimension - 1]]), finite), max_size=2))
    body = st.integers(0, bodies - 1)
    walls = tuple(Wall(data.draw(body), normals[dimension - 1], x, tuple(edges)) for x in offsets)
    pairs = tuple(Pair(i, i + 1, abs(data.draw(finite))) for i in range(bodies - 1))
    projection = data.draw(st.sampled_from(["none", "inverse_mass", "reference_point"]))
    position = st.tuples(*[finite] * dimension)
    scene = Scene(
        bodies=bodies,
        dimension=dimension,
        candidates=walls + pairs,
        masses=data.draw(st.tuples(*[st.floats(5e-324, 1e308)] * bodies)),
        restitution=data.draw(st.floats(0, 1)),
        friction=data.draw(st.floats(0, 10)),
        velocity_grid=data.draw(st.sampled_from(["half", "sample"])),
        projection=projection,
        reference=data.draw(st.tuples(*[position] * bodies)) if projection == "reference_point" else (),
    )
    columns = Columns(
        position=tuple(column_names[:coordinates]),
        velocity=data.draw(st.sampled_from([(), tuple(column_names[coordinates : 2 * coordinates])])),
        touch=data.draw(st.sampled_from([(), tuple(column_names[2 * coordinates : -2])])),
        time=column_names[-2],
        run=data.draw(st.sampled_from([None, column_names[-1]])),
    )
    system_file = SystemFile(
        scene,
        data.draw(st.sampled_from([None, columns])),
        data.draw(st.none() | st.floats(5e-324, 1e308)),
        data.draw(st.sampled_from([(), ("surfaces",), ("restitution-per-run", "masses")])),
        data.draw(st.sampled_from([(), ("velocity",), ("position", "velocity")])),
    )
    path = tmp_path_factory.mktemp("round") / "ball.toml"
    write_system_file(system_file, path)
    assert read_system_file(path) == system_file
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    "system_file", [MEANING, SystemFile(Scene(bodies=2, dimension=2))], ids=["full", "small"]
)
def test_every_key_is_explained(system_file: SystemFile, tmp_path: Path):
    write_system_file(system_file, tmp_path / "ball.toml")
    for line in (tmp_path / "ball.toml").read_text().splitlines():
        if " = " in line:
            assert "  # " in line, line


def test_the_commented_examples_are_valid(tmp_path: Path):
    """Whoever removes the comment signs gets a system file that can be read."""
    write_system_file(SystemFile(Scene(bodies=2, dimension=2)), tmp_path / "ball.toml")
    lines = (tmp_path / "ball.toml").read_text().splitlines()
    text = "\n".join(line.removeprefix("# ") for line in lines[1:])
    assert set(tomllib.loads(text)) == {"system", "wall", "pair", "columns", "sampling", "learn"}
    system_file = read_system_file(write(text, tmp_path))
    assert system_file.scene.contacts == 2
    assert system_file.step_size == 0.02
    assert system_file.missing == ("position", "velocity")


@pytest.mark.parametrize(
    ("system_file", "key"),
    [
        (SystemFile(Scene(1, 1, (Wall(0, (1.0,), math.inf),))), "offset"),
        (SystemFile(Scene(1, 1), step_size=-1.0), "step_size"),
        (SystemFile(Scene(1, 1), Columns(("a", "b"))), "position"),
        (SystemFile(Scene(5000, 1)), "bodies"),
    ],
    ids=["infinite", "negative", "columns", "large"],
)
def test_what_could_not_be_read_is_not_written(system_file: SystemFile, key: str, tmp_path: Path):
    with pytest.raises(InputError, match=key):
        write_system_file(system_file, tmp_path / "ball.toml")
    assert not list(tmp_path.iterdir())


def test_a_failing_write_changes_nothing(tmp_path: Path, monkeypatch):
    path = write(EXAMPLE, tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_system_file(MEANING, path)
    assert path.read_text() == EXAMPLE
    assert list(tmp_path.iterdir()) == [path]
