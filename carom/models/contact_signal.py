"""How a model decides which contacts a step makes: the learned contact signal ĉ.

Inputs are the state before the step and the position where its drift arrives, (q_n, V) and Q_{n+1}.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from carom.mechanics import ContactGeometry, Scene, contact_rate
from carom.networks import Perceptron, perceptron
from carom.types import Coordinates, State

Logits = Float[Array, "signals"]
"""Log-odds, one per contact that a model distinguishes."""
Contact = Bool[Array, "signals"]
Signal = Float[Array, "signals"] | Contact
"""One value per contact that a model distinguishes: booleans decide, gates in [0, 1] scale."""
Touch = Bool[Array, "bodies"]
Entropy = Float[Array, ""]

CERTAIN = 30.0
"""Log-odds of a contact that is known."""


class AbstractContactSignal(eqx.Module):
    """Log-odds of contacts, and how they relate to the touch of bodies."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many contacts are distinguished."""

    @property
    @abstractmethod
    def hidden(self) -> tuple[int, ...]:
        """Sizes of the hidden layers of its network."""

    @abstractmethod
    def logits(self, state: State, arrival: Coordinates) -> Logits:
        """Log-odds that each contact happens in the step from `state` to `arrival`."""

    @abstractmethod
    def from_touch(self, touch: Touch, position: Coordinates) -> Contact:
        """The contacts that explain the touch readings of the bodies at their positions."""

    @abstractmethod
    def to_touch(self, contact: Contact) -> Touch:
        """The bodies that these contacts touch; an empty array where the model has no contacts."""

    @abstractmethod
    def cross_entropy(self, logits: Logits, touch: Touch) -> Entropy:
        """Mean over bodies of −log p(touch)."""


class NoContact(AbstractContactSignal):
    """For models without contacts."""

    @property
    def size(self) -> int:
        return 0

    @property
    def hidden(self) -> tuple[int, ...]:
        return ()

    def logits(self, state: State, arrival: Coordinates) -> Logits:
        return jnp.zeros((0,), arrival.dtype)

    def from_touch(self, touch: Touch, position: Coordinates) -> Contact:
        return jnp.zeros((0,), bool)

    def to_touch(self, contact: Contact) -> Touch:
        return jnp.zeros((0,), bool)

    def cross_entropy(self, logits: Logits, touch: Touch) -> Entropy:
        return jnp.zeros((), logits.dtype)


class BodyTouch(AbstractContactSignal):
    """One signal per body from the state alone, as in the contact-aware residual network."""

    network: Perceptron
    bodies: int = eqx.field(static=True)

    def __init__(self, bodies: int, dimension: int, *, hidden: tuple[int, ...], key: Key[Array, ""]):
        # Rectified units: a potential needs smooth ones, a signal does not.
        self.network = perceptron((2 * bodies * dimension, *hidden, bodies), activation="relu", key=key)
        self.bodies = bodies

    @property
    def size(self) -> int:
        return self.bodies

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    def logits(self, state: State, arrival: Coordinates) -> Logits:
        return self.network(jnp.concatenate([state.position.ravel(), state.velocity.ravel()]))

    def from_touch(self, touch: Touch, position: Coordinates) -> Contact:
        return touch

    def to_touch(self, contact: Contact) -> Touch:
        return contact

    def cross_entropy(self, logits: Logits, touch: Touch) -> Entropy:
        return -jnp.mean(jnp.where(touch, jax.nn.log_sigmoid(logits), jax.nn.log_sigmoid(-logits)))


class GeometricContact(AbstractContactSignal):
    """One signal per candidate contact of a geometry, and how such signals relate to the touch of bodies."""

    geometry: eqx.AbstractVar[ContactGeometry]

    @property
    def size(self) -> int:
        return len(self.geometry)

    def from_touch(self, touch: Touch, position: Coordinates) -> Contact:
        """A candidate may be in contact when all its bodies are touched.

        Of several such candidates of one body, the overlapping ones and the nearest one are in contact: a
        ball between two walls that registers a touch touches the nearer wall.
        """
        incidence = jnp.asarray(self.geometry.incidence)
        possible = jnp.all(touch[None, :] | ~incidence, axis=1)
        # With one candidate per body its touch leaves no choice.
        if not self.geometry.coupled:
            return possible
        gap = self.geometry.gap(position)
        gap_of_body = jnp.where(incidence & possible[:, None], gap[:, None], jnp.inf)
        nearest = incidence & (gap_of_body == jnp.min(gap_of_body, axis=0, keepdims=True))
        return possible & ((gap < 0) | jnp.any(nearest, axis=1))

    def to_touch(self, contact: Contact) -> Touch:
        """A body is touched when one of its candidates is in contact."""
        return jnp.any(contact[:, None] & jnp.asarray(self.geometry.incidence), axis=0)

    def cross_entropy(self, logits: Logits, touch: Touch) -> Entropy:
        """The touch of a body is the OR of its contacts: p(no touch) = Π (1 − p_j)."""
        incidence = self.geometry.incidence
        if (incidence.sum(axis=0) == 1).all():  # without the product the logarithms are exact
            body_logits = logits[incidence.argmax(axis=0)]
            log_touch, log_free = jax.nn.log_sigmoid(body_logits), jax.nn.log_sigmoid(-body_logits)
        else:
            log_free = jax.nn.log_sigmoid(-logits) @ jnp.asarray(incidence, logits.dtype)
            # log(1 − p(no touch)); a body without candidates has p(no touch) = 1 and is kept finite.
            log_touch = jnp.log(-jnp.expm1(jnp.minimum(log_free, -1e-30)) + 1e-30)
        return -jnp.mean(jnp.where(touch, log_touch, log_free))


class CandidateContact(GeometricContact):
    """ĉ(Q_{n+1}, V_{n+1/2}) by a network: the paper's contact signal."""

    network: Perceptron
    scene: Scene = eqx.field(static=True)

    def __init__(self, scene: Scene, *, hidden: tuple[int, ...], key: Key[Array, ""]):
        sizes = (2 * scene.coordinates, *hidden, scene.contacts)
        self.network = perceptron(sizes, activation="relu", key=key)
        self.scene = scene

    @property
    def geometry(self) -> ContactGeometry:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.scene.geometry

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.network.hidden

    def logits(self, state: State, arrival: Coordinates) -> Logits:
        # The arrival and not the departure, where a body about to bounce is still far from the surface.
        return self.network(jnp.concatenate([arrival.ravel(), state.velocity.ravel()]))


class GapContact(GeometricContact):
    """Contact where the gap is negative and closing."""

    geometry: ContactGeometry

    @property
    def hidden(self) -> tuple[int, ...]:
        return ()

    def logits(self, state: State, arrival: Coordinates) -> Logits:
        """±`CERTAIN`: the gap decides, and no probability is estimated."""
        closing = contact_rate(self.geometry.jacobian(arrival), state.velocity) < 0
        return jnp.where((self.geometry.gap(arrival) < 0) & closing, CERTAIN, -CERTAIN).astype(arrival.dtype)
