"""The command line with a note in a file at the beginning of every round of a fit that is made, not read.

`python -m tests.cli.counted_rounds LOG fit …` is `carom fit …`.
"""

import os
import sys

from carom.cli import main
from carom.storage.checkpoints import Stage


def note_rounds(log: str) -> None:
    """Append the file of the stage and the number of the round to `log` before each is made."""
    given = Stage.round

    def noted(self: Stage, make):
        def made():
            with open(log, "a") as file:  # noqa: PTH123
                name = "unnamed" if self._path is None else self._path.stem
                file.write(f"{name} {len(self._records)}\n")
                file.flush()
                os.fsync(file.fileno())
            return make()

        return given(self, made)

    Stage.round = noted


if __name__ == "__main__":
    note_rounds(sys.argv[1])
    main(sys.argv[2:])
