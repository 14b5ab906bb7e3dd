"""What several tests of commands begin with."""

import pytest

from carom.cli import main


@pytest.fixture
def ball(tmp_path, capsys):
    """A recording on disk."""
    path = tmp_path / "ball.csv"
    main(["simulate", "ball", "--steps", "40", "--out", str(path)])
    capsys.readouterr()
    return path
