"""Contacts that last: bodies that touch for a while before they part."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from carom.mechanics import AbstractPart, Scene, parameter
from carom.types import Values


class ContactDuration(AbstractPart):
    """Every contact lasts a time τ, whatever the closing speed, as a spring with a damper does.

    Before the contact and after it the bodies move as if an instantaneous impact happened while they overlap,
    where the paths of before and after meet (`carom.mechanics.lasting_contact`). What happens during the
    contact is not modelled.
    """

    name: ClassVar[str] = "duration"
    value: Float[Values, "contacts"] = parameter("duration", "contact duration", unit="time", lower=0.0)

    @classmethod
    def for_scene(cls, scene: Scene) -> "ContactDuration":
        return cls(np.zeros(scene.contacts))

    @property
    def duration(self) -> Float[Array, "contacts"]:
        """τ of every contact."""
        return jnp.asarray(self.value)
