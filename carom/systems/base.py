"""What every system provides, and the truths that follow from it."""

import warnings
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from carom.compilation import full_precision
from carom.errors import InputError
from carom.integrators import (
    Friction,
    cd_lagrange_step,
    consecutive,
    prepend,
    rollout,
    time_of_impact_step,
    to_half_grid,
    to_sample_grid,
)
from carom.mechanics import (
    ContactGeometry,
    Masses,
    Projection,
    Scene,
    contact_signs,
    friction_brake,
    kinetic_energy,
    project_overlap,
    unilateral_impulse,
)
from carom.types import Coordinates, Scalar, State, Trajectory, VelocityGrid


class AbstractSystem(eqx.Module):
    """True mechanics: a potential, masses, candidate contacts, and an exact solution.

    Add a system by writing these members in one file; the discrete truths, energies and touch signals
    follow. Parameters are plain floats, so that `dataclasses.replace(system, gravity=9.7)` is another system.
    """

    restitution: eqx.AbstractVar[float]
    damping: eqx.AbstractVar[float]

    @property
    @abstractmethod
    def geometry(self) -> ContactGeometry:
        """The candidate contacts."""

    @property
    @abstractmethod
    def masses(self) -> tuple[Scalar, ...]:
        """Generalised mass of every body (a moment of inertia where the coordinate is an angle)."""

    @property
    @abstractmethod
    def start(self) -> State:
        """The state that recordings start from unless told otherwise."""

    @property
    def reference(self) -> tuple[tuple[float, ...], ...]:
        """Where the bodies of a pair meet, for the projection "reference_point"; 0 by default."""
        return ((0.0,) * self.geometry.dimension,) * self.geometry.bodies

    @property
    def contact_friction(self) -> Scalar | None:
        """μ of every contact; None for smooth surfaces, the default."""
        return None

    @abstractmethod
    def potential(self, position: Coordinates) -> Float[Array, ""]:
        """U(q)."""

    @abstractmethod
    def exact(self, start: State, times: np.ndarray) -> Trajectory:
        """The motion at `times`, impacts at their true instants, to about 1e-10."""

    def scene(self, *, velocity_grid: VelocityGrid = "half", projection: Projection = "none") -> Scene:
        """What a learner may be told: everything but the potential and the damping."""
        return Scene(
            bodies=self.geometry.bodies,
            dimension=self.geometry.dimension,
            candidates=self.geometry.candidates,
            masses=tuple(float(mass) for mass in self.masses),
            restitution=self.restitution,
            friction=0.0 if self.contact_friction is None else float(self.contact_friction),
            velocity_grid=velocity_grid,
            projection=projection,
            reference=self.reference if projection == "reference_point" else (),
        )

    def inertia(self, dtype: DTypeLike = float) -> Masses:
        """M."""
        return Masses(jnp.asarray(self.masses, dtype))

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates:
        """F = −∂U/∂q − C v, with C = `damping` times the inertia's unit."""
        return -jax.grad(self.potential)(position) - self.damping * velocity

    def energy(self, state: State) -> Float[Array, ""]:
        """½ vᵀ M v + U(q)."""
        kinetic = kinetic_energy(self.inertia(state.position.dtype), state.velocity)
        return kinetic + self.potential(state.position)

    def energies(self, trajectory: Trajectory) -> np.ndarray:
        """The energy at every sample."""
        with jax.enable_x64(True):
            states = State(jnp.asarray(trajectory.position), jnp.asarray(trajectory.velocity))
            return np.asarray(jax.vmap(self.energy)(states))

    def scheme(
        self,
        start: State,
        *,
        steps: int,
        step_size: float,
        velocity_grid: VelocityGrid = "half",
        projection: Projection = "none",
    ) -> Trajectory:
        """The motion by the CD-Lagrange step: `steps` steps from `start`, in float64."""
        with jax.enable_x64(True):
            states, report = _scheme(
                _traced(self),
                float64_state(start),
                steps,
                jnp.asarray(step_size, float),
                velocity_grid=velocity_grid,
                projection=projection,
            )
        unresolved = int(np.sum(~np.asarray(report.resolved)))
        if unresolved:
            message = f"In {unresolved} of {steps} steps some contacts were stopped without their rebound."
            warnings.warn(message, stacklevel=2)
        return _trajectory(states, np.asarray(report.impulse) > 0, steps, step_size)

    def constraint_exact(self, start: State, *, steps: int, step_size: float) -> Trajectory:
        """The motion by velocity Verlet with impacts at their instants inside the step, in float64."""
        if self.damping != 0:
            raise InputError("The constraint-exact step knows no damping; use `exact` or `scheme`.")
        with jax.enable_x64(True):
            states, contact = _constraint_exact(
                _traced(self), float64_state(start), steps, jnp.asarray(step_size, float)
            )
        return _trajectory(states, contact, steps, step_size)


# Compiled once per kind of system, number of steps and options: all starts and parameters share one program.
@eqx.filter_jit
@full_precision()
def _scheme(system: AbstractSystem, start: State, steps: int, h, *, velocity_grid, projection):
    geometry, inertia = system.geometry, system.inertia()
    restitution = jnp.full((len(geometry.candidates),), system.restitution)
    friction = _friction(system)

    def impulse(jacobian, inertia, before, smooth, touching):
        return unilateral_impulse(
            jacobian,
            inertia,
            before,
            smooth,
            restitution=restitution,
            touching=touching,
            sweeps=32 if geometry.coupled else 1,
        )

    def step(state, _):
        return cd_lagrange_step(
            state,
            h,
            inertia=inertia,
            force=system.force,
            geometry=geometry,
            detect=lambda position, velocity: geometry.gap(position) < 0,
            impulse=impulse,
            project=lambda position, touching: project_overlap(
                projection, geometry, inertia, position, touching, reference=system.reference
            ),
            friction=friction,
        )

    if velocity_grid == "sample":
        states, report = rollout(step, start, steps=steps)
        return states, report
    states, report = rollout(step, to_half_grid(start, h, inertia=inertia, force=system.force), steps=steps)
    samples = jax.vmap(
        lambda before, after, touching: to_sample_grid(
            before,
            after,
            inertia=inertia,
            geometry=geometry,
            touching=touching,
            rough=friction is not None,
        )
    )(*consecutive(states), jnp.sign(report.impulse))
    return prepend(start, samples), report


def _friction(system: AbstractSystem) -> Friction | None:
    """The last part of the CD-Lagrange step of a system with friction."""
    if system.contact_friction is None:
        return None
    geometry, inertia = system.geometry, system.inertia()
    signs = contact_signs(geometry.candidates, geometry.bodies)
    coefficient = jnp.full((len(geometry.candidates),), system.contact_friction)

    def brake(jacobian, velocity, impulse):
        return friction_brake(jacobian, inertia, signs, velocity, impulse, friction=coefficient)

    return brake


@eqx.filter_jit
@full_precision()
def _constraint_exact(system: AbstractSystem, start: State, steps: int, h):
    geometry, inertia = system.geometry, system.inertia()
    restitution = jnp.full((len(geometry.candidates),), system.restitution)
    friction = None
    if system.contact_friction is not None:
        friction = jnp.full_like(restitution, system.contact_friction)

    def step(state, _):
        return time_of_impact_step(
            state,
            h,
            inertia=inertia,
            force=lambda position: -jax.grad(system.potential)(position),
            geometry=geometry,
            restitution=restitution,
            friction=friction,
        )

    states, reports = rollout(step, start, steps=steps)
    return states, reports.contact


def _traced(system: AbstractSystem) -> AbstractSystem:
    """The system with its parameters as arrays, so that other values do not mean another program."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float) if isinstance(leaf, float) else leaf, system)


def float64_state(state: State) -> State:
    """The state with its arrays in double precision."""
    return State(
        jnp.asarray(np.asarray(state.position, float)), jnp.asarray(np.asarray(state.velocity, float))
    )


def _trajectory(states: State, contact: Array | np.ndarray, steps: int, step_size: float) -> Trajectory:
    arrived = np.asarray(contact, bool)
    return Trajectory(
        time=np.arange(steps + 1) * step_size,
        position=np.asarray(states.position, float),
        velocity=np.asarray(states.velocity, float),
        contact=np.concatenate([np.zeros_like(arrived[:1]), arrived]),
    )
