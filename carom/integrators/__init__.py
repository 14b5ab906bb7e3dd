"""Time-stepping schemes, one per file. They take functions, not systems."""

from carom.integrators.base import Friction
from carom.integrators.cd_lagrange import ContactReport, cd_lagrange_step, to_half_grid, to_sample_grid
from carom.integrators.constraint_exact.contact_times import DECIDED_BY_GAP, EXCLUDED, SCHEDULED
from carom.integrators.constraint_exact.prescribed import decided_step
from carom.integrators.constraint_exact.step import ImpactReport, time_of_impact_step
from carom.integrators.event_driven.motion import EventReport, ReportKind, event_driven_motion
from carom.integrators.rollout import consecutive, prepend, rollout
from carom.integrators.stormer_verlet import stormer_verlet_step
from carom.integrators.velocity_verlet import velocity_verlet_step

__all__ = [
    "DECIDED_BY_GAP",
    "EXCLUDED",
    "SCHEDULED",
    "ContactReport",
    "EventReport",
    "Friction",
    "ImpactReport",
    "ReportKind",
    "cd_lagrange_step",
    "consecutive",
    "decided_step",
    "event_driven_motion",
    "prepend",
    "rollout",
    "stormer_verlet_step",
    "time_of_impact_step",
    "to_half_grid",
    "to_sample_grid",
    "velocity_verlet_step",
]
