"""Files of results: what is written is read, and what does not follow the schema is refused in a sentence."""

import math

import numpy as np
import pytest

from carom.errors import InputError
from carom.evaluation.results import read_results, tidy_rows, wide, write_results

BALL = {"experiment": "ball", "model": "ResNet", "seed": 1}


def test_what_is_written_is_read_sorted_and_rounded(tmp_path):
    path = tmp_path / "new" / "paper.json"
    rows = [
        *tidy_rows(BALL, {"paper_rmse": np.float32(1.23456789), "missed": np.int64(2), "failed": False}),
        *tidy_rows(BALL | {"seed": 0, "noise": 0.5, "protocol": None}, {"paper_rmse": math.nan}),
    ]
    written = write_results(path, rows, command="carom reproduce ball", machine="a machine")
    read = read_results(path)
    assert read.rows.equals(written.rows)
    assert read.header == written.header
    assert (read.header["machine"], len(read.header["source_sha256"])) == ("a machine", 64)
    assert read.rows["seed"].to_list() == [0, 1, 1, 1]
    assert read.rows["metric"].to_list() == ["paper_rmse", "failed", "missed", "paper_rmse"]
    assert read.rows["value"].to_list() == [math.inf, 0.0, 2.0, 1.2346]
    assert read.rows["noise"].to_list() == [0.5, None, None, None]
    assert read.rows["protocol"].null_count() == 4
    write_results(
        path.with_name("again.json"), rows[::-1], command="carom reproduce ball", machine="a machine"
    )
    assert path.with_name("again.json").read_bytes() == path.read_bytes()
    (diverged, whole) = wide(read.rows).to_dicts()
    assert (diverged["paper_rmse"], diverged["missed"], whole["missed"]) == (math.inf, None, 2.0)


def test_two_results_for_the_same_thing_are_refused_before_anything_is_written(tmp_path):
    path = tmp_path / "paper.json"
    rows = [BALL | {"metric": "missed", "value": value} for value in (2, 3)]
    with pytest.raises(InputError, match="same keys"):
        write_results(path, rows, command="carom reproduce")
    assert not path.exists()
