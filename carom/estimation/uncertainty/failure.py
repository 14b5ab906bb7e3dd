"""Why a fit failed, by checks of the data against its scene, the most telling first."""

from collections.abc import Sequence

import numpy as np

from carom.data import Recording
from carom.digits import counted
from carom.estimation.detection.impacts import Impacts

BEHIND, FAR = 0.02, 0.02
"""Fraction of the samples behind a surface that speaks against it, and how far behind, relative to the range
of motion."""
LEFT_OUT = 0.2
"""Fraction of the samples beside unexplained jumps from which on contacts seem to be missing."""
FEW = 6
"""Samples between two velocity jumps below which a frame rate is too low."""
ODD = 9.0
"""Ratio of the mean squared residual of a run to that of most runs from which on the run is named."""


def likely_cause(
    recording: Recording, impacts: Sequence[Impacts], squares: Sequence[float], left_out: float
) -> str:
    """One sentence about the likeliest cause of a failed fit.

    Arguments:
        recording: what was fitted.
        impacts: as they were detected.
        squares: the mean squared residual of every run.
        left_out: fraction of the samples that no motion with these contacts explains.
    """
    scene = recording.scene
    assert scene is not None
    flat = np.concatenate([run.position.reshape(len(run), -1) for run in recording.runs])
    extent = float(np.nanmax(np.nanmax(flat, axis=0) - np.nanmin(flat, axis=0)))
    found = sum(int(one.chosen.sum()) for one in impacts)
    pieces = [end - start for one in impacts for start, end in one.pieces]
    if scene.contacts:
        gaps = np.concatenate([np.asarray(scene.geometry.gap(run.position)) for run in recording.runs])
        # Relative to where impacts were found: surfaces need not lie where the scene says.
        at = [
            np.concatenate([one.gap[one.chosen[:, j], j] for one in impacts]) for j in range(scene.contacts)
        ]
        shift = np.array([np.median(part) if len(part) else 0.0 for part in at])
        behind = np.mean(gaps < shift - FAR * extent, axis=0)
        worst = int(np.argmax(behind))
        if behind[worst] > BEHIND:
            return (
                f"{100 * behind[worst]:.0f} % of the samples lie behind the surface "
                f"{scene.contact_name(worst)}: it may be the wrong surface, or end at an edge."
            )
    if scene.contacts and not found and len(pieces) <= len(impacts):
        return (
            "No impact was found: none may have happened, or the frame rate is too low for these bounces "
            f"(fewer than {FEW} samples from one to the next)."
        )
    if left_out > LEFT_OUT:
        if np.median(pieces) < 2 * FEW:
            return (
                f"Velocities jump every {np.median(pieces):.0f} samples without a contact that explains it: "
                "the frame rate may be too low for these bounces."
            )
        return (
            f"{100 * left_out:.0f} % of the samples lie beside velocity jumps that no contact explains: "
            "a wall or a pair may be missing in the system file."
        )
    odd = np.flatnonzero(np.array(squares) > ODD * np.median(squares))
    if len(odd) and len(odd) < 0.5 * len(squares):
        names = ", ".join(str(recording.runs[k].label or k + 1) for k in odd[:5])
        return f"The residuals are large in {counted(len(odd), 'run')} only ({names}): look at these."
    return (
        "The motion between impacts is not that of the model: let the terms be chosen (learn auto), or learn "
        "another potential, drag or damping."
    )
