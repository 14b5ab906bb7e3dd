"""The command line: one command per user task, no logic."""

import sys
from collections.abc import Callable, Sequence

import tyro

from carom import __version__
from carom.cli.compare import compare
from carom.cli.demo import demo
from carom.cli.fit import fit
from carom.cli.forecast import forecast
from carom.cli.init import init
from carom.cli.output import discard_output, flush_output
from carom.cli.report import report
from carom.cli.reproduce import reproduce
from carom.cli.show import show
from carom.cli.simulate import simulate
from carom.errors import InputError

COMMANDS: dict[str, Callable[..., None]] = {
    "simulate": simulate,
    "init": init,
    "fit": fit,
    "forecast": forecast,
    "compare": compare,
    "report": report,
    "show": show,
    "reproduce": reproduce,
    "demo": demo,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command named in `arguments`, by default those of the process.

    Bad input is one sentence on standard error and exit status 2; an interruption is status 130.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            _run(arguments)
        finally:
            flush_output()
    except InputError as error:
        print(f"carom: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("carom: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`carom … | head`); nothing is left to say.
        discard_output()
        sys.exit(0)
    except OSError as error:
        # What concerns a file names it; streams have no name.
        discard_output()
        place = "The output" if error.filename is None else f"{error.filename}: the file"
        reason = error.strerror or error
        print(f"carom: {place} cannot be written or read ({reason}); choose another place.", file=sys.stderr)
        sys.exit(2)


def _run(arguments: Sequence[str]) -> None:
    if list(arguments) == ["--version"]:
        print(f"carom {__version__}")
        return
    tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="carom",
        description="Learn how things move and collide from recordings, and forecast them. "
        "carom --version prints the version.",
        args=arguments,
    )
