"""CD-Lagrange networks: a learned potential and a learned contact signal inside the CD-Lagrange step."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.integrators import cd_lagrange_step, to_half_grid, to_sample_grid
from carom.mechanics import (
    AbstractInertia,
    Masses,
    Scene,
    project_overlap,
    restitution_impulse,
    unilateral_impulse,
)
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, CandidateContact, NoContact, Signal
from carom.models.networks import Activation, PotentialNetwork, potential_network
from carom.models.parameters import LearnedDamping, LearnedInertia
from carom.types import Coordinates, State


class CDLagrangeNetwork(AbstractModel):
    """The paper's model: F = −∇U_θ − C v, contacts where ĉ_θ(Q_{n+1}, V_{n+1/2}) > ½, Newton's law there.

    Normals, restitution and masses come from the scene. Inertia M = L Lᵀ and damping C = D Dᵀ are learned
    where asked for. On `scene.without_contacts()` it is CD-Lagrange without contact.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.NewtonsCradle(), steps=50, step_size=0.01)
        >>> model = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
        >>> model.contact.size
        1
    """

    potential: PotentialNetwork
    contact: AbstractContactSignal
    learned_inertia: LearnedInertia | None
    learned_damping: LearnedDamping | None
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)

    def __init__(
        self,
        scene: Scene,
        step_size: float,
        *,
        hidden: int = 500,
        activation: Activation = "tanh",
        contact_hidden: tuple[int, ...] = (100, 100),
        learn_inertia: bool = False,
        learn_damping: bool = False,
        key: Key[Array, ""],
    ):
        potential_key, contact_key = jax.random.split(key)
        self.potential = potential_network(
            scene.coordinates, hidden=hidden, activation=activation, key=potential_key
        )
        self.contact = (
            CandidateContact(scene.geometry, hidden=contact_hidden, key=contact_key)
            if scene.contacts
            else NoContact()
        )
        self.learned_inertia = (
            LearnedInertia.from_masses(scene.masses, scene.dimension) if learn_inertia else None
        )
        self.learned_damping = LearnedDamping.small(scene.coordinates) if learn_damping else None
        self.scene = scene
        self.step_size = step_size

    @property
    def predicts_velocity(self) -> bool:
        return True

    def inertia(self) -> AbstractInertia:
        """M, learned or as the scene states it."""
        if self.learned_inertia is not None:
            return self.learned_inertia()
        return Masses(jnp.asarray(self.scene.masses, self.potential.bias.dtype))

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]:
        """U, up to a constant."""
        return self.potential(position)

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates:
        """F = −∂U/∂q − C v."""
        force = -self.potential.gradient(position)
        if self.learned_damping is None:
            return force
        return force - (self.learned_damping() @ velocity.ravel()).reshape(velocity.shape)

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hidden": self.potential.hidden,
            "activation": self.potential.activation,
            "contact_hidden": self.contact.hidden,
            "learn_inertia": self.learned_inertia is not None,
            "learn_damping": self.learned_damping is not None,
        }

    def enter(self, state: State) -> State:
        if self.scene.velocity_grid == "sample":
            return state
        return to_half_grid(state, self.step_size, inertia=self.inertia(), force=self.force)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        if self.scene.velocity_grid == "sample":
            return after
        touching = contact.astype(after.position.dtype)
        return to_sample_grid(
            before, after, inertia=self.inertia(), geometry=self.scene.geometry, touching=touching
        )

    def step(self, state: State, contact: Signal) -> State:
        scene, inertia = self.scene, self.inertia()

        def project(position, contact):
            touching = contact if contact.dtype == bool else contact > 0.5
            return project_overlap(
                scene.projection,
                scene.geometry,
                inertia,
                position,
                touching,
                reference=scene.reference,
            )

        return cd_lagrange_step(
            state,
            self.step_size,
            inertia=inertia,
            force=self.force,
            geometry=scene.geometry,
            detect=lambda position, velocity: contact,
            impulse=self._impulse,
            project=project,
        )[0]

    def penalised(self) -> tuple[Array, ...]:
        return (self.potential.weight, self.potential.output)

    def _impulse(self, jacobian, inertia, before, smooth, contact: Signal):
        restitution = jnp.full(contact.shape, self.scene.restitution, before.dtype)
        if contact.dtype == bool and self.scene.geometry.coupled:
            # Decided contacts that share a body are resolved one after another; the paper's formula, which
            # drops the sign test, is meant for one contact per body.
            return unilateral_impulse(
                jacobian, inertia, before, smooth, restitution=restitution, touching=contact
            )
        impulse = restitution_impulse(
            jacobian,
            inertia,
            before,
            smooth,
            restitution=restitution,
            active=contact.astype(before.dtype),
        )
        return impulse, jnp.ones((), bool)
