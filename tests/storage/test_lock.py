"""Locked directories: other commands are refused, and a killed one blocks nobody."""

import subprocess
import sys
from pathlib import Path

import pytest

from carom.errors import InputError
from carom.storage.atomic import LOCK, locked

HOLD = """
import sys
from pathlib import Path
from carom.storage.atomic import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> subprocess.Popen:
    """Another process that has the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_kept_out_until_the_first_has_ended(tmp_path):
    with hold(tmp_path) as other:
        with (
            pytest.raises(InputError, match="another command is working in this directory"),
            locked(tmp_path),
        ):
            pass
        other.kill()
        other.wait()
        assert (tmp_path / LOCK).exists()
        with locked(tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_taken_over_is_held(tmp_path):
    with locked(tmp_path):
        (tmp_path / LOCK).unlink()  # as one that ends does, after another has opened the file
        with locked(tmp_path), pytest.raises(InputError), locked(tmp_path):
            pass
        assert not (tmp_path / LOCK).exists()


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be written to"), locked(tmp_path / "none"):
        pass
