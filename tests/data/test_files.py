"""Recordings in files: what is written is read again, bit for bit, and a failed write changes nothing."""

import os
import stat
import zipfile
from contextlib import suppress
from pathlib import Path
from time import process_time

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import carom.data.io.recording_file as files
from carom.data import Columns, Recording, Run, read_recording, simulate, write_recording
from carom.errors import InputError
from carom.mechanics import Scene
from carom.storage.atomic import atomic_write
from carom.systems import BouncingBall

FORMATS = ["csv", "parquet", "npz"]
MEASURED = Path(os.environ.get("CAROM_DATA", Path(__file__).parents[2] / "../shared/data"))


def bits(array: np.ndarray | None) -> object:
    """What makes two arrays identical: −0.0 is not 0.0 here."""
    return None if array is None else (array.dtype, array.shape, array.tobytes())


def assert_identical(left: Recording, right: Recording) -> None:
    assert len(left.runs) == len(right.runs)
    for one, other in zip(left.runs, right.runs, strict=True):
        for channel in ("time", "position", "velocity", "touch"):
            assert bits(getattr(one, channel)) == bits(getattr(other, channel)), channel


def table(samples: int = 6, **columns) -> dict[str, list]:
    return {"t": [0.5 * n for n in range(samples)], "q1": [n * n for n in range(samples)], **columns}


def save(data: dict, path: Path) -> Path:
    """Write columns as they are, by other means than Carom's."""
    if path.suffix == ".npz":
        np.savez(path, **{name: np.array(values) for name, values in data.items()})
    else:
        getattr(pl.DataFrame(data), f"write_{path.suffix[1:]}")(path)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
@settings(max_examples=40)
@given(
    bodies=st.integers(1, 3),
    dimension=st.integers(1, 2),
    has_velocity=st.booleans(),
    has_touch=st.booleans(),
    step_size=st.sampled_from([0.02, 0.002, 0.1, 1.0, 7.5e-5, 1 / 60, 3.0]),
    start=st.sampled_from([0.0, 0.6, -12.25]),
    lengths=st.lists(st.integers(3, 9), min_size=1, max_size=4),
    special=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5),
    lost=st.sampled_from([0.0, 0.3]),
    # Less than what could leave a gap of five median steps, which would be refused.
    jitter=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_reading_gives_what_was_written(
    suffix,
    bodies,
    dimension,
    has_velocity,
    has_touch,
    step_size,
    start,
    lengths,
    special,
    lost,
    jitter,
    seed,
    tmp_path_factory,
):
    generator = np.random.default_rng(seed)

    def numbers(length: int) -> np.ndarray:
        values = generator.normal(size=length * bodies * dimension) * 10.0 ** generator.integers(-300, 300)
        values[: len(special)] = special[: len(values)]
        values = values.reshape(length, bodies, dimension)
        values[:-3][generator.random(values[:-3].shape) < lost] = np.nan
        values[-3:] = [[[0.0]], [[1.0]], [[2.0]]]  # no column may be constant, nor a run without values
        return values

    def times(length: int) -> np.ndarray:
        return start + step_size * (np.arange(length) + jitter * generator.uniform(-1, 1, length))

    runs = tuple(
        Run(
            time=times(length),
            position=numbers(length),
            velocity=numbers(length) if has_velocity else None,
            touch=generator.random((length, bodies)) < 0.5 if has_touch else None,
        )
        for length in lengths
    )
    recording = Recording(runs, step_size, Scene(bodies, dimension))
    assume(recording.even == (jitter == 0))  # a few jittered times may be even by chance
    path = tmp_path_factory.mktemp("round") / f"ball.{suffix}"
    write_recording(recording, path)
    again = read_recording(path, scene=recording.scene, missing=["position", "velocity"])
    assert_identical(recording, again)
    assert again.scene == recording.scene
    assert again.even == recording.even == (jitter == 0)
    steps = np.sort(np.concatenate([np.diff(run.time) for run in runs]))
    expected = recording.step_size if jitter == 0 else steps[(len(steps) - 1) // 2]
    assert again.step_size == pytest.approx(expected, rel=1e-12)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (("hard bumper", "weich, 2"), ("hard bumper", "weich, 2")),
        (("7", "3"), ("7", "3")),
        (("007", "3"), ("007", "3")),
        (("9" * 30, "3"), ("9" * 30, "3")),
        (("one", "one"), ("0", "1")),  # would be one run
        (("one", None), ("0", "1")),
    ],
)
def test_runs_keep_their_names(labels, kept, suffix: str, tmp_path: Path):
    time, position = np.arange(4.0), np.array([0.0, 1.0, 3.0, 2.0])[:, None, None]
    recording = Recording(tuple(Run(time, position, label=label) for label in labels), 1.0)
    path = tmp_path / f"runs.{suffix}"
    write_recording(recording, path)
    again = read_recording(path)
    assert again.labels == recording.labels == kept
    assert_identical(again, recording)
    part = Recording((again.runs[1].part(slice(0, 3)),), 1.0)
    assert part.labels == (kept[1],)


@pytest.mark.parametrize("suffix", FORMATS)
def test_all_formats_distinguish_the_same_runs(suffix: str, tmp_path: Path):
    names = [" a"] * 3 + ["b\t "] * 3
    path = save(table(run=names), tmp_path / f"spaces.{suffix}")
    assert read_recording(path).labels == ("a", "b")


@pytest.mark.parametrize("step_size", [0.02, 0.002, 0.1, 0.0125, 1.0, 0.016667])
@pytest.mark.parametrize("start", [0.0, 0.6, 1234.5])
def test_a_short_step_size_is_found_exactly(step_size: float, start: float, tmp_path: Path):
    time = start + np.arange(400) * step_size
    path = save({"t": time, "q1": np.sin(time)}, tmp_path / "ball.csv")
    assert read_recording(path).step_size == step_size


@pytest.mark.parametrize(("rate", "decimals"), [(240, 4), (60, 3), (60, 4), (30, 3), (1000, 4), (120, 6)])
def test_rounded_times_are_a_constant_step(rate: int, decimals: int, tmp_path: Path):
    time = np.round(np.arange(1000) / rate, decimals)
    path = save({"t": time, "q1": np.sin(time)}, tmp_path / "ball.csv")
    assert read_recording(path).step_size == pytest.approx(1 / rate, rel=1e-4)


@pytest.mark.parametrize("disturbance", [0.001, 0.0005, 0.01])
def test_a_disturbed_time_is_no_rounding(disturbance: float, tmp_path: Path):
    time = np.round(np.arange(50) * 0.02, 3)
    assert read_recording(save({"t": time, "q1": np.sin(time)}, tmp_path / "ball.csv")).even
    time[20] += disturbance
    recording = read_recording(save({"t": time, "q1": np.sin(time)}, tmp_path / "ball.csv"))
    assert not recording.even
    assert recording.step_size == pytest.approx(0.02, rel=1e-12)
    np.testing.assert_array_equal(recording.runs[0].time, time)


@pytest.mark.parametrize("suffix", FORMATS)
def test_steps_may_vary(suffix: str, tmp_path: Path):
    """Within a run, and from one run to the next; the median step stands for all."""
    data = table(run=[0, 0, 0, 1, 1, 1])
    for times, median in (([0, 1, 3, 0, 1, 2], 1.0), ([0, 1, 2, 0, 2, 4], 1.0), ([0, 2, 4, 0, 1, 3], 2.0)):
        data["t"] = times
        recording = read_recording(save(data, tmp_path / f"ball.{suffix}"))
        assert not recording.even
        assert recording.step_size == median
        np.testing.assert_array_equal(np.concatenate([run.time for run in recording.runs]), times)


@pytest.mark.parametrize("empty", ["", "nan", "NaN", " "])
def test_empty_cells_are_missing_values(empty: str, tmp_path: Path):
    lines = ["t,q1,v1", "0,1,5", f"1,{empty},6", f"2,3,{empty}", "3,4,8", f"4,{empty},{empty}"]
    (tmp_path / "ball.csv").write_text("\n".join(lines) + "\n")
    recording = read_recording(tmp_path / "ball.csv", missing=["position", "velocity"])
    (run,) = recording.runs
    np.testing.assert_array_equal(run.position[:, 0, 0], [1, np.nan, 3, 4, np.nan])
    assert run.velocity is not None
    np.testing.assert_array_equal(run.velocity[:, 0, 0], [5, 6, np.nan, 8, np.nan])
    assert recording.missing_values == 4


def test_nulls_in_parquet_are_missing_values(tmp_path: Path):
    data = table(samples=5)
    data["q1"] = [0.0, None, float("nan"), 3.0, 4.0]
    recording = read_recording(save(data, tmp_path / "ball.parquet"), missing=["position"])
    np.testing.assert_array_equal(recording.runs[0].position[:, 0, 0], [0, np.nan, np.nan, 3, 4])


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_durations_in_parquet_are_seconds(unit: str, tmp_path: Path):
    frame = pl.DataFrame(table()).with_columns(t=pl.duration(milliseconds=pl.col("t") * 1000, time_unit=unit))
    frame.write_parquet(tmp_path / "ball.parquet")
    np.testing.assert_array_equal(read_recording(tmp_path / "ball.parquet").runs[0].time, table()["t"])


@pytest.mark.parametrize("suffix", FORMATS)
def test_many_columns_take_linear_time(suffix: str, tmp_path: Path):
    """6,146 columns; twice as many, the largest system with all its channels, take 0.4 s to 1.7 s."""
    values = np.random.default_rng(0).normal(size=(2, 4, 2048, 1))
    run = Run(np.arange(4.0), *values, touch=values[0, ..., 0] > 0)
    write_recording(Recording((run,), 1.0), tmp_path / f"wide.{suffix}")
    began = process_time()
    assert_identical(read_recording(tmp_path / f"wide.{suffix}"), Recording((run,), 1.0))
    assert process_time() - began < 3


def test_single_samples_have_no_steps_that_could_vary():
    assert Recording((Run(np.zeros(1), np.zeros((1, 1, 1))),), 1.0).even


def test_what_a_recording_without_values_cannot_do():
    time = np.arange(4.0)
    nothing = np.full((4, 1, 1), np.nan)
    with pytest.raises(InputError, match="no value at all"):
        Recording((Run(time, nothing),), 1.0)
    with pytest.raises(InputError, match="has a missing value"):
        _ = Recording((Run(time, np.ones((4, 1, 1)), nothing),), 1.0).start


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_simulated_recording_survives(suffix: str, tmp_path: Path, float64):
    recording = simulate(BouncingBall(), steps=120, step_size=0.02, noise=0.1, seed=3)
    write_recording(recording, tmp_path / f"ball.{suffix}")
    again = read_recording(tmp_path / f"ball.{suffix}", scene=recording.scene)
    assert_identical(recording, again)
    assert again.step_size == recording.step_size


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path):
    recording = Recording((Run(np.arange(4.0), np.arange(4.0).reshape(4, 1, 1)),), 1.0)
    for suffix in FORMATS:
        one, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
        write_recording(recording, one)
        write_recording(recording, other)
        assert one.read_bytes() == other.read_bytes()


def test_columns_are_written_in_order(tmp_path: Path):
    run = Run(np.arange(3.0), np.zeros((3, 2, 1)), np.zeros((3, 2, 1)), np.ones((3, 2), bool))
    write_recording(Recording((run, run), 1.0), tmp_path / "ball.csv")
    lines = (tmp_path / "ball.csv").read_text().splitlines()
    assert lines[0] == "run,t,q1,q2,v1,v2,touch1,touch2"
    assert lines[1] == "0,0.0,0.0,0.0,0.0,0.0,1,1"
    assert lines[-1] == "1,2.0,0.0,0.0,0.0,0.0,1,1"
    write_recording(Recording((run,), 1.0), tmp_path / "ball.npz")
    with np.load(tmp_path / "ball.npz", allow_pickle=False) as arrays:
        assert [(name, array.shape) for name, array in arrays.items()] == [
            (name, (3,)) for name in lines[0].split(",")
        ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_names_are_mapped_body_by_body(suffix: str, tmp_path: Path):
    data = {
        "trial": ["a", "a", "a", "b", "b", "b"],
        "s": [0.0, 1.0, 2.0, 0.0, 1.0, 2.0],
        "y": [0, 1, 2, 3, 4, 5],
        "x": [9, 8, 7, 6, 5, 4],
        "u": [1.5] * 6,
        "w": [2.5] * 6,
        "hit": [0, 1, 0, 0, 0, 1],
    }
    columns = Columns(("x", "y"), velocity=("u", "w"), touch=("hit",), time="s", run="trial")
    path = save(data, tmp_path / f"ball.{suffix}")
    recording = read_recording(path, columns=columns, scene=Scene(bodies=1, dimension=2))
    assert len(recording.runs) == 2
    first, second = recording.runs
    np.testing.assert_array_equal(first.position, [[[9, 0]], [[8, 1]], [[7, 2]]])
    np.testing.assert_array_equal(first.velocity, [[[1.5, 2.5]]] * 3)
    np.testing.assert_array_equal(second.touch, [[False], [False], [True]])


@pytest.mark.parametrize("suffix", FORMATS)
def test_times_may_be_left_out(suffix: str, tmp_path: Path):
    data = table(run=[0, 0, 0, 1, 1, 1])
    del data["t"]
    recording = read_recording(save(data, tmp_path / f"ball.{suffix}"), step_size=0.25)
    assert recording.step_size == 0.25
    for run in recording.runs:
        np.testing.assert_array_equal(run.time, [0.0, 0.25, 0.5])


def test_a_given_step_size_wins_where_it_agrees(tmp_path: Path):
    data = table()
    data["t"] = [0.0, 0.0167, 0.0333, 0.05, 0.0667, 0.0833]
    assert read_recording(save(data, tmp_path / "ball.csv"), step_size=1 / 60).step_size == 1 / 60


@pytest.mark.parametrize(
    "text",
    [
        "t,q1\r\n0,1\r\n1,2\r\n2,4\r\n",
        "\ufefft,q1\n0,1\n1,2\n2,4",
        " t , q1\n0, 1\n 1 ,2 \n2,4\n\n\n",
        '"t","q1"\n"0","1"\n"1","2"\n"2","4"\n',
        'note,t,q1\n"a, ""quoted"" note",0,1\n,1,2\nü,2,4\n',
        "t,q1\n0,+1.\n1e0,.2e1\n2,4\n",
    ],
    ids=["crlf", "byte order mark", "spaces", "quotes", "other columns", "spellings"],
)
def test_spellings_of_csv(text: str, tmp_path: Path):
    (tmp_path / "ball.csv").write_bytes(text.encode())
    run = read_recording(tmp_path / "ball.csv").runs[0]
    np.testing.assert_array_equal(run.time, [0, 1, 2])
    np.testing.assert_array_equal(run.position[:, 0, 0], [1, 2, 4])


def test_a_name_with_a_pattern_is_one_file(tmp_path: Path):
    for suffix in FORMATS:
        save(table(), tmp_path / f"ball1.{suffix}")
        path = save(table(samples=4), tmp_path / f"ball[12]*.{suffix}")
        assert read_recording(path).samples == 4


def test_single_precision_and_booleans_are_read(tmp_path: Path):
    data = {
        "run": np.array(["a"] * 4),
        "t": np.arange(4, dtype=np.float32),
        "q1": np.arange(4, dtype=np.int16),
        "touch1": np.array([False, True, False, False]),
    }
    for suffix in ("parquet", "npz"):
        run = read_recording(save(data, tmp_path / f"ball.{suffix}")).runs[0]
        assert run.position.dtype == run.time.dtype == np.float64
        assert run.touch is not None
        assert run.touch[:, 0].tolist() == [False, True, False, False]


def test_measured_recordings_are_read():
    path = MEASURED / "air_track" / "recordings.csv"
    if not path.exists():
        pytest.skip(f"the measured recordings are not here ({path}); set CAROM_DATA to their folder")
    recording = read_recording(path, columns=Columns(("x_a", "x_b")))
    assert len(recording.runs) == 86
    assert recording.step_size == 0.002
    assert not recording.has_velocity
    assert not recording.has_touch


def contents(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir()}


class Interruption:
    """A writer that fails half-way."""

    def __init__(self, error: BaseException):
        self.error = error

    def __call__(self, frame, file):
        file.write(b"half of the fi")
        raise self.error


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (OSError(28, "No space left on device"), InputError),
        (pl.exceptions.ComputeError("No space left on device"), InputError),
        (MemoryError(), MemoryError),
    ],
    ids=["Ctrl-C", "full disk", "full disk seen by Polars", "memory"],
)
def test_a_failing_write_changes_nothing(error, seen, suffix: str, tmp_path: Path, monkeypatch):
    recording = Recording((Run(np.arange(4.0), np.arange(4.0).reshape(4, 1, 1)),), 1.0)
    old = tmp_path / f"old.{suffix}"
    write_recording(recording, old)
    before = contents(tmp_path)
    broken = files.FORMATS[f".{suffix}"]._replace(save=Interruption(error))
    monkeypatch.setitem(files.FORMATS, f".{suffix}", broken)
    for target in (old, tmp_path / f"new.{suffix}"):
        with pytest.raises(seen) as caught:
            write_recording(recording, target)
        if seen is InputError:
            assert target.name in str(caught.value)
            assert "No space left on device" in str(caught.value)
    assert contents(tmp_path) == before


def test_a_failing_replacement_changes_nothing(tmp_path: Path, monkeypatch):
    (tmp_path / "model").write_bytes(b"old")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(InputError, match="Permission denied"), atomic_write(tmp_path / "model") as temporary:
        temporary.write_bytes(b"new")
    assert contents(tmp_path) == {"model": b"old"}


def test_an_atomic_write_keeps_permissions_and_links(tmp_path: Path):
    target, link = tmp_path / "model", tmp_path / "link"
    target.write_bytes(b"old")
    target.chmod(0o640)
    link.symlink_to(target)
    with atomic_write(link) as temporary:
        assert temporary.parent == tmp_path
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert len(list(tmp_path.iterdir())) == 2


def test_an_atomic_write_takes_the_longest_name(tmp_path: Path):
    with atomic_write(tmp_path / ("m" * 255)) as temporary:
        temporary.write_bytes(b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["m" * 255]


@pytest.mark.parametrize(
    "name", ["missing/ball.csv", "folder.csv", "loop.csv", "file/ball.csv", "null\0.csv"]
)
def test_an_impossible_place_is_one_sentence(name: str, tmp_path: Path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    before = sorted(tmp_path.iterdir())
    recording = Recording((Run(np.arange(4.0), np.arange(4.0).reshape(4, 1, 1)),), 1.0)
    with pytest.raises(InputError, match="cannot be written") as caught:
        write_recording(recording, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def test_devices_are_not_replaced():
    with pytest.raises(InputError, match="special file"), atomic_write(os.devnull):
        pass
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_never_crash(suffix: str, seed: int, tmp_path: Path):
    """Cut or changed bytes give a recording or one sentence, nothing else."""
    generator = np.random.default_rng(seed)
    save(table(samples=30, run=[0] * 30), tmp_path / f"whole.{suffix}")
    whole = (tmp_path / f"whole.{suffix}").read_bytes()
    path = tmp_path / f"damaged.{suffix}"
    for trial in range(40):
        damaged = bytearray(whole)
        if trial % 2:
            damaged = damaged[: generator.integers(1, len(damaged))]
        else:
            for place in generator.integers(len(damaged), size=3):
                damaged[place] = generator.integers(256)
        path.write_bytes(damaged)
        with suppress(InputError):
            read_recording(path)


def test_numpy_can_open_what_is_written(tmp_path: Path):
    recording = Recording((Run(np.arange(4.0), np.arange(4.0).reshape(4, 1, 1)),), 1.0)
    write_recording(recording, tmp_path / "ball.npz")
    assert zipfile.ZipFile(tmp_path / "ball.npz").testzip() is None
    with np.load(tmp_path / "ball.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["q1"], np.arange(4.0))
