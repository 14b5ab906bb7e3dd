"""The command line: one command per user task, no logic."""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec

from carom.errors import InputError, SettingsError, as_options
from carom.stopping import discard_output, end_process, quiet_interruption
from carom.version import __version__

COMMANDS = (
    "simulate",
    "init",
    "fit",
    "forecast",
    "compare",
    "report",
    "show",
    "sweep",
    "reproduce",
    "demo",
    "bench",
)
"""Each is the function of this name in the module of this name."""
RESUMED = ("fit", "compare", "sweep", "reproduce")
"""Those that continue where they were stopped."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command named in `arguments`, by default those of the process, which it then ends.

    Bad input is one sentence on standard error and exit status 2; an interruption is status 130.
    """
    own_process = arguments is None
    # In a test or a notebook the process is not ours to end.
    leave = end_process if own_process else sys.exit
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            with quiet_interruption() if own_process else nullcontext():
                command = _load(arguments)
            command()
        # Now rather than at exit, where nobody could handle a full disk or a closed pipe.
        finally:
            if sys.stdout is not None:  # a process may be started without
                sys.stdout.flush()
    except InputError as error:
        message = as_options(str(error)) if isinstance(error, SettingsError) else str(error)
        print(f"carom: {message}", file=sys.stderr)
        leave(2)
    except KeyboardInterrupt:
        continues = " The same command continues." if arguments and arguments[0] in RESUMED else ""
        print(f"carom: stopped.{continues}", file=sys.stderr)
        leave(130)
    except BrokenPipeError:
        # The reader of our output has gone (`carom … | head`); nothing is left to say.
        discard_output()
        sys.exit(0)
    except OSError as error:
        # Errors of files have a name; errors of streams have none.
        discard_output()
        place = "The output" if error.filename is None else f"{error.filename}: the file"
        reason = error.strerror or error
        print(f"carom: {place} cannot be written or read ({reason}); choose another place.", file=sys.stderr)
        sys.exit(2)


def _load(arguments: Sequence[str]) -> Callable[[], object]:
    """Import what the arguments need; the result runs the command."""
    # Scripts ask for this often; nothing need be imported.
    if list(arguments) == ["--version"]:
        return lambda: print(f"carom {__version__}")
    # Imported here: before Ctrl-C is handled, nothing slow may be loaded.
    import tyro

    from carom.compilation import full_precision
    from carom.storage.program_cache import configure

    # Loading one command is faster than loading all, which only the overview needs.
    named = bool(arguments) and arguments[0] in COMMANDS
    commands = {name: _command(name) for name in (arguments[:1] if named else COMMANDS)}

    @full_precision()
    def run() -> None:
        _skip_autotuning()
        configure()
        # Tracing makes many short-lived objects: collecting as often as by default takes a tenth of the time.
        gc.set_threshold(50_000, 20, 50)
        if named:  # nothing was loaded for the others
            ((name, command),) = commands.items()
            tyro.cli(command, prog=f"carom {name}", args=arguments[1:])
            return
        about = "Learn how things move and collide from recordings, and forecast them. "
        about += "carom --version prints the version."
        tyro.extras.subcommand_cli_from_dict(commands, prog="carom", description=about, args=arguments)

    return run


def _skip_autotuning() -> None:
    """Compile for a GPU without timing alternative kernels, unless the user has given XLA flags.

    The products of small networks gain nothing by it, and sixteen processes that share a GPU and time kernels
    on it at once compile three times as long.
    """
    if any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        os.environ.setdefault("XLA_FLAGS", "--xla_gpu_autotune_level=0")


def _command(name: str) -> Callable[..., None]:
    return getattr(import_module(f"carom.cli.{name}"), name)
