"""CD-Lagrange networks: a learned potential and a learned contact signal inside the CD-Lagrange step."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from carom.errors import require_choice
from carom.integrators import cd_lagrange_step, to_half_grid, to_sample_grid
from carom.mechanics import (
    AbstractInertia,
    InertiaMatrix,
    Masses,
    Scene,
    project_overlap,
    restitution_impulse,
    unilateral_impulse,
)
from carom.models.base import AbstractModel
from carom.models.contact_signal import AbstractContactSignal, CandidateContact, NoContact, Signal
from carom.networks import Activation, PotentialNetwork, potential_network
from carom.types import Coordinates, State

DampingForm = Literal["definite", "triangular"]


class LearnedInertia(eqx.Module):
    """M = L Lᵀ with L lower triangular and a positive diagonal, so that M is positive definite."""

    # The diagonal as logarithms, the rest as it is; entries above the diagonal are ignored.
    raw: Float[Array, "coordinates coordinates"]

    @classmethod
    def from_scene(cls, scene: Scene) -> "LearnedInertia":
        """Start from diag(m_k)."""
        return cls(jnp.diag(0.5 * jnp.log(jnp.repeat(jnp.array(scene.masses), scene.dimension))))

    def __call__(self) -> InertiaMatrix:
        return InertiaMatrix(jnp.tril(self.raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(self.raw))))


class LearnedDamping(eqx.Module):
    """C = D Dᵀ with D lower triangular, so that damping never adds energy; in the authors' code C = D.

    Only M⁻¹C is identifiable from a recording; with fixed masses that is C in their unit.
    """

    factor: Float[Array, "coordinates coordinates"]
    form: DampingForm = eqx.field(static=True, default="definite")

    @classmethod
    def small(cls, coordinates: int, form: DampingForm) -> "LearnedDamping":
        """Start from 0.1·1, as the gradient of D Dᵀ vanishes at 0; a triangular C starts from 0."""
        scale = jnp.sqrt(0.1) if form == "definite" else jnp.zeros(())
        return cls(scale * jnp.eye(coordinates), form)

    def __call__(self) -> Float[Array, "coordinates coordinates"]:
        factor = jnp.tril(self.factor)
        return factor @ factor.T if self.form == "definite" else factor


class CDLagrangeNetwork(AbstractModel):
    """The paper's model: F = −∇U_θ − C v, contacts where ĉ_θ(Q_{n+1}, V_{n+1/2}) > ½, Newton's law there.

    Normals, restitution and masses come from the scene. The inertia M = L Lᵀ and the damping C = D Dᵀ are
    learned on request. On `scene.without_contacts()` it is CD-Lagrange without contact. Two options follow
    the authors' code: `damping_form="triangular"` leaves C = D, and `project_predicted` removes overlap where
    ĉ_θ > ½ and not where a contact is given, which is the same in forecasts.

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
    project_predicted: bool = eqx.field(static=True)

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
        damping_form: DampingForm = "definite",
        project_predicted: bool = False,
        key: Key[Array, ""],
    ):
        size, (potential_key, contact_key) = scene.coordinates, jax.random.split(key)
        self.potential = potential_network(size, hidden=hidden, activation=activation, key=potential_key)
        # Without candidates there is nothing to predict, and no network to train.
        self.contact = NoContact()
        if scene.contacts:
            self.contact = CandidateContact(scene, hidden=contact_hidden, key=contact_key)
        require_choice("damping_form", damping_form, DampingForm)
        self.learned_inertia = LearnedInertia.from_scene(scene) if learn_inertia else None
        self.learned_damping = LearnedDamping.small(size, damping_form) if learn_damping else None
        self.scene, self.step_size, self.project_predicted = scene, step_size, project_predicted

    @property
    def predicts_velocity(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hidden": self.potential.hidden,
            "activation": self.potential.activation,
            "contact_hidden": self.contact.hidden,
            "learn_inertia": self.learned_inertia is not None,
            "learn_damping": self.learned_damping is not None,
            "damping_form": "definite" if self.learned_damping is None else self.learned_damping.form,
            "project_predicted": self.project_predicted,
        }

    def inertia(self) -> AbstractInertia:
        """M, learned or as stated in the scene."""
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

    def enter(self, state: State) -> State:
        if self.scene.velocity_grid == "sample":
            return state
        return to_half_grid(state, self.step_size, inertia=self.inertia(), force=self.force)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        if self.scene.velocity_grid == "sample":  # recorded velocities are taken as half-step ones
            return after
        inertia, touching = self.inertia(), contact.astype(after.position.dtype)
        return to_sample_grid(before, after, inertia=inertia, geometry=self.scene.geometry, touching=touching)

    def step(self, state: State, contact: Signal) -> State:
        scene, inertia = self.scene, self.inertia()

        def project(position, contact):
            # A projection cannot be scaled: a soft contact is projected where it is likelier than not.
            touching = contact if contact.dtype == bool else contact > 0.5
            if self.project_predicted and self.contact.size:
                touching = self.contact_logits(state) > 0
            return project_overlap(
                scene.projection, scene.geometry, inertia, position, touching, reference=scene.reference
            )

        return cd_lagrange_step(
            state,
            self.step_size,
            inertia=inertia,
            force=self.force,
            geometry=scene.geometry,
            detect=lambda position, velocity: contact,  # given, by the touch sensor or by the signal
            impulse=self._impulse,
            project=project,
        )[0]

    def penalised(self) -> tuple[Array, ...]:
        return (self.potential.weight, self.potential.output)

    def _impulse(self, jacobian, inertia, before, smooth, contact: Signal):
        contacts = (jacobian, inertia, before, smooth)
        restitution = jnp.full(contact.shape, self.scene.restitution, before.dtype)
        if contact.dtype == bool and self.scene.geometry.coupled:
            # Contacts that share a body are resolved one after another; the paper's formula, which drops the
            # sign test, is meant for one contact per body. A row of n contacts transmits a push in n sweeps;
            # more of them would be computed, and differentiated, for nothing.
            sweeps = max(8, contact.size)
            return unilateral_impulse(*contacts, restitution=restitution, touching=contact, sweeps=sweeps)
        active = contact.astype(before.dtype)
        return restitution_impulse(*contacts, restitution=restitution, active=active), jnp.ones((), bool)
