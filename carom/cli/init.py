"""`carom init`: a system file inferred from a recording."""

import shlex
from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.console import WriterCommon, print_json, require_output
from carom.data import write_system_file
from carom.data.io.formats import MAXIMUM_BYTES
from carom.digits import counted
from carom.estimation.system_inference import InferredSystem, infer_system
from carom.mechanics import Pair, Wall
from carom.storage.input_file import complaint, require_file, shown


def init(
    recording: Annotated[Path, tyro.conf.Positional], /, *, out: Path | None = None, common: WriterCommon
) -> None:
    """Infer a system file from a recording and write it with comments, guesses marked as guesses.

    Example: carom init ball.csv

    Columns, bodies, dimension and step size come from names and numbers; walls and pairs of bodies that
    touch, where they are, restitution and ratios of masses from velocity jumps. Read what it wrote, correct
    what is wrong, and continue with carom fit.

    Args:
        recording: What was measured: .csv, .parquet or .npz, one row per sample.
        out: The system file, by default the .toml beside the recording.
    """
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    out = out or recording.with_suffix(".toml")
    if out == recording:
        raise complaint(recording, "this is a system file; a recording ends in .csv, .parquet or .npz")
    require_output(out, overwrite=common.overwrite)
    inferred = infer_system(recording)
    write_system_file(inferred.system_file, out)
    command = _next_command(inferred, recording, out)
    if not common.json:
        _print_sentences(inferred, recording, out)
        print(f"Continue with: {command}")
        return
    data, scene = inferred.recording, inferred.system_file.scene
    print_json(
        {
            "system": str(out),
            "bodies": scene.bodies,
            "dimension": scene.dimension,
            "runs": len(data.runs),
            "samples": data.samples,
            "step_size": data.step_size,
            "walls": inferred.count(Wall),
            "pairs": inferred.count(Pair),
            "impacts": sum(inferred.contacts.impacts),
            "mask": inferred.contacts.mask,
            "unused": sorted(inferred.columns.unused),
            "next": command,
        }
    )


def _next_command(inferred: InferredSystem, recording: Path, out: Path) -> str:
    """The command that fits the recording, safe to paste into a shell."""
    words = ["carom", "fit", str(recording)]
    if inferred.columns.columns.touch and inferred.contacts.candidates:
        words += ["--touch", "imperfect"]
    if inferred.contacts.mask:
        words += ["--mask", str(inferred.contacts.mask)]
    if inferred.contacts.candidates:
        words += ["--learn", "auto"]
    # So that the first fit is scored by data that it has not seen.
    words += ["--hold-out", "0.2", "--out", f"runs/{recording.stem}"]
    if out != recording.with_suffix(".toml"):
        words += ["--system", str(out)]
    # Control characters in a name are shown as �: better a command that fails than one that runs escapes.
    return shown(shlex.join(words), length=5000)


def _print_sentences(inferred: InferredSystem, recording: Path, out: Path) -> None:
    data, guess, contacts = inferred.recording, inferred.columns, inferred.contacts
    source, target = (shown(path, length=1000) for path in (recording, out))
    runs = counted(len(data.runs), "run")
    print(f"{source}: {runs}, {data.samples} samples, {data.step_size:.6g} s apart.")
    print(
        f"{target}: {counted(guess.bodies, 'body', 'bodies')} in {counted(guess.dimension, 'dimension')}; "
        f"{counted(inferred.count(Wall), 'wall')}, {counted(inferred.count(Pair), 'pair')} and "
        f"{counted(sum(contacts.impacts), 'impact')} found. Check what is marked as a guess."
    )
    if contacts.mask:
        print(
            f"Contacts seem to last for several samples; --mask {contacts.mask} masks that many samples "
            "either side of each impact in the fit."
        )
    if "not seconds" in guess.remarks.get("columns.time", ""):
        print(f"The times in {shown(guess.columns.time)} do not seem to be in seconds; convert them first.")
    if guess.step_size is not None:
        print(
            f"The table has no times, and {guess.step_size:g} s between samples is a guess; write the true "
            f"step under [sampling] in {target}, or all rates will be wrong."
        )
