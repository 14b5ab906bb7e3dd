"""Damaged files of every format: an answer or one sentence, soon and in little memory."""

import subprocess
import sys
from functools import partial

import pytest

from carom.data import read_recording
from carom.data.io.column_guess import guess_columns
from carom.data.io.formats import MAXIMUM_VALUES
from tests.hostile.formats import FORMATS
from tests.hostile.mutations import mutated
from tests.hostile.watched import Watched


def try_files(name: str, folder, numbers: range) -> Watched:
    """Read the mutated files of these numbers, one after another."""
    form = FORMATS[name]
    seeds = form.prepare(folder)
    path = folder / form.place
    watched = Watched()
    path.write_bytes(seeds[0])
    form.read(folder)  # what a first call loads is not counted
    for number in numbers:
        path.write_bytes(mutated(seeds, form.mutations, number))
        watched.try_file(lambda: form.read(folder), f"{name} {number}")
    return watched


@pytest.mark.parametrize("name", FORMATS)
def test_some_damaged_files(name, tmp_path, capfd):
    # Every file that holds a model is traced anew, which takes a tenth of a second or more.
    watched = try_files(name, tmp_path, range(15 if name.startswith(("model", "fit: ")) else 60))
    assert not watched.faults, watched.faults[:5]
    assert watched.refused > 0 or name == "checkpoint"
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FORMATS)
def test_five_thousand_damaged_files(name, tmp_path, capfd, record_property):
    watched = try_files(name, tmp_path, range(1000, 6000))
    printed = capfd.readouterr()
    record_property("watched", str(watched))
    with capfd.disabled():
        print(f"\n{name}: {watched}")
    assert not watched.faults, watched.faults[:5]
    assert printed.out + printed.err == ""


@pytest.mark.campaign
@pytest.mark.parametrize("suffix", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("rows", [MAXIMUM_VALUES // 2, 2 * MAXIMUM_VALUES])
def test_small_files_that_unpack_to_much(suffix, rows, tmp_path):
    path = tmp_path / f"bomb.{suffix}"
    program = f"""
import numpy as np, polars as pl
frame = pl.DataFrame(dict(t=np.arange({rows}), q1=np.zeros({rows}, int)))
if "{suffix}" == "npz":
    np.savez_compressed("{path}", **{{name: frame[name].to_numpy() for name in frame.columns}})
else:
    getattr(frame, "write_{suffix}")("{path}")
"""
    subprocess.run([sys.executable, "-c", program], check=True)  # so that this process stays small
    for read in (read_recording, guess_columns):
        watched = Watched()
        watched.try_file(partial(read, path), path.name)
        assert not watched.faults, watched
        assert watched.refused == 1
