"""Ctrl-C while the command line is still loading, which takes a second or two."""

import os
import signal
import sys
import threading
from pathlib import Path


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


def _stop(*_: object) -> None:
    os.write(2, b"carom: stopped.\n")
    os._exit(130)  # nothing has begun that would have to be cleaned up


def _is_command_line() -> bool:
    if sys.argv[:1] == ["-m"]:  # as it is until the module that was named is found
        after = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return after[:1] == ["carom"]
    return bool(sys.argv) and Path(sys.argv[0]).stem == "carom"
