"""Time-stepping schemes, one per file. They take functions, not systems."""

from carom.integrators.base import AbstractStepper, Mechanical
from carom.integrators.cd_lagrange import (
    CDLagrange,
    ContactReport,
    Detection,
    cd_lagrange_step,
    to_half_grid,
    to_sample_grid,
)
from carom.integrators.constraint_exact.contact_times import BY_GAP, EXCLUDED, PRESCRIBED, Modes
from carom.integrators.constraint_exact.many import rebounds, step_many
from carom.integrators.constraint_exact.prescribed import prescribed_step
from carom.integrators.constraint_exact.step import ConstraintExact, ImpactReport, constraint_exact_step
from carom.integrators.event_driven.balls import Balls
from carom.integrators.event_driven.motion import EventReport, ReportKind, event_driven_motion
from carom.integrators.rollout import consecutive, prepend, rollout
from carom.integrators.verlet import stormer_verlet_step, velocity_verlet_step
