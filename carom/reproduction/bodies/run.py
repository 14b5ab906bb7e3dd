"""Many bodies: all that `results/bodies.json` holds, in parts, each made of pieces that are kept.

A part is a name in the document and the pieces that make it; another one is added to `PARTS`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from carom.execution.tasks import Piece, run_pieces
from carom.execution.workers import Tell
from carom.reproduction.bodies.learning import learning_pieces
from carom.reproduction.bodies.mechanics import mechanics_pieces
from carom.reproduction.bodies.transfer import transfer_pieces
from carom.reproduction.paper.results import rounded, write_document

PARTS: dict[str, Callable[[Sequence[int], Path], list[Piece]]] = {
    "mechanics": mechanics_pieces,
    "learning": learning_pieces,
    "transfer": transfer_pieces,
}
Results = dict[str, dict[str, dict[str, Any]]]
"""By part and piece; the file of a piece is called `<part>.<piece>.json`."""


def run_bodies(
    seeds: Sequence[int], folder: Path, *, workers: int = 1, progress: Tell | None = None
) -> Results:
    """Make what is not yet in `folder`; a killed run continues here."""
    pieces = [piece for make in PARTS.values() for piece in make(seeds, folder)]
    results: Results = {part: {} for part in PARTS}
    for piece, result in zip(pieces, run_pieces(pieces, workers=workers, progress=progress), strict=True):
        part, _, name = piece.path.stem.partition(".")
        results[part][name] = result
    return results


def write_bodies(results: Results, path: Path, *, seeds: Sequence[int], command: str) -> dict[str, Any]:
    """One document with every part, written and returned."""
    dropped = ("fingerprint", "device", "versions")
    return write_document(
        path,
        command=command,
        devices=[piece["device"] for part in results.values() for piece in part.values()],
        seeds=list(seeds),
        **{
            part: {
                name: rounded({key: value for key, value in piece.items() if key not in dropped})
                for name, piece in pieces.items()
            }
            for part, pieces in results.items()
        },
    )
