"""A system file inferred from a recording: columns by their names, contacts by velocity jumps."""

from dataclasses import dataclass, replace
from pathlib import Path

from carom.data import Recording, SystemFile, read_recording
from carom.data.io.column_guess import ColumnGuess, guess_columns
from carom.data.io.system_file import Comments
from carom.estimation.detection.scene_inference import ContactGuess, guess_contacts
from carom.mechanics import Candidate, Pair, Scene, Wall


@dataclass(frozen=True, eq=False)
class InferredSystem:
    """A system inferred from a recording, to be checked by the user.

    Arguments:
        recording: the data.
        columns: inferred meaning of the columns.
        contacts: inferred contacts.
        system_file: the same as the content of a system file, rounded, with comments that mark guesses.
    """

    recording: Recording
    columns: ColumnGuess
    contacts: ContactGuess
    system_file: SystemFile

    def count(self, kind: type[Candidate]) -> int:
        """Number of walls, or of pairs that touch."""
        return sum(isinstance(candidate, kind) for candidate in self.contacts.candidates)


def infer_system(path: Path) -> InferredSystem:
    """Infer the content of a system file; raises `InputError` if the file is no table of positions.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file with one row per sample.
    """
    columns = guess_columns(path)
    scene = Scene(bodies=columns.bodies, dimension=columns.dimension)
    recording = read_recording(
        path,
        columns=columns.columns,
        scene=scene,
        step_size=columns.step_size,
        missing=columns.missing,
    )
    contacts = guess_contacts(recording)
    scene = replace(
        scene,
        candidates=tuple(
            replace(candidate, offset=_rounded(candidate.offset, 4)) for candidate in contacts.candidates
        ),
        restitution=1.0 if contacts.restitution is None else _rounded(contacts.restitution, 2),
        masses=tuple(_rounded(mass, 2) for mass in contacts.masses),
    )
    pairs = any(isinstance(candidate, Pair) for candidate in contacts.candidates)
    # Only impacts between bodies determine mass ratios.
    learn = ("restitution",) * bool(contacts.candidates) + ("surfaces",) + ("masses",) * pairs
    remarks = columns.remarks | _remarks(recording, columns, contacts, pairs=pairs)
    comments = Comments(remarks, columns.unused, recording.step_size)
    content = SystemFile(scene, columns.columns, columns.step_size, learn, columns.missing, comments)
    return InferredSystem(recording, columns, contacts, content)


def _rounded(value: float, digits: int) -> float:
    """Round to significant digits, as few as a guess deserves."""
    return float(f"{value:.{digits}g}")


def _remarks(
    recording: Recording, columns: ColumnGuess, contacts: ContactGuess, *, pairs: bool
) -> dict[str, str]:
    """Comments on the origin of contacts, restitution, masses and the step size."""
    remarks = {"system.restitution": "no impact was seen"}
    numbers = {"wall": 0, "pair": 0}
    for candidate, seen in zip(contacts.candidates, contacts.impacts, strict=True):
        kind = "wall" if isinstance(candidate, Wall) else "pair"
        numbers[kind] += 1
        remarks[f"{kind}.{numbers[kind]}"] = f"GUESS, from {seen} velocity jump{'s' * (seen > 1)}"
    if contacts.candidates:
        seen = sum(contacts.impacts)
        remarks["system.restitution"] = f"GUESS, from {seen} impact{'s' * (seen > 1)}"
        remarks["learn.parameters"] = "the values above only start the search"
    if pairs:
        remarks["system.masses"] = "GUESS, from the velocities that the bodies exchange"
    elif columns.bodies > 1:
        remarks["system.masses"] = "GUESS: no impact between bodies was seen"
    if columns.step_size is None:
        even = "found in the times, which are even"
        remarks["sampling.step_size"] = even if recording.even else "the median of the times, which vary"
    return remarks
