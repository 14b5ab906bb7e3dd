"""Impact networks: a learned potential between impacts whose surfaces and laws are learned too."""

from typing import Any, Literal

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
    decided_step,
    time_of_impact_step,
    to_half_grid,
    to_sample_grid,
)
from carom.mechanics import (
    ContactRows,
    Masses,
    Scene,
    contact_rate,
    contact_signs,
    friction_brake,
    length,
    project_overlap,
    restitution_impulse,
    unilateral_impulse,
)
from carom.models.base import AbstractModel
from carom.models.contact_signal import CERTAIN, GapContact, Signal
from carom.models.shifted_geometry import ShiftedGeometry
from carom.networks import Activation, LinearisedPotential, PotentialNetwork, potential_network
from carom.types import Coordinates, PerContact, Scalar, State

ImpactScheme = Literal["constraint_exact", "cd_lagrange"]
Field = Literal["shared", "pairs", "joint", "none"]
"""`shared`: every body moves in the same field, U = Σ m_k φ(q_k), and bodies act on each other by contact
alone. `pairs`: each two act on each other besides, U = Σ m_k φ(q_k) + Σ_{i<j} ψ(|q_i − q_j|), whatever their
number. `joint`: U is any function of all coordinates. `none`: U = 0, as on a level table."""
Detection = Literal["arrival", "departure"]
"""Where a CD-Lagrange step tests its gaps: at the drifted position, or where the step begins."""
MAX_IMPACTS = 8
"""Impacts resolved within one step at most, and no more than one beyond the number of bodies.

A body that makes more has come to rest on the surface."""


class ImpactNetwork(AbstractModel):
    """F = −∇U_θ − γ m v between impacts; an impact where a gap closes, with e depending on the closing speed.

    The step is constraint-exact by default: velocity Verlet to the instant of contact and on from there. With
    `scheme="cd_lagrange"` it is the CD-Lagrange step, for data that such a scheme has made.

    Arguments:
        hidden: units in the potential's hidden layer.
        field: what the potential depends on.
        rough: whether contacts have friction; so they have where the scene states any.
        tilted: whether walls may have other normals than the scene states.
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
    pair_potential: PotentialNetwork
    """ψ of the distance; without a unit unless the field has pairs."""
    contact: GapContact
    restitution: Float[Array, "contacts terms"]
    log_mass: Float[Array, "bodies"]
    damping_rate: Float[Array, "bodies"]
    friction: Float[Array, "contacts"]
    tilt: Float[Array, "contacts dimension"]
    """Added to the normals of walls, which are then made of length 1 again."""
    scene: Scene = eqx.field(static=True)
    step_size: float = eqx.field(static=True)
    scheme: ImpactScheme = eqx.field(static=True)
    field: Field = eqx.field(static=True)
    detection: Detection = eqx.field(static=True)
    rough: bool = eqx.field(static=True)
    tilted: bool = eqx.field(static=True)

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
        rough: bool = False,
        tilted: bool = False,
        key: Key[Array, ""] | None = None,
    ):
        require_choice("scheme", scheme, ImpactScheme)
        require_choice("field", field, Field)
        require_choice("detection", detection, Detection)
        if not 1 <= restitution_terms <= 8:
            raise InputError(f"A restitution law has 1 to 8 terms, not {restitution_terms}.")
        if tilted and any(wall.edges for wall in scene.geometry.walls):
            raise InputError("The normals of walls with edges cannot be learned.")
        inputs = scene.coordinates if field == "joint" else scene.dimension
        self.potential = potential_network(inputs, hidden=hidden, activation=activation, key=key)
        paired = field == "pairs"
        # Glorot's rule has no kernel without units.
        another = jax.random.fold_in(key, 1) if paired and key is not None else None
        self.pair_potential = potential_network(
            1, hidden=hidden if paired else 0, activation=activation, key=another
        )
        # pyright takes an AbstractVar for mutable, but modules are frozen.
        self.contact = GapContact(  # pyright: ignore[reportIncompatibleVariableOverride]
            shift=jnp.asarray(np.zeros(scene.contacts)), geometry=scene.geometry
        )
        constant = np.full((scene.contacts, 1), float(scene.restitution))
        self.restitution = jnp.asarray(np.pad(constant, ((0, 0), (0, restitution_terms - 1))))
        self.log_mass = jnp.asarray(np.log(np.asarray(scene.masses, float)))
        self.damping_rate = jnp.asarray(np.zeros(scene.bodies))
        self.friction = jnp.asarray(np.full(scene.contacts, float(scene.friction)))
        self.tilt = jnp.asarray(np.zeros((scene.contacts, scene.dimension)))
        self.rough = rough or scene.friction > 0
        self.tilted = tilted
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
            "rough": self.rough,
            "tilted": self.tilted,
        }

    @property
    def geometry(self) -> ShiftedGeometry:
        """The candidate contacts with their learned places."""
        geometry = self.scene.geometry
        if not self.tilted or not geometry.walls:
            return ShiftedGeometry(geometry, self.contact.shift)
        stated = jnp.asarray([wall.normal for wall in geometry.walls], self.tilt.dtype)
        return ShiftedGeometry(
            geometry, self.contact.shift, _unit(stated + self.tilt[: len(stated)]) - stated
        )

    @property
    def contact_rows(self) -> ContactRows:
        """The same as arrays."""
        rows = ContactRows.of(self.scene.geometry)
        normal = _unit(jnp.asarray(rows.normal) + self.tilt) if self.tilted else rows.normal
        return rows._replace(offset=rows.offset + self.contact.shift, normal=normal)

    def inertia(self) -> Masses:
        """M."""
        return Masses(jnp.exp(self.log_mass))

    def restitution_at(self, rate: PerContact) -> PerContact:
        """e for the rate of every gap just before the impact."""
        return _restitution(self.restitution, rate)

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
        slope = jnp.exp(self.log_mass)[:, None] * each
        if self.field == "pairs" and len(position) > 1:
            slope = slope + self._pair_slope(position)
        return slope

    def _pair_slope(self, position: Coordinates) -> Coordinates:
        """The part of ∂U/∂q that pairs of bodies make."""
        first, second = np.triu_indices(len(position), 1)
        apart = position[first] - position[second]
        distance = length(apart)
        pull = jax.vmap(lambda r: self.pair_potential.gradient(r[None, None])[0, 0])(distance)
        along = (pull / jnp.maximum(distance, 1e-12))[:, None] * apart
        return jnp.zeros_like(position).at[first].add(along).at[second].add(-along)

    def potential_energy(self, position: Coordinates) -> Float[Array, ""]:
        """U, up to a constant."""
        if self.field == "none":
            return jnp.zeros((), position.dtype)
        if self.field == "joint":
            return self.potential(position)
        each = jax.vmap(lambda place: self.potential(place[None]))(position)
        energy = jnp.sum(jnp.exp(self.log_mass) * each)
        if self.field == "pairs" and len(position) > 1:
            first, second = np.triu_indices(len(position), 1)
            distance = length(position[first] - position[second])
            energy = energy + jnp.sum(jax.vmap(lambda r: self.pair_potential(r[None, None]))(distance))
        return energy

    def enter(self, state: State) -> State:
        if self.scheme == "constraint_exact" or self.scene.velocity_grid == "sample":
            return state
        return to_half_grid(state, self.step_size, inertia=self.inertia(), force=self.force)

    def leave(self, before: State, after: State, contact: Signal) -> State:
        if self.scheme == "constraint_exact" or self.scene.velocity_grid == "sample":
            return after
        touching = contact.astype(after.position.dtype)
        return to_sample_grid(
            before,
            after,
            inertia=self.inertia(),
            geometry=self.scene.geometry,
            touching=touching,
            rough=self.rough,
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
            friction=self.friction if self.rough else None,
            max_impacts=min(self.scene.bodies + 1, MAX_IMPACTS),
            schedule=schedule,
        )
        return State(after.position, fade * after.velocity), report.contact, report.instant

    def move_as_decided(
        self, state: State, step_size: Scalar, schedule: Int[Array, "contacts"], *, most: int
    ) -> tuple[State, Bool[Array, "contacts"], PerContact]:
        """As `move` by the exact step where the schedule decides every contact and at most `most` happen.

        Its cost does not grow with the number of candidate contacts.
        """
        happens, chosen = jax.lax.top_k((schedule == SCHEDULED).astype(int), most)
        fade = jnp.exp(-0.5 * step_size * self.damping_rate)[:, None]
        after, instants = decided_step(
            State(state.position, fade * state.velocity),
            step_size,
            masses=jnp.exp(self.log_mass),
            force=lambda position: -self.slope(position),
            contacts=self.contact_rows.take(chosen),
            happens=happens > 0,
            restitution=lambda rate: _restitution(self.restitution[chosen], rate),
            friction=self.friction[chosen] if self.rough else None,
        )
        instant = jnp.full(schedule.shape, 0.5, instants.dtype).at[chosen].set(instants)
        return State(after.position, fade * after.velocity), schedule == SCHEDULED, instant

    def penalised(self) -> tuple[Array, ...]:
        if isinstance(self.potential, LinearisedPotential):
            raise InputError("A draw from a fit is not trained; train the model that was fitted.")
        pairs = self.pair_potential
        return (self.potential.weight, self.potential.output, pairs.weight, pairs.output)

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

        def brake(jacobian, velocity, impulse):
            signs = contact_signs(scene.candidates, scene.bodies)
            return friction_brake(jacobian, self.inertia(), signs, velocity, impulse, friction=self.friction)

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
            friction=brake if self.rough else None,
        )
        return after, detect(state.position + step_size * state.velocity, state.velocity)


def _restitution(law: Float[Array, "contacts terms"], rate: PerContact) -> PerContact:
    """e by a law per contact: a constant, or a polynomial in the logarithm of the closing speed."""
    if law.shape[-1] == 1:
        return law[:, 0]
    # A polynomial fitted over the speeds that were seen means nothing far from them.
    slowness = jnp.log(jnp.maximum(-rate, 1e-6))
    powers = jnp.stack([slowness**k for k in range(law.shape[-1])], axis=1)
    return jnp.clip(jnp.sum(law * powers, axis=1), 0, 1)


def _unit(vectors: Float[Array, "rows dimension"]) -> Float[Array, "rows dimension"]:
    return vectors / jnp.linalg.norm(vectors, axis=1, keepdims=True)
