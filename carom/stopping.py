"""How the command line ends: by Ctrl-C, also while it is still loading, or with its output cut off."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def quiet_interruption() -> Iterator[None]:
    """End the process with one line instead of a traceback where Ctrl-C is pressed inside the block.

    For the loading of modules, when nothing has begun that would need to be cleaned up.
    """
    before = signal.getsignal(signal.SIGINT)
    # Whoever has installed a handler, such as a notebook, keeps it; only main threads may set one.
    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def end_process(status: int) -> NoReturn:
    """End the process now; `sys.exit` would wait for programs that are being compiled in threads."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def discard_output() -> None:
    """Drop what could not be written; the interpreter would try again at exit, and print a traceback."""
    with suppress(OSError, ValueError):  # a stream without a file needs nothing
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _stop(*_: object) -> None:
    os.write(2, b"carom: stopped.\n")
    os._exit(130)
