"""`carom init`: a system file from a recording, and a command that is safe to paste."""

import json
import shlex
from pathlib import Path

import pytest

from carom.cli import main
from carom.data import read_system_file

HEADER = "t,height"
# A ball that bounces twice, by hand: no compiled program is needed.
HEIGHTS = [abs(1.0 - 0.1 * n) for n in range(20)]


def recording(path: Path, header: str = HEADER) -> Path:
    rows = [f"{0.1 * n:.1f},{height:.3f}" for n, height in enumerate(HEIGHTS)]
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "name", ["plain.csv", "two words.csv", "$(touch pwned).csv", "`id`;#&.csv", "it's.csv", "-rf.csv"]
)
def test_the_next_command_is_safe_to_paste(name: str, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = recording(tmp_path / name)
    main(["init", str(path)])
    command = capsys.readouterr().out.splitlines()[-1].removeprefix("Continue with: ")
    words = shlex.split(command)
    assert words[:3] == ["carom", "fit", str(path)]
    assert words[-1] == f"runs/{path.stem}"
    main(["init", str(path), "--overwrite", "--json"])
    assert shlex.split(json.loads(capsys.readouterr().out)["next"]) == words


def test_terminal_escapes_are_not_printed(tmp_path: Path, capsys):
    """From the name of the file, from names of columns, and in the file that is written."""
    path = recording(tmp_path / "ball\x1b[31m\x9b2J.csv", header="time_ms\x1b]0;x\x07,height\x1b[8m")
    main(["init", str(path)])
    printed = capsys.readouterr()
    assert "do not seem to be in seconds" in printed.out
    for line in (printed.out + printed.err).splitlines():
        assert line.isprintable(), line
    text = path.with_suffix(".toml").read_text()
    assert all(line.isprintable() for line in text.splitlines())
    columns = read_system_file(path.with_suffix(".toml")).columns
    assert columns is not None
    assert columns.position == ("height\x1b[8m",)


def test_errors_pass_no_escapes_on(tmp_path: Path, capsys):
    path = recording(tmp_path / "ball\x1b[31m.csv")
    path.with_suffix(".toml").write_text("")
    with pytest.raises(SystemExit):
        main(["init", str(path)])
    error = capsys.readouterr().err.removesuffix("\n")
    assert "this file exists" in error
    assert error.isprintable()
