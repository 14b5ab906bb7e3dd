"""`carom init`: a system file from a look at a recording."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import tyro

from carom.cli.arguments import require_output
from carom.cli.output import print_json
from carom.data import Learn, SystemFile, read_recording, write_system_file
from carom.data.io.column_guess import guess_columns
from carom.data.io.tables import MAXIMUM_BYTES
from carom.errors import InputError, require_seed
from carom.estimation.detection.scene_inference import guess_contacts
from carom.mechanics import Pair, Scene, Wall
from carom.storage.input_file import require_file


def init(
    recording: Annotated[Path, tyro.conf.Positional],
    /,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Look at a recording and write a commented system file for it, guesses marked as guesses.

    Example: carom init ball.csv

    Columns, bodies, dimension and step size come from names and numbers; walls and pairs of bodies that
    touch, where they are, restitution and ratios of masses from kinks in the motion. Read what it wrote,
    correct what is wrong, and go on with carom fit.

    Args:
        recording: What was measured: .csv, .parquet or .npz, one row per sample.
        out: The system file, by default the .toml beside the recording.
        overwrite: Replace the system file if it exists.
        seed: Unused, as nothing here is random; every command takes it.
        json: Print one JSON object instead of sentences.
    """
    require_seed(seed)
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    out = out or recording.with_suffix(".toml")
    if out == recording:
        raise InputError(f"{recording}: a recording ends in .csv, .parquet or .npz; this is a system file.")
    require_output(out, overwrite=overwrite)
    guess = guess_columns(recording)
    columns = guess.columns
    bare = Scene(bodies=guess.bodies, dimension=guess.dimension)
    data = read_recording(
        recording, columns=columns, scene=bare, step_size=guess.step_size, missing=guess.missing
    )
    contacts = guess_contacts(data)
    restitution = 1.0 if contacts.restitution is None else float(f"{contacts.restitution:.2g}")
    pairs = any(isinstance(candidate, Pair) for candidate in contacts.candidates)
    scene = replace(
        bare,
        candidates=tuple(_rounded(candidate) for candidate in contacts.candidates),
        restitution=restitution,
        masses=tuple(float(f"{mass:.2g}") for mass in contacts.masses),
    )
    remarks = dict(guess.remarks)
    counts = {"wall": 0, "pair": 0}
    for candidate, seen in zip(contacts.candidates, contacts.impacts, strict=True):
        kind = "wall" if isinstance(candidate, Wall) else "pair"
        counts[kind] += 1
        remarks[f"{kind} {counts[kind]}"] = f"GUESS: {seen} kink{'s' * (seen > 1)} in the motion"
    if contacts.candidates:
        remarks["restitution"] = f"GUESS, from {sum(contacts.impacts)} impacts"
        remarks["learn.restitution"] = "so the value above only starts the search"
    else:
        remarks["restitution"] = "no impact was seen"
    if pairs:
        remarks["masses"] = "GUESS, by how far the bodies throw each other"
        remarks["learn.masses"] = "impacts between bodies tell their ratio"
    elif guess.bodies > 1:
        remarks["masses"] = "GUESS: nothing was seen that tells"
    if guess.step_size is None:
        kind = "found in the times, which are even" if data.even else "the median of the times, which vary"
        remarks["step_size"] = kind
    learn = Learn(restitution="constant" if contacts.candidates else "fixed", masses=pairs)
    write_system_file(
        SystemFile(scene, columns, guess.step_size, learn, guess.missing),
        out,
        remarks=remarks,
        unused=guess.unused,
        found_step=data.step_size,
    )
    touch = " --touch imperfect" if columns.touch and scene.contacts else ""
    blind = f" --mask {contacts.blind}" if contacts.blind else ""
    command = f"carom fit {recording}{touch}{blind} --hold-out 0.2 --out runs/{recording.stem}"
    if out != recording.with_suffix(".toml"):
        command += f" --system {out}"
    if json:
        print_json(
            {
                "system": str(out),
                "bodies": scene.bodies,
                "dimension": scene.dimension,
                "runs": len(data.runs),
                "samples": data.samples,
                "step_size": data.step_size,
                "walls": counts["wall"],
                "pairs": counts["pair"],
                "impacts": sum(contacts.impacts),
                "blind": contacts.blind,
                "unused": sorted(guess.unused),
                "next": command,
            }
        )
        return
    print(f"{recording}: {len(data.runs)} run(s), {data.samples} samples of {data.step_size:.6g} s.")
    print(
        f"{out}: {scene.bodies} body(s) in {scene.dimension} dimension(s), {counts['wall']} wall(s) and "
        f"{counts['pair']} pair(s) that touch ({sum(contacts.impacts)} impacts seen). "
        "Correct what is marked as a guess and wrong."
    )
    if contacts.blind:
        print(
            f"Contacts seem to last for several samples; --mask {contacts.blind} hides so many either side "
            "of each impact from the fit."
        )
    if "time" in guess.remarks and "not seconds" in guess.remarks["time"]:
        print(f"The column {columns.time} seems not to be in seconds but is taken to be; convert it first.")
    if guess.step_size is not None:
        print(
            f"The table has no times: {guess.step_size:g} s between samples is a guess; write what is true "
            f"under [sampling] in {out}, or impacts and rates come out wrong."
        )
    print(f"Go on with: {command}")


def _rounded(candidate: Wall | Pair) -> Wall | Pair:
    """Places to four digits: a guess is not better."""
    return replace(candidate, offset=float(f"{candidate.offset:.4g}"))
