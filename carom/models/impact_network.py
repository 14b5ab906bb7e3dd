"""Impact networks: a learned potential between impacts whose surfaces and laws are learned too."""

from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from carom.errors import InputError, require_choice
from carom.integrators import (
    DECIDED_BY_GAP,
    SCHEDULED,
    cd_lagrange_step,
    time_of_impact_step,
    to_half_grid,
    to_sample_grid,
)
from carom.mechanics import (
    ContactGeometry,
    Masses,
    Scene,
    contact_rate,
    project_overlap,
    restitution_impulse,
    unilateral_impulse,
)
from carom.models.base import AbstractModel
from carom.models.contact_signal import CERTAIN, GapContact, Signal
from carom.models.networks import Activation, LinearisedPotential, PotentialNetwork, potential_network
from carom.types import Coordinates, PerContact, Scalar, State

ImpactScheme = Literal["constraint_exact", "cd_lagrange"]
Field = Literal["shared", "joint", "none"]
"""`shared`: every body moves in the same field, U = Σ m_k φ(q_k), and bodies act on each other by contact
alone. `joint`: U is any function of all coordinates. `none`: U = 0, as on a level table."""
Detection = Literal["arrival", "departure"]
"""Where a CD-Lagrange step tests its gaps: at the drifted position, or where the step begins."""
MAX_IMPACTS = 2
"""Impacts resolved within one step; a body that makes more has come to rest on the surface."""


class ShiftedGeometry(NamedTuple):
    """Candidate contacts whose surfaces lie elsewhere than the scene has them."""

    geometry: ContactGeometry
    shift: PerContact

    @property
    def candidates(self):
        return self.geometry.candidates

    @property
    def coupled(self) -> bool:
        return self.geometry.coupled

    @property
    def affine(self) -> bool:
        return self.geometry.affine

    def gap(self, position: Coordinates) -> PerContact:
        """g(Q) − shift."""
        return self.geometry.gap(position) - self.shift

    def jacobian(self, position: Coordinates):
        """∂g/∂Q, which no shift changes."""
        return self.geometry.jacobian(position)


class ImpactNetwork(AbstractModel):
    """F = −∇U_θ − γ m v between impacts; an impact where a gap closes, with e depending on the closing speed.

    The step is constraint-exact by default: velocity Verlet to the instant of contact and on from there. With
    `scheme="cd_lagrange"` it is the CD-Lagrange step, for data that such a scheme has made.

    Arguments:
        hidden: units in the potential's hidden layer.
        field: what the potential depends on.
        restitution_terms: 1 for a constant e, more for a polynomial in the logarithm of the closing speed.
        detection: where the CD-Lagrange step looks for contacts; the published cradle looks at its departure.
        key: of random weights; zero without one, as long as they are to be filled in.

    Example:
        >>> import carom, jax
        >>> recording = carom.simulate(carom.systems.BouncingBall(), steps=50, step_size=0.02)
        >>> model = ImpactNetwork.for_recording(recording, key=jax.random.key(0))
        >>> float(model.restitution_at(jax.numpy.array([-3.0]))[0])
        1.0
    """

    potential: PotentialNetwork | LinearisedPotential
    contact: GapContact
    restitution: Float[Array, "contacts terms"]
    log_mass: Float[Array, "bodies"]
    damping_rate: Float[Array, "bodies"]
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)
    scheme: ImpactScheme = eqx.field(static=True)
    field: Field = eqx.field(static=True)
    detection: Detection = eqx.field(static=True)

    def __init__(
        self,
        scene: Scene,
        step_size: float,
        *,
        hidden: int = 32,
        activation: Activation = "softplus",
        scheme: ImpactScheme = "constraint_exact",
        field: Field = "shared",
        restitution_terms: int = 1,
        detection: Detection = "arrival",
        key: Key[Array, ""] | None = None,
    ):
        require_choice("scheme", scheme, ImpactScheme)
        require_choice("field", field, Field)
        require_choice("detection", detection, Detection)
        if not 1 <= restitution_terms <= 8:
            raise InputError(f"A restitution law has 1 to 8 terms, not {restitution_terms}.")
        inputs = scene.coordinates if field == "joint" else scene.dimension
        self.potential = potential_network(inputs, hidden=hidden, activation=activation, key=key)
        # pyright takes an AbstractVar for mutable, but modules are frozen.
        self.contact = GapContact(  # pyright: ignore[reportIncompatibleVariableOverride]
            shift=jnp.asarray(np.zeros(scene.contacts)), geometry=scene.geometry
        )
        constant = np.full((scene.contacts, 1), float(scene.restitution))
        self.restitution = jnp.asarray(np.pad(constant, ((0, 0), (0, restitution_terms - 1))))
        self.log_mass = jnp.asarray(np.log(np.asarray(scene.masses, float)))
        self.damping_rate = jnp.asarray(np.zeros(scene.bodies))
        self.scene = scene
        self.step_size = step_size
        self.scheme = scheme
        self.field = field
        self.detection = detection

    @property
    def predicts_velocity(self) -> bool:
        return True

    @property
    def options(self) -> dict[str, Any]:
        return {
            "hidden": self.potential.hidden,
            "activation": self.potential.activation,
            "scheme": self.scheme,
            "field": self.field,
            "restitution_terms": self.restitution.shape[-1],
            "detection": self.detection,
        }

    @property
    def geometry(self) -> ShiftedGeometry:
        """The candidate contacts with their learned places."""
        return ShiftedGeometry(self.scene.geometry, self.contact.shift)

    def inertia(self) -> Masses:
        """M."""
        return Masses(jnp.exp(self.log_mass))

    def restitution_at(self, rate: PerContact) -> PerContact:
        """e for the rate of every gap just before the impact."""
        if self.restitution.shape[-1] == 1:
            return self.restitution[:, 0]
        # A polynomial fitted over the speeds that were seen means nothing far from them.
        slowness = jnp.log(jnp.maximum(-rate, 1e-6))
        powers = jnp.stack([slowness**k for k in range(self.restitution.shape[-1])], axis=1)
        return jnp.clip(jnp.sum(self.restitution * powers, axis=1), 0, 1)

    def force(self, position: Coordinates, velocity: Coordinates) -> Coordinates:
        """F = −∂U/∂q − γ m v."""
        damping = self.damping_rate * jnp.exp(self.log_mass)
        return -self.slope(position) - damping[:, None] * velocity

    def slope(self, position: Coordinates) -> Coordinates:
        """∂U/∂q."""
        if self.field == "none":
            return jnp.zeros_like(position)
        if self.field == "joint":
            return self.potential.gradient(position)
        each = jax.vmap(lambda place: self.potential.gradient(place[None])[0])(position)
        return jnp.exp(self.log_mass)[:, None] * each

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]:
        """U, up to a constant."""
        if self.field == "none":
            return jnp.zeros((), position.dtype)
        if self.field == "joint":
            return self.potential(position)
        return jnp.sum(jnp.exp(self.log_mass) * jax.vmap(lambda place: self.potential(place[None]))(position))

    def enter(self, state: State) -> State:
        if self.scheme == "constraint_exact" or self.scene.velocity_grid == "sample":
            return state
        return to_half_grid(state, self.step_size, inertia=self.inertia(), force=self.force)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        if self.scheme == "constraint_exact" or self.scene.velocity_grid == "sample":
            return after
        touching = contact.astype(after.position.dtype)
        return to_sample_grid(
            before, after, inertia=self.inertia(), geometry=self.scene.geometry, touching=touching
        )

    def step(self, state: State, contact: Signal) -> State:
        """One step with its contacts decided: those named happen, no other does."""
        schedule = jnp.where(contact > 0.5 if contact.dtype != bool else contact, SCHEDULED, -SCHEDULED)
        return self.move(state, self.step_size, schedule)[0]

    def advance(self, state: State) -> tuple[State, Float[Array, "signals"]]:
        undecided = jnp.full((self.scene.contacts,), DECIDED_BY_GAP)
        after, contact, _ = self.move(state, self.step_size, undecided)
        return after, jnp.where(contact, CERTAIN, -CERTAIN).astype(state.position.dtype)

    def contact_logits(self, state: State) -> Float[Array, "signals"]:
        return self.advance(state)[1]

    def move(
        self, state: State, step_size: Scalar, schedule: Int[Array, "contacts"]
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        """One step on the model's own grid under a schedule of contacts.

        Also which contacts it made, and when those that were scheduled took place, as a share of the step.
        """
        if self.scheme == "cd_lagrange":
            after, contact = self._cd_lagrange(state, step_size, schedule)
            return after, contact, jnp.full(contact.shape, 0.5, state.position.dtype)
        # Damping is split off, half before and half after, so that the path inside is that of a potential.
        fade = jnp.exp(-0.5 * step_size * self.damping_rate)[:, None]
        after, report = time_of_impact_step(
            State(state.position, fade * state.velocity),
            step_size,
            inertia=self.inertia(),
            force=lambda position: -self.slope(position),
            geometry=self.geometry,
            restitution=self.restitution_at,
            max_impacts=MAX_IMPACTS,
            schedule=schedule,
        )
        return State(after.position, fade * after.velocity), report.contact, report.instant

    def penalised(self) -> tuple[Array, ...]:
        if isinstance(self.potential, LinearisedPotential):
            raise InputError("A draw from a fit is not trained; train the model that was fitted.")
        return (self.potential.weight, self.potential.output)

    def _cd_lagrange(
        self, state: State, step_size: Scalar, schedule: Int[Array, "contacts"]
    ) -> tuple[State, Bool[Array, "contacts"]]:
        scene, geometry = self.scene, self.geometry

        def detect(position, velocity):
            if self.detection == "departure":
                position = state.position
            closing = contact_rate(geometry.jacobian(position), velocity) < 0
            by_gap = (geometry.gap(position) < 0) & closing
            return jnp.where(schedule == DECIDED_BY_GAP, by_gap, schedule == SCHEDULED)

        def impulse(jacobian, inertia, before, smooth, touching):
            restitution = self.restitution_at(contact_rate(jacobian, before))
            if scene.geometry.coupled:
                return unilateral_impulse(
                    jacobian, inertia, before, smooth, restitution=restitution, touching=touching
                )
            active = touching.astype(before.dtype)
            impulse = restitution_impulse(
                jacobian, inertia, before, smooth, restitution=restitution, active=active
            )
            return impulse, jnp.ones((), bool)

        def project(position, touching):
            return project_overlap(
                scene.projection,
                scene.geometry,
                self.inertia(),
                position,
                touching,
                reference=scene.reference,
            )

        after, _ = cd_lagrange_step(
            state,
            step_size,
            inertia=self.inertia(),
            force=self.force,
            geometry=geometry,
            detect=detect,
            impulse=impulse,
            project=project,
        )
        return after, detect(state.position + step_size * state.velocity, state.velocity)
