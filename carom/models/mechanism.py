"""Mechanisms: bodies, forces, contacts and a stepper, composed from parts.

A system is a mechanism whose numbers are constants; a model is the same kind of mechanism, some of whose
numbers are estimated and some of whose forces are networks. Nothing here knows which forces or laws there
are.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from carom.contact_laws import (
    AbstractRestitution,
    ConstantRestitution,
    ContactDuration,
    CoulombFriction,
    ImpactDeviations,
)
from carom.errors import InputError
from carom.forces import AbstractDissipation, AbstractForce, AbstractLearnedPotential, AbstractPotential
from carom.integrators import BY_GAP, EXCLUDED, PRESCRIBED, AbstractStepper, ConstraintExact, Modes
from carom.mechanics import ContactGeometry, Masses, Points, Scene, part_named
from carom.models.base import AbstractModel
from carom.models.contact_signal import CERTAIN, GapContact, Signal
from carom.types import Coordinates, PerContact, Scalar, State, Values

Potential = Literal["shared", "pairs", "joint", "none"]
"""What a learned potential depends on: every body moves in the same field ("shared"), or each two act on each
other by their distance besides ("pairs"), or it is any function of all coordinates ("joint"), or there is
none ("none")."""
POTENTIALS: dict[Potential, tuple[str, ...]] = {
    "shared": ("potential",),
    "pairs": ("potential", "pair-potential"),
    "joint": ("joint-potential",),
    "none": (),
}


class Mechanism(AbstractModel):
    """F = −∇U − dissipation between impacts; at an impact, the contact laws.

    Arguments:
        bodies: their masses.
        forces: potentials and dissipative forces; they add up.
        geometry: candidate contacts and where their surfaces are.
        restitution: Newton's law, with any dependence of e on the closing speed.
        friction: Coulomb's law; None for smooth surfaces.
        duration: of contacts that last; None for instantaneous impacts.
        stepper: the scheme.
        step_size: between samples.
        scatter: standard deviations of the deviations of single impacts, one per kind; None where they were
            not estimated.
        deviations: of single impacts, to which steps refer by number; None for none.
        widening: by what bands of forecasts are wider than those of posterior samples, so that they hold
            although the model is not exact: a factor, and a length that is added in squares.

    Example:
        >>> from carom.forces import UniformGravity
        >>> from carom.mechanics import Wall
        >>> scene = Scene(bodies=1, dimension=1, candidates=(Wall(0, (1.0,)),), restitution=0.5)
        >>> ball = Mechanism.of(scene, 0.1, forces=[UniformGravity(jnp.array([-10.0]))])
        >>> after, contact = ball.advance(State(jnp.array([[0.1]]), jnp.array([[-1.0]])))
        >>> round(float(after.velocity[0, 0]), 3), bool(contact[0] > 0)
        (0.598, True)
    """

    bodies: Points
    forces: tuple[AbstractForce, ...]
    geometry: ContactGeometry
    restitution: AbstractRestitution
    friction: CoulombFriction | None
    stepper: AbstractStepper
    step_size: Scalar  # pyright: ignore[reportIncompatibleVariableOverride]
    duration: ContactDuration | None = None
    scatter: Float[Values, "kinds"] | None = None
    deviations: ImpactDeviations | None = None
    widening: Float[Values, "2"] = eqx.field(default_factory=lambda: np.array([1, 0], np.float32))

    @classmethod
    def of(
        cls,
        scene: Scene,
        step_size: Scalar,
        *,
        forces: Sequence[AbstractForce] = (),
        restitution: AbstractRestitution | None = None,
        friction: CoulombFriction | None = None,
        duration: ContactDuration | None = None,
        stepper: AbstractStepper | None = None,
    ) -> "Mechanism":
        """What a scene states, with these forces; laws and stepper as the scene has them by default."""
        # Without friction there are no tangential formulas at all, which compile and run faster.
        if friction is None and scene.friction > 0:
            friction = CoulombFriction.for_scene(scene)
        return cls(  # pyright: ignore[reportCallIssue]
            bodies=Points.of(scene.masses, dimension=scene.dimension),
            forces=tuple(forces),
            geometry=scene.geometry,
            restitution=ConstantRestitution.for_scene(scene) if restitution is None else restitution,
            friction=friction,
            stepper=ConstraintExact() if stepper is None else stepper,
            step_size=step_size,
            duration=duration,
        )

    @classmethod
    def for_recording(
        cls,
        recording: Any,
        *,
        potential: Potential = "shared",
        hidden: int = 32,
        key: Key[Array, ""] | None = None,
        **parts: Any,
    ) -> "Mechanism":
        """A mechanism with a learned potential for the scene and the step size of a recording.

        Arguments:
            potential: what the potential depends on.
            hidden: units in its hidden layer.
            key: of random weights; all zero without one.
            parts: further parts, as for `of`.
        """
        if recording.scene is None:
            raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
        learned = learned_potentials(recording.scene, potential, hidden)
        if key is not None:
            keys = jax.random.split(key, max(len(learned), 1))
            learned = tuple(
                eqx.tree_at(lambda f: f.network, force, force.network.glorot(k))
                for force, k in zip(learned, keys, strict=False)
            )
        forces = (*learned, *parts.pop("forces", ()))
        return cls.of(recording.scene, recording.step_size, forces=forces, **parts)

    @property
    def scene(self) -> Scene:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The scene, with the numbers that this mechanism has; laws that no scene can state are left out."""

        def typical(law: ConstantRestitution | CoulombFriction, none: float) -> float:
            # A scene has one number for all contacts; estimates of several may differ.
            return float(np.median(law.value)) if np.size(law.value) else none

        law = self.restitution
        restitution = typical(law, 1.0) if isinstance(law, ConstantRestitution) else 1.0
        return Scene(
            bodies=self.geometry.bodies,
            dimension=self.geometry.dimension,
            candidates=self.geometry.candidates,
            masses=tuple(np.exp(np.asarray(self.bodies.log_mass, float)).tolist()),
            restitution=float(np.clip(restitution, 0, 1)),
            friction=0.0 if self.friction is None else typical(self.friction, 0.0),
            **self.stepper.stated(),
        )

    @property
    def contact(self) -> GapContact:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Contacts by the gap alone, for the paper's recipe."""
        return GapContact(self.geometry)

    @property
    def predicts_velocity(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        """The parts by name, with their static options."""
        return {
            "forces": [[force.name, force.options] for force in self.forces],
            "restitution": [self.restitution.name, self.restitution.options],
            "friction": self.friction is not None,
            "duration": self.duration is not None,
            "tilted": self.geometry.tilt is not None,
            "scatter": 0 if self.scatter is None else len(self.scatter),
            "stepper": [self.stepper.name, self.stepper.options],
        }

    @classmethod
    def from_options(cls, scene: Scene, step_size: float, options: dict[str, Any]) -> "Mechanism":
        """A mechanism of these parts, as `options` gives them."""

        def made(kind, named):
            name, chosen = named
            make: Any = part_named(kind, str(name)).for_scene
            return make(scene, **dict(chosen))

        mechanism = cls.of(
            scene,
            step_size,
            forces=[made(AbstractForce, named) for named in options["forces"]],
            restitution=made(AbstractRestitution, options["restitution"]),
            friction=CoulombFriction.for_scene(scene) if options["friction"] else None,
            duration=ContactDuration.for_scene(scene) if options.get("duration") else None,
            stepper=made(AbstractStepper, options["stepper"]),
        )
        # Files of earlier versions know no scatter.
        kinds = options.get("scatter", 0)
        mechanism = replace(mechanism, scatter=np.zeros(kinds)) if kinds else mechanism
        return mechanism.with_tilt() if options["tilted"] else mechanism

    def with_tilt(self, pivot: Float[Values, "dimension"] | None = None) -> "Mechanism":
        """The same with walls whose normals may be learned; a tilt leaves them in place at the pivot."""
        if self.geometry.edged:
            raise InputError("The normals of walls with edges cannot be learned.")
        # Tilts are added to the stated normals, so that 0 is the scene as it was.
        zero = np.zeros((len(self.geometry), self.geometry.dimension))
        at = np.zeros(self.geometry.dimension) if pivot is None else pivot
        return eqx.tree_at(
            lambda m: (m.geometry.tilt, m.geometry.pivot), self, (zero, at), is_leaf=lambda x: x is None
        )

    def inertia(self) -> Masses:
        """M."""
        return self.bodies.inertia()

    def restitution_at(self, rate: PerContact) -> PerContact:
        """e for the rate of every gap just before the impact."""
        mean = self.restitution.coefficient(rate)
        if self.deviations is None:
            return mean
        return mean + jnp.asarray(self.deviations.restitution, rate.dtype)

    def slip_kick(self, rate: PerContact) -> Float[Array, "contacts dimension"] | None:
        """What an impact adds to the relative velocity across its normal; None for nothing."""
        return None if self.deviations is None else self.deviations.slip_change(rate)

    def friction_coefficient(self) -> PerContact | None:
        """μ of every contact; None for smooth surfaces."""
        return None if self.friction is None else self.friction.coefficient

    def contact_duration(self) -> PerContact | None:
        """How long every contact lasts; None for instantaneous impacts."""
        return None if self.duration is None else self.duration.duration

    def conservative_force(self, position: Coordinates) -> Coordinates:
        """−∂U/∂q."""
        masses, force = self.bodies.masses, jnp.zeros_like(position)
        for part in self.forces:
            if isinstance(part, AbstractPotential):
                force = force - part.gradient(position, masses)
        return force

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates:
        """F(q, v) = −∂U/∂q + what depends on the velocity."""
        masses, force = self.bodies.masses, self.conservative_force(position)
        for part in self.forces:
            if isinstance(part, AbstractDissipation):
                force = force + masses[:, None] * part.acceleration(velocity, masses)
        return force

    def dissipate(self, velocity: Coordinates, duration: Scalar) -> Coordinates:
        """The velocity after the forces that depend on it have acted alone."""
        masses = self.bodies.masses
        for part in self.forces:
            if isinstance(part, AbstractDissipation):
                # One flow after another: the error of that splitting is of second order in the step.
                velocity = part.flow(velocity, masses, duration)
        return velocity

    def slope(self, position: Coordinates) -> Coordinates:
        """∂U/∂q."""
        return -self.conservative_force(position)

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]:
        """U, up to a constant."""
        masses = self.bodies.masses
        parts = [part.energy(position, masses) for part in self.forces if isinstance(part, AbstractPotential)]
        return sum(parts, jnp.zeros((), position.dtype))

    def enter(self, state: State) -> State:
        return self.stepper.enter(self, state, self.step_size)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        return self.stepper.leave(self, before, after, contact)

    def step(self, state: State, contact: Signal) -> State:
        """One step with its contacts prescribed: those named happen, no other does."""
        # A soft signal cannot make half of an impact: it happens where it is likelier than not.
        modes = jnp.where(contact > 0.5 if contact.dtype != bool else contact, PRESCRIBED, EXCLUDED)
        return self.move(state, self.step_size, modes)[0]

    def advance(self, state: State) -> tuple[State, Float[Array, "signals"]]:
        """One step with contacts by the gap, and their log-odds."""
        modes = jnp.full((len(self.geometry),), BY_GAP)
        after, contact, _ = self.move(state, self.step_size, modes)
        return after, jnp.where(contact, CERTAIN, -CERTAIN).astype(state.position.dtype)

    def contact_logits(self, state: State) -> Float[Array, "signals"]:
        return self.advance(state)[1]

    def move(
        self,
        state: State,
        step_size: Scalar,
        modes: Modes,
        *,
        impact: Int[Array, "contacts"] | None = None,
        most: int | None = None,
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        """One step of the scheme; see `AbstractStepper.step`.

        Arguments:
            impact: which of the deviations holds for each contact in this step.
        """
        mechanism = self if impact is None else self.at_impacts(impact)
        return self.stepper.step(mechanism, state, step_size, modes, most=most)

    def at_impacts(self, impact: Int[Array, "contacts"]) -> "Mechanism":
        """The same with the deviations of the impacts that have these numbers, one per contact."""
        if self.deviations is None:
            return self
        own = self.deviations.of(impact)
        mechanism = replace(self, deviations=own)
        if own.surface is None:
            return mechanism
        return eqx.tree_at(lambda m: m.geometry.offset, mechanism, self.geometry.offset + own.surface)

    def penalised(self) -> tuple[Array, ...]:
        networks = [force.network for force in self.forces if isinstance(force, AbstractLearnedPotential)]
        return tuple(jnp.asarray(part) for network in networks for part in (network.weight, network.output))


def learned_potentials(
    scene: Scene, potential: Potential, hidden: int
) -> tuple[AbstractLearnedPotential, ...]:
    """Potentials of a kind, with weights of 0."""
    kinds: list[Any] = [part_named(AbstractForce, name) for name in POTENTIALS[potential]]
    return tuple(kind.for_scene(scene, hidden=hidden) for kind in kinds)


def in_scene(model: Mechanism, scene: Scene, *, step_size: float | None = None) -> Mechanism:
    """The same forces and contact laws with other bodies, other walls or another step size.

    All walls of the model must obey one law, and all pairs one, since nothing says which of several would
    hold elsewhere.
    Surfaces are where the new scene has them.

    Example:
        >>> import carom
        >>> two, five = (carom.systems.Billiards(radii=(0.1,) * k, restitution=0.9) for k in (2, 5))
        >>> model = Mechanism.of(two.scene(), 0.01)
        >>> in_scene(model, five.scene(), step_size=0.04).restitution.value.shape
        (30,)
    """
    if scene.dimension != model.geometry.dimension:
        raise InputError(
            f"The model is for {model.geometry.dimension} dimensions, the scene has {scene.dimension}."
        )
    if any(force.name == "joint-potential" for force in model.forces):
        raise InputError("A joint potential holds for the bodies that it was learned on, and no others.")
    here, there = model.geometry.body_pairs, scene.geometry.body_pairs
    source = np.zeros(len(there), int)
    for pairs in (False, True):
        if not (there == pairs).any():
            continue
        kind, rows = "pairs" if pairs else "walls", np.flatnonzero(here == pairs)
        if not len(rows):
            raise InputError(f"The model has no {kind} to tell how those of the scene behave.")
        parts = jax.tree.leaves((model.restitution, model.friction, model.duration))
        if any(np.ptp(np.asarray(part)[rows], axis=0).max() > 1e-6 for part in parts):
            raise InputError(f"The {kind} of the model obey several laws; learn one for all of them.")
        source[there == pairs] = rows[0]
    take = lambda part: jax.tree.map(lambda leaf: jnp.asarray(leaf)[source], part)  # noqa: E731
    kinds = ("restitution", "friction", "duration")
    laws: dict[str, Any] = {name: take(getattr(model, name)) for name in kinds}
    h = model.step_size if step_size is None else step_size
    return Mechanism.of(scene, h, forces=model.forces, stepper=model.stepper, **laws)
