"""What the columns of tables from elsewhere mean."""

import numpy as np
import pytest

from carom.data.io.column_guess import guess_columns
from carom.errors import InputError

ROWS = 60
TIME = 0.02 * np.arange(ROWS)
GENERATOR = np.random.default_rng(4)
PATH = np.cumsum(GENERATOR.standard_normal((ROWS, 6)), axis=0)


def write(path, names, columns):
    rows = [",".join(str(cell) for cell in row) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([",".join(names), *rows]) + "\n")
    return path


def rate(position):
    return np.gradient(position, TIME)


@pytest.mark.parametrize(
    ("names", "position", "bodies", "dimension"),
    [
        (("q1",), ("q1",), 1, 1),
        (("height (m)",), ("height (m)",), 1, 1),
        (("x", "y"), ("x", "y"), 1, 2),
        (("y", "x"), ("x", "y"), 1, 2),
        (("x_a", "x_b"), ("x_a", "x_b"), 2, 1),
        (("x1", "y1", "x2", "y2"), ("x1", "y1", "x2", "y2"), 2, 2),
        (("ballPosX", "ballPosY", "cubePosX", "cubePosY"),) * 2 + (2, 2),
        (("Marker1:X", "Marker1:Y", "Marker1:Z"), ("Marker1:X", "Marker1:Y", "Marker1:Z"), 1, 3),
        (("links", "rechts"), ("links", "rechts"), 2, 1),
        (("x", "confidence"), ("x",), 1, 1),
        (("pos_x_mm", "pos_y_mm", "roll"), ("pos_x_mm", "pos_y_mm"), 1, 2),
    ],
)
def test_positions_by_their_names(names, position, bodies, dimension, tmp_path):
    table = write(tmp_path / "a.csv", ("time", *names), (TIME, *PATH.T[: len(names)]))
    guess = guess_columns(table)
    assert guess.columns.position == position
    assert (guess.bodies, guess.dimension) == (bodies, dimension)
    assert guess.columns.time == "time"
    assert guess.step_size is None
    assert set(guess.unused) == set(names) - set(position)


def test_velocities_are_recognised_by_the_numbers(tmp_path):
    """Rates are kept, whatever the noise; what is not the rate of its position is left out."""
    noisy = rate(PATH[:, 0]) + 0.5 * GENERATOR.standard_normal(ROWS)
    right = guess_columns(write(tmp_path / "a.csv", ("t", "x", "vx"), (TIME, PATH[:, 0], noisy)))
    assert right.columns.velocity == ("vx",)
    wrong = guess_columns(write(tmp_path / "b.csv", ("t", "x", "vx"), (TIME, PATH[:, 0], 1000 * noisy)))
    assert wrong.columns.velocity == ()
    assert "not the rate" in wrong.unused["vx"]
    half = guess_columns(write(tmp_path / "c.csv", ("t", "x", "y", "vx"), (TIME, *PATH.T[:2], noisy)))
    assert half.columns.velocity == ()
    assert "no velocity for y" in half.unused["vx"]


def test_touch_determines_the_number_of_bodies(tmp_path):
    touch = (np.arange(ROWS) % 7 == 0).astype(int)
    guess = guess_columns(write(tmp_path / "a.csv", ("t", "q1", "q2", "touch1"), (TIME, *PATH.T[:2], touch)))
    assert (guess.bodies, guess.dimension, guess.columns.touch) == (1, 2, ("touch1",))
    analog = guess_columns(write(tmp_path / "b.csv", ("t", "q1", "contact"), (TIME, *PATH.T[:2])))
    assert analog.columns.touch == ()
    assert "0 or 1" in analog.unused["contact"]


def test_times_in_other_units_and_none_at_all(tmp_path):
    none = guess_columns(write(tmp_path / "b.csv", ("x", "y"), PATH.T[:2]))
    assert none.step_size == 1.0
    assert "GUESS" in none.remarks["sampling.step_size"]
    thousandths = guess_columns(write(tmp_path / "c.csv", ("time_ms", "x"), (1000 * TIME, PATH[:, 0])))
    assert "ms" in thousandths.remarks["columns.time"]


def test_runs_missing_values_and_columns_of_words(tmp_path):
    position = PATH[:, 0].astype(object)
    position[[3, 4]] = ""
    labels = np.repeat(["first", "second"], ROWS // 2)
    colour = np.full(ROWS, "red")
    names = ("trial", "t", "x", "z", "colour")
    time = np.tile(TIME[: ROWS // 2], 2)
    guess = guess_columns(write(tmp_path / "a.csv", names, (labels, time, position, np.ones(ROWS), colour)))
    assert guess.columns.run == "trial"
    assert guess.missing == ("position",)
    assert guess.dimension == 1
    assert guess.unused["z"] == "it never changes"
    assert guess.unused["colour"] == "it does not hold numbers"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("t;x\n0;1\n", "separate them by commas"),
        ("1,2\n3,4\n5,6\n", "line 1: the first line has numbers"),
        ("t,x,x\n0,1,1\n", "two columns have this name"),
        ("t,x\n0,1\n1,a\n", '"a" is not a number'),
        ("t,confidence\n0,1\n1,2\n", "no column seems to be a position"),
        ("t,x\n0,1\n1,1\n", "no column seems to be a position"),
        ("t,x\n", "no column of numbers"),
        ("name,colour\na,b\n", '"a" is not a number'),
        ("t,x1,y2\n0,1,2\n1,2,1\n", "no coordinate in common"),
        ("t,x,pos_x\n0,1,2\n1,2,1\n", "the same coordinate"),
    ],
)
def test_what_is_no_table_of_motion(text, words, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as caught:
        guess_columns(path)
    assert "\n" not in str(caught.value)
