"""Derivatives of roots by the implicit function theorem."""

from jax import lax
from jaxtyping import Array, Float


def implicit_root(
    root: Float[Array, "..."], value: Float[Array, "..."], slope: Float[Array, "..."]
) -> Float[Array, "..."]:
    """A root t of g(t, θ) = 0 with the derivative dt/dθ = −(∂g/∂θ)/(∂g/∂t) of the implicit function theorem.

    This is one Newton step with a constant slope, t − g(t, θ)/ġ, which also removes most of the remaining
    error of the iteration.

    Arguments:
        root: the root; the iteration that found it is not differentiated.
        value: g(t, θ) at that root held fixed, with its derivatives by θ.
        slope: ∂g/∂t there, bounded away from 0 by the caller (the derivative diverges at a grazing contact).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def fall_time(gravity):     # from a height of 1 m: t = √(2/g), dt/dg = −t/2g
        ...     time = jnp.sqrt(2 / lax.stop_gradient(gravity))
        ...     return implicit_root(time, 1 - 0.5 * gravity * time**2, -gravity * time)
        >>> jax.grad(fall_time)(2.0)
        Array(-0.25, dtype=float32, weak_type=True)
    """
    return lax.stop_gradient(root) - value / lax.stop_gradient(slope)
