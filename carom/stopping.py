"""How the command line ends early: by Ctrl-C, also while it is still loading, or because it was refused."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn


def stop_quietly_while_loading() -> None:
    """Where this process is the command line, have Ctrl-C end it with a word instead of a traceback.

    A program that imports Carom keeps its own way.
    """
    unchanged = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if unchanged and threading.current_thread() is threading.main_thread() and _is_command_line():
        signal.signal(signal.SIGINT, _stop)


def loaded() -> None:
    """From here on Ctrl-C is an exception again, which commands clean up after."""
    if signal.getsignal(signal.SIGINT) is _stop:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def leave(status: int) -> NoReturn:
    """End with a status; the command line at once, without waiting for programs that are being compiled."""
    if _is_command_line():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)
    sys.exit(status)


def _stop(*_: object) -> None:
    os.write(2, b"carom: stopped.\n")
    os._exit(130)  # nothing has begun that would have to be cleaned up


def _is_command_line() -> bool:
    if sys.argv[:1] == ["-m"]:  # as it is until the module that was named is found
        after = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return after[:1] == ["carom"]
    path = Path(sys.argv[0]) if sys.argv else Path()
    return path.stem == "carom" or path.parts[-2:] == ("carom", "__main__.py")
