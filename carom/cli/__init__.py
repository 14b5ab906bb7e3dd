"""The command line: one command per user task, no logic."""

import sys
from collections.abc import Callable, Sequence

import tyro

from carom.cli.demo import demo
from carom.cli.fit import fit
from carom.cli.forecast import forecast
from carom.cli.simulate import simulate
from carom.errors import InputError

COMMANDS: dict[str, Callable[..., None]] = {
    "simulate": simulate,
    "fit": fit,
    "forecast": forecast,
    "demo": demo,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command named in `arguments`, by default those of the process.

    Bad input is one sentence on standard error and exit status 2; an interruption is status 130.
    """
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="carom",
            description="Learn how things move and collide from recordings, and forecast them.",
            args=arguments,
        )
    except InputError as error:
        print(f"carom: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("carom: stopped.", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`carom … | head`); nothing is left to say.
        sys.stderr.close()
        sys.exit(0)
