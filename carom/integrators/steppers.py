"""The constraint-exact and the CD-Lagrange scheme as parts of a mechanism."""

from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from carom.integrators.base import AbstractStepper, Mechanical, Touching
from carom.integrators.cd_lagrange import ContactReport, cd_lagrange_step, to_half_grid, to_sample_grid
from carom.integrators.constraint_exact.contact_times import BY_GAP, PRESCRIBED, Modes
from carom.integrators.constraint_exact.prescribed import prescribed_step
from carom.integrators.constraint_exact.step import constraint_exact_step
from carom.mechanics import (
    Masses,
    Projection,
    Scene,
    contact_rate,
    friction_brake,
    project_overlap,
    restitution_impulse,
    unilateral_impulse,
)
from carom.types import PerContact, Scalar, State, Values, VelocityGrid

Detection = Literal["arrival", "departure"]
"""Where a CD-Lagrange step tests its gaps: at the drifted position, or where the step begins."""
MAX_IMPACTS = 8
"""Resolved within one step at most, by default."""


class ConstraintExact(AbstractStepper):
    """Velocity Verlet up to the instant of contact, an impact there, and on.

    Forces that depend on the velocity are split off, half before and half after, so that the path inside the
    step is that of a potential.
    """

    name: ClassVar[str] = "constraint_exact"
    max_impacts: int | None = eqx.field(static=True, default=None)
    """Within one step; by default one more than there are bodies, and no more than `MAX_IMPACTS`: a body that
    makes
    more has come to rest on the surface."""

    @classmethod
    def for_scene(cls, scene: Scene, *, max_impacts: int | None = None) -> "ConstraintExact":
        return cls(max_impacts)

    def stated(self) -> dict[str, Any]:
        return {}

    def enter(self, mechanism: Mechanical, state: State, step_size: Scalar) -> State:
        return state

    def leave(self, mechanism: Mechanical, before: State, after: State, contact: Touching) -> State:
        return after

    def step(
        self,
        mechanism: Mechanical,
        state: State,
        step_size: Scalar,
        modes: Modes,
        *,
        most: int | None = None,
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        started = State(state.position, mechanism.dissipate(state.velocity, 0.5 * step_size))
        if most is None:
            after, report = constraint_exact_step(
                started,
                step_size,
                inertia=mechanism.inertia(),
                force=mechanism.conservative_force,
                geometry=mechanism.geometry,
                restitution=mechanism.restitution_at,
                friction=mechanism.friction_coefficient(),
                max_impacts=self.max_impacts or min(len(state.position) + 1, MAX_IMPACTS),
                modes=modes,
            )
            contact, instant = report.contact, report.instant
        else:
            after, instant = self._prescribed(mechanism, started, step_size, modes, most)
            contact = modes == PRESCRIBED
        return State(after.position, mechanism.dissipate(after.velocity, 0.5 * step_size)), contact, instant

    def _prescribed(
        self, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes, most: int
    ) -> tuple[State, PerContact]:
        """The same where every contact is prescribed or excluded, at a cost that does not grow with their
        number."""
        happens, chosen = jax.lax.top_k((modes == PRESCRIBED).astype(int), most)
        inertia, friction = mechanism.inertia(), mechanism.friction_coefficient()
        assert isinstance(inertia, Masses)

        def restitution(rate: PerContact) -> PerContact:
            # Those that are not chosen are given a rate at which a law has a value.
            rates = jnp.full(modes.shape, -1.0, rate.dtype).at[chosen].set(rate)
            return mechanism.restitution_at(rates)[chosen]

        after, instants = prescribed_step(
            state,
            step_size,
            masses=inertia.masses,
            force=mechanism.conservative_force,
            contacts=mechanism.geometry.rows.take(chosen),
            happens=happens > 0,
            restitution=restitution,
            friction=None if friction is None else friction[chosen],
        )
        return after, jnp.full(modes.shape, 0.5, instants.dtype).at[chosen].set(instants)


class CDLagrange(AbstractStepper):
    """The CD-Lagrange step, for data that such a scheme has made.

    Contacts happen where a gap is negative and the impulse pushes apart (g < 0, λ > 0), or where they are
    prescribed.

    Arguments:
        detection: where gaps are tested; the published cradle tests them at its departure.
        velocity_grid: whether sampled velocities are taken as half-step velocities as they are.
        projection: what removes overlap at body–body contacts.
        reference: where the bodies of a pair meet, for the projection "reference_point".
    """

    name: ClassVar[str] = "cd_lagrange"
    reference: Float[Values, "bodies dimension"]
    detection: Detection = eqx.field(static=True)
    velocity_grid: VelocityGrid = eqx.field(static=True)
    projection: Projection = eqx.field(static=True)

    @classmethod
    def for_scene(cls, scene: Scene, *, detection: Detection = "arrival", **stated: Any) -> "CDLagrange":
        reference = np.zeros((scene.bodies, scene.dimension))
        if scene.reference:
            reference = np.asarray(scene.reference, float)
        grid, projection = (
            stated.get("velocity_grid", scene.velocity_grid),
            stated.get("projection", scene.projection),
        )
        return cls(reference, detection, grid, projection)

    def stated(self) -> dict[str, Any]:
        reference = tuple(tuple(float(x) for x in row) for row in np.asarray(self.reference))
        return {
            "velocity_grid": self.velocity_grid,
            "projection": self.projection,
            "reference": reference if self.projection == "reference_point" else (),
        }

    def enter(self, mechanism: Mechanical, state: State, step_size: Scalar) -> State:
        if self.velocity_grid == "sample":
            return state
        return to_half_grid(state, step_size, inertia=mechanism.inertia(), force=mechanism.force)

    def leave(self, mechanism: Mechanical, before: State, after: State, contact: Touching) -> State:
        if self.velocity_grid == "sample":
            return after
        return to_sample_grid(
            before,
            after,
            inertia=mechanism.inertia(),
            geometry=mechanism.geometry,
            touching=contact.astype(after.position.dtype),
            rough=mechanism.friction_coefficient() is not None,
        )

    def step(
        self,
        mechanism: Mechanical,
        state: State,
        step_size: Scalar,
        modes: Modes,
        *,
        most: int | None = None,
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        after, _, contact = self.reported_step(mechanism, state, step_size, modes)
        return after, contact, jnp.full(contact.shape, 0.5, state.position.dtype)

    def reported_step(
        self, mechanism: Mechanical, state: State, step_size: Scalar, modes: Modes
    ) -> tuple[State, ContactReport, Bool[Array, "contacts"]]:
        """One step, what its contacts did, and which of them carried an impulse or were prescribed."""
        geometry, friction = mechanism.geometry, mechanism.friction_coefficient()

        def detect(position, velocity):
            tested = state.position if self.detection == "departure" else position
            return jnp.where(modes == BY_GAP, geometry.gap(tested) < 0, modes == PRESCRIBED)

        def impulse(jacobian, inertia, before, smooth, touching):
            law = mechanism.restitution_at(contact_rate(jacobian, before))
            if geometry.coupled:
                return unilateral_impulse(
                    jacobian, inertia, before, smooth, restitution=law, touching=touching
                )
            active = touching.astype(before.dtype)
            found = restitution_impulse(jacobian, inertia, before, smooth, restitution=law, active=active)
            # Whoever prescribes a contact vouches for it; otherwise an impulse may only push.
            return jnp.where(modes == BY_GAP, jnp.maximum(found, 0), found), jnp.ones((), bool)

        def project(position, touching):
            return project_overlap(
                self.projection,
                geometry,
                mechanism.inertia(),
                position,
                touching,
                reference=jnp.asarray(self.reference),
            )

        def brake(jacobian, velocity, normal_impulse):
            assert friction is not None
            return friction_brake(
                jacobian, mechanism.inertia(), geometry.signs, velocity, normal_impulse, friction=friction
            )

        after, report = cd_lagrange_step(
            state,
            step_size,
            inertia=mechanism.inertia(),
            force=mechanism.force,
            geometry=geometry,
            detect=detect,
            impulse=impulse,
            project=project,
            friction=None if friction is None else brake,
        )
        return after, report, jnp.where(modes == BY_GAP, report.impulse > 0, modes == PRESCRIBED)
