"""What became of every sample of a recording in a fit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from carom.data import Recording
from carom.estimation.detection.impacts import Impacts
from carom.estimation.solver.segments import Prescription

NOTABLE = 0.05
"""Fraction of the samples left out from which on a fit says so first."""


class SampleCounts(NamedTuple):
    """Numbers of positions of a body in a recording, each counted once, by what became of it."""

    used: int
    missing: int
    """Not measured, or of a time outside the data."""
    outliers: int
    """Far off the motion: a lost track, a swap, a reflection."""
    masked: int
    """Around impacts of finite duration (mask)."""
    left_out: int
    """In parts that no motion with these contacts explains: before a release, at rest, between bounces too
    quick for the frame rate, after a jump of unknown cause."""
    unexplained: int
    """In short runs whose impacts could not be determined."""

    @property
    def total(self) -> int:
        return sum(self)

    @property
    def message(self) -> str | None:
        """A sentence if more than `NOTABLE` of what was measured was not used; a mask is no surprise."""
        measured = self.total - self.missing
        lost = measured - self.used - self.masked
        if lost <= NOTABLE * measured:
            return None
        reasons = {
            "outliers": self.outliers,
            "at rest, between bounces too quick for the frame rate, before a release, or beside a jump that "
            "no contact explains": self.left_out,
            "in runs that no impacts explain": self.unexplained,
        }
        listed = "; ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
        return (
            f"{lost} of {measured} measured samples ({100 * lost / measured:.0f} %) were not used: {listed}."
        )


def count_samples(
    recording: Recording, impacts: Sequence[Impacts], prescriptions: Sequence[Prescription]
) -> SampleCounts:
    """Count the samples of every body by what became of them; the first reason counts."""
    counts = np.zeros(len(SampleCounts._fields), int)
    for run, found, prescription in zip(recording.runs, impacts, prescriptions, strict=True):
        measured = np.isfinite(run.position).all(axis=2)
        inside = np.zeros(measured.shape, bool)
        for start, end in found.pieces:
            inside[start:end] = True
        reasons = {
            "missing": ~measured,
            "unexplained": np.full(measured.shape, not found.explained),
            "left_out": ~inside,
            "outliers": found.outlier,
            "masked": ~prescription.used,
        }
        order = [SampleCounts._fields.index(name) for name in reasons]
        reason = np.select(list(reasons.values()), order, SampleCounts._fields.index("used"))
        counts += np.bincount(reason.ravel(), minlength=len(counts))
    return SampleCounts(*counts.tolist())
