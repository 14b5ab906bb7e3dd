"""Whether reading a file ends well: with what it holds or with one sentence, soon, and in little memory."""

import contextlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from carom.errors import InputError

SECONDS = 10.0
"""The longest that one file may take; on a busy machine most of that is waiting."""
BYTES = 2**30
"""How much memory reading one file may take."""


class Watched:
    """Counts what comes of files, and lists what must not."""

    def __init__(self):
        self.read = self.refused = 0
        self.slowest, self.largest = 0.0, 0
        self.faults: list[str] = []

    def try_file(self, read: Callable[[], object], what: str) -> None:
        """Read one file; everything but an answer or a sentence is a fault."""
        _forget_peak()
        before = _memory("VmRSS")
        began = time.process_time(), time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                read()
                self.read += 1
            except InputError as error:
                self.refused += 1
                if not _is_sentence(str(error)):
                    self.faults.append(f"{what}: no sentence: {str(error)!r}")
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt | SystemExit):
                    raise
                self.faults.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        seconds = min(time.process_time() - began[0], time.monotonic() - began[1])
        used = max(_memory("VmHWM") - before, 0)
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, used)
        if caught:
            self.faults.append(f"{what}: warns: {caught[0].message}")
        if seconds > SECONDS:
            self.faults.append(f"{what}: {seconds:.1f} s")
        if used > BYTES:
            self.faults.append(f"{what}: {used / 2**20:.0f} MiB")

    def __str__(self) -> str:
        return (
            f"{self.read} read, {self.refused} refused, slowest {self.slowest:.2f} s, "
            f"largest {self.largest / 2**20:.0f} MiB, {len(self.faults)} faults"
        )


def _is_sentence(text: str) -> bool:
    return 10 < len(text) < 2500 and text[-1] in ".?" and text.isprintable()


def _memory(name: str) -> int:
    """Bytes by a line of /proc/self/status; 0 where there is no such file."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return 1024 * int(line.split()[1])
    return 0


def _forget_peak() -> None:
    """Have Linux measure the peak of memory anew."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
