"""Results on disk: what is written is read, and what was changed is refused by name."""

import numpy as np
import pytest

from carom.cli import main
from carom.errors import InputError
from carom.execution.executor import read_result, write_result
from carom.storage.tensor_file import read_arrays, write_arrays

RESULT = {"fingerprint": "a", "rows": [{"seed": 0, "error": 0.1 + 0.2}, {"seed": 1, "error": float("nan")}]}


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "result.json"
    write_result(path, RESULT | {"pair": (1, 2), 3: "three"})
    found = read_result(path)
    assert found["rows"][0] == RESULT["rows"][0]
    assert np.isnan(found["rows"][1]["error"])
    assert (found["pair"], found["3"]) == ([1, 2], "three")
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array(0.5)}
    write_arrays(path.with_suffix(".safetensors"), arrays)
    stored = read_arrays(path.with_suffix(".safetensors"))
    assert stored.keys() == arrays.keys()
    assert all(np.array_equal(stored[name], arrays[name]) for name in arrays)


@pytest.mark.parametrize("change", ["cut", "number", "list", "deep", "bytes"])
def test_what_was_changed_is_refused(change, tmp_path):
    path = tmp_path / "result.json"
    write_result(path, RESULT)
    text = path.read_text()
    changed = {
        "cut": text[: len(text) // 2],
        "number": text.replace("0.30000000000000004", "0.3"),
        "list": "[1]",
        "deep": "[" * 100_000,
        "bytes": b"\xff\xfe" + text.encode(),
    }[change]
    path.write_bytes(changed.encode() if isinstance(changed, str) else changed)
    with pytest.raises(InputError, match=r"result\.json: the file cannot be read .*; delete it and run"):
        read_result(path)


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("paper", ["damped", "--quick"]),
        ("grid", ["grid", "oracle", "--quick"]),
        ("recipe", ["recipe", "pendulum.exact"]),
    ],
)
def test_a_damaged_result_of_a_reproduction_is_named(folder, command, tmp_path, capsys, monkeypatch):
    names = {
        "paper": "damped-pendulum.published.CD-Lagrange",
        "grid": "oracle.noise-0.bounces-1",
        "recipe": "pendulum.exact.seeds-0-0",
    }
    path = tmp_path / folder / f"{names[folder]}.json"
    path.parent.mkdir()
    path.write_text('{"experiment": "ball", "rows": [')
    path.with_suffix(".safetensors").write_bytes(b"PK")
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *command, "--runs", "1", "--workers", "1", "--out", str(tmp_path)])
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{path.name}: the file cannot be read" in error
