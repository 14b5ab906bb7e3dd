"""What every system provides, and the truths that follow from it."""

import warnings
from abc import abstractmethod
from functools import partial
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.compilation import full_precision
from carom.contact_laws import ConstantRestitution, CoulombFriction
from carom.errors import InputError
from carom.forces import AbstractForce, AbstractPotential, LinearDamping
from carom.integrators import BY_GAP, AbstractStepper, CDLagrange, ConstraintExact, prepend, rollout
from carom.integrators.constraint_exact.step import MAX_IMPACTS
from carom.mechanics import ContactGeometry, Masses, Points, Projection, Scene, kinetic_energy
from carom.models.mechanism import Mechanism
from carom.types import Coordinates, PerBody, Scalar, State, Trajectory, VelocityGrid


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

    @property
    def forces(self) -> tuple[AbstractForce, ...]:
        """What acts between impacts: the potential, and damping where there is any."""
        # A mechanism has damping as a rate of the velocity; a system as a coefficient of force.
        rate = jnp.asarray(self.damping) / jnp.asarray(self.masses)
        return (SystemPotential(self), LinearDamping(rate))

    def mechanism(self, step_size: Scalar, stepper: AbstractStepper | None = None) -> Mechanism:
        """The system as a mechanism: the same parts as those of models, with its constants."""
        geometry, friction = self.geometry, self.contact_friction
        every = (len(geometry),)
        return Mechanism(  # pyright: ignore[reportCallIssue]
            # Not `Points.of`, which needs numbers: parameters may be traced here.
            bodies=Points(geometry.dimension, jnp.log(jnp.asarray(self.masses))),
            forces=self.forces,
            geometry=geometry,
            restitution=ConstantRestitution(jnp.full(every, self.restitution)),
            friction=None if friction is None else CoulombFriction(jnp.full(every, friction)),
            stepper=ConstraintExact(MAX_IMPACTS) if stepper is None else stepper,
            step_size=step_size,  # pyright: ignore[reportArgumentType]
        )

    def energy(self, state: State) -> Float[Array, ""]:
        """½ vᵀ M v + U(q)."""
        inertia = Masses(jnp.asarray(self.masses, state.position.dtype))
        return kinetic_energy(inertia, state.velocity) + self.potential(state.position)

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
            system, first, h = _traced(self), float64_state(start), jnp.asarray(step_size, float)
            states, report = _scheme(system, first, steps, h, velocity_grid, projection)
        # A warning and no error: the motion is valid, but it lost more energy than the law says.
        unresolved = int(np.sum(~np.asarray(report.resolved)))
        if unresolved:
            message = f"In {unresolved} of {steps} steps some contacts were stopped without their rebound."
            warnings.warn(message, stacklevel=2)
        return trajectory(np.arange(steps + 1) * step_size, states, np.asarray(report.impulse) > 0)

    def constraint_exact(self, start: State, *, steps: int, step_size: float) -> Trajectory:
        """The motion by velocity Verlet with impacts at their instants inside the step, in float64."""
        # Equal intervals are stated, as differences of times are not quite equal.
        return self.fine_steps(start, np.arange(steps + 1) * step_size, np.full(steps, step_size), substeps=1)

    def fine_steps(
        self, start: State, times: np.ndarray, intervals: np.ndarray, *, substeps: int
    ) -> Trajectory:
        """The same with several steps from each sample to the next."""
        with jax.enable_x64(True):
            states, contact = _constraint_exact(
                _traced(self), float64_state(start), jnp.asarray(intervals, float), substeps
            )
        return trajectory(times, states, contact)


class SystemPotential(AbstractPotential):
    """The potential of a system as a force."""

    name: ClassVar[str] = "system-potential"
    system: AbstractSystem

    @classmethod
    def for_scene(cls, scene: Scene) -> "SystemPotential":
        raise InputError("The potential of a system is no part that can be learned.")

    def energy(self, position: Coordinates, masses: PerBody) -> Float[Array, ""]:
        return self.system.potential(position)

    def gradient(self, position: Coordinates, masses: PerBody) -> Coordinates:
        return jax.grad(self.system.potential)(position)


# Compiled once per kind of system, number of steps and options: all starts and parameters share one program.
@eqx.filter_jit
@full_precision()
def _scheme(system: AbstractSystem, start: State, steps: int, h, velocity_grid, projection):
    stepper = CDLagrange(jnp.asarray(system.reference, float), "arrival", velocity_grid, projection)
    mechanism = system.mechanism(h, stepper)
    modes = jnp.full((len(mechanism.geometry),), BY_GAP)

    def step(state, _):
        after, report, contact = stepper.reported_step(mechanism, state, h, modes)
        return after, (mechanism.leave(state, after, contact), report)

    _, (samples, report) = rollout(step, mechanism.enter(start), steps=steps)
    return prepend(start, samples), report


@eqx.filter_jit
@full_precision()
def _constraint_exact(system: AbstractSystem, start: State, intervals: Float[Array, "steps"], substeps: int):
    modes = jnp.full((len(system.geometry),), BY_GAP)

    def sample(state, interval):
        h = interval / substeps
        mechanism = system.mechanism(h)
        step = partial(mechanism.move, step_size=h, modes=modes)
        state, contact = jax.lax.scan(lambda s, _: step(s)[:2], state, length=substeps)
        return state, jnp.any(contact, axis=0)

    return rollout(sample, start, inputs=intervals)


def _traced(system: AbstractSystem) -> AbstractSystem:
    """The system with its parameters as arrays, so that other values do not mean another program."""

    def is_number(leaf) -> bool:
        return isinstance(leaf, float) or eqx.is_inexact_array(leaf)

    return jax.tree.map(lambda leaf: jnp.asarray(leaf, float) if is_number(leaf) else leaf, system)


def float64_state(state: State) -> State:
    """The state with its arrays in double precision."""
    return jax.tree.map(lambda part: jnp.asarray(np.asarray(part, float)), state)


def trajectory(times: np.ndarray, states: State, contact: Array | np.ndarray) -> Trajectory:
    """A motion from its states, the start included, and the contacts of every step."""
    arrived = np.asarray(contact, bool)
    # No step ends at the start, so no contact is known there.
    contact = np.concatenate([np.zeros_like(arrived[:1]), arrived])
    position, velocity = (np.asarray(part, float) for part in (states.position, states.velocity))
    return Trajectory(np.asarray(times, float), position, velocity, contact)
