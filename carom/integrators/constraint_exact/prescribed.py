"""The constraint-exact step with all contacts prescribed: a few impacts among many candidates.

The path and the impacts are those of `constraint_exact.step`, but there is no search for contacts, so the
cost does not grow with the number of candidates.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from carom.integrators.base import ConservativeForce
from carom.integrators.constraint_exact.contact_times import Paths, implicit_root
from carom.mechanics import Contacts, impact_impulse, lasting_contact
from carom.types import Coordinates, PerBody, PerContact, Scalar, State

Kick = Callable[[PerContact], Float[Array, "contacts dimension"] | None]
"""What impacts add to the relative velocities across their normals, from the rates of the gaps."""


def prescribed_step(
    state: State,
    step_size: Scalar,
    *,
    masses: PerBody,
    force: ConservativeForce,
    contacts: Contacts,
    happens: Bool[Array, "contacts"],
    restitution: Callable[[PerContact], PerContact],
    friction: PerContact | None = None,
    kick: Kick | None = None,
    duration: PerContact | None = None,
    grazing_speed: Scalar = 1e-3,
) -> tuple[State, PerContact]:
    """Advance by one step with one impact of each prescribed contact, and no other.

    Returns the state and the instants of the impacts as fractions of the step (½ without an impact). An
    impact occurs where the path meets the surface even if that is slightly before or after the step.

    Arguments:
        contacts: a few candidates; the cost grows with the square of their number.
        happens: which of them have an impact in this step.
        restitution: gives e of these contacts from the rates of their gaps before the impact.
        friction: μ of these contacts; None for smooth surfaces.
        kick: gives what impacts add to the relative velocities, from the same rates.
        duration: of these contacts; None if they are instantaneous.
        grazing_speed: as for `constraint_exact_step`.
    """
    inverse, signs = (1 / masses)[:, None], jnp.asarray(contacts.signs, state.position.dtype)

    def glide(state: State, acceleration: Coordinates, duration: Scalar) -> tuple[State, Coordinates]:
        position = state.position + duration * state.velocity + 0.5 * duration**2 * acceleration
        arrived = inverse * force(position)
        return State(position, state.velocity + 0.5 * duration * (acceleration + arrived)), arrived

    def meeting_times(
        state: State, acceleration: Coordinates, remaining: Scalar, delay: PerContact | None
    ) -> tuple[PerContact, Bool[Array, "contacts"]]:
        """When the path of each contact meets its surface, and whether that is a graze."""
        paths = Paths.of(contacts, state, acceleration, delay)
        window = remaining - 2 * step_size, remaining + step_size
        fixed, limits = lax.stop_gradient((paths, window))
        # From the middle of the step, which is nearest to wherever the impact is.
        root = fixed.meeting_times(0.5 * lax.stop_gradient(remaining), limits, grazing_speed)
        root = lax.stop_gradient(root)
        slope = fixed.rates(root)
        time = implicit_root(root, paths.gaps(root), jnp.minimum(slope, -grazing_speed))
        return jnp.clip(time, *window), slope > -grazing_speed

    def impact(state: State, acceleration: Coordinates, struck: Bool[Array, "contacts"]) -> Coordinates:
        """The change of all velocities by the impact of one contact."""
        normal = contacts.normal_of(contacts.relative(state.position))
        relative = contacts.relative(state.velocity)
        rate = jnp.sum(normal * relative, axis=1)
        e, carried = restitution(rate), None
        if duration is not None:
            pull = jnp.sum(normal * contacts.relative(acceleration), axis=1)
            gap = contacts.gap_of(contacts.relative(state.position))
            carried = lasting_contact(e, duration, gap, rate, pull).carried
        change, S = None if kick is None else kick(rate), (signs**2 @ inverse)[:, 0]
        impulse = impact_impulse(
            normal, relative, S, restitution=e, friction=friction, kick=change, carried=carried
        )
        return inverse * (signs.T @ jnp.where(struck[:, None], impulse, 0))

    acceleration = inverse * force(state.position)
    remaining = jnp.asarray(step_size, state.position.dtype)
    instants = jnp.full(happens.shape, 0.5, state.position.dtype)
    # Unrolled: there are one or two contacts, and each pass has at most one impact.
    for _ in range(len(happens)):
        delay = None
        if duration is not None:
            normal = contacts.normal_of(contacts.relative(state.position))
            closing, pull = (
                jnp.sum(normal * contacts.relative(part), axis=1) for part in (state.velocity, acceleration)
            )
            gap = contacts.gap_of(contacts.relative(state.position))
            delay = lasting_contact(restitution(closing), duration, gap, closing, pull).delay
        times, grazing = meeting_times(state, acceleration, remaining, delay)
        # A contact that does not close yet waits for the impact that makes it close.
        waits = happens & grazing
        ready = happens & ~(waits & jnp.any(happens & ~waits))
        first = jnp.argmin(jnp.where(ready, times, jnp.inf))
        struck = ready & (jnp.arange(len(ready)) == first)
        until = jnp.sum(jnp.where(struck, times, 0))
        state, acceleration = glide(state, acceleration, until)
        remaining = remaining - until
        change = impact(state, acceleration, struck)
        state = State(state.position, state.velocity + change)
        instants = jnp.where(struck, 1 - remaining / step_size, instants)
        happens = happens & ~struck
    return glide(state, acceleration, remaining)[0], instants
