"""Forecasts from many starts by one GPU kernel, in whose registers a block of states stays for all steps.

XLA writes the activations of every step to memory and reads them back, which takes longer than computing
them. Here only states leave the kernel. It is written in Pallas for NVIDIA GPUs; elsewhere it can be
interpreted, slowly, for tests. The package itself forecasts by XLA: this is what a GPU could do with the same
model.
"""

import math
from functools import lru_cache, partial
from typing import NamedTuple, TypeGuard

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from carom.compilation import full_precision
from carom.integrators import consecutive, prepend
from carom.mechanics import Masses, Scene, generalised_impulse, project_overlap, restitution_impulse
from carom.models.base import AbstractModel, Forecast, as_forecast
from carom.models.cd_lagrange_network import CDLagrangeNetwork
from carom.models.contact_signal import CandidateContact
from carom.networks import Activation
from carom.types import State

MAX_COORDINATES, MAX_UNITS, MAX_SIGNAL_UNITS = 4, 2048, 128
"""The largest model: coordinates are unrolled, and the weights of the signal are kept beside the states."""
BLOCK, UNITS, WARPS = 128, 32, 8
"""Starts per block, hidden units of the potential summed at a time, and warps per block."""
PRECISION = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3
"""Products in the contact signal on tensor cores: three bfloat16 products make one of 16 bits.

Only the sign of the log-odds decides a contact, and this moves them by 1e-5. All else is in float32.
"""


def is_fusible(model: AbstractModel) -> TypeGuard[CDLagrangeNetwork]:
    """Whether the kernel accepts this model: few coordinates, flat surfaces, no body in two contacts."""
    if not isinstance(model, CDLagrangeNetwork):
        return False
    scene, contact = model.scene, model.contact
    return (
        scene.coordinates <= MAX_COORDINATES
        and scene.geometry.affine
        and not scene.geometry.coupled
        and scene.projection != "inverse_mass"
        and model.learned_inertia is None
        and model.learned_damping is None
        and model.potential.bias.dtype == jnp.float32
        and model.potential.hidden <= MAX_UNITS
        and (not scene.contacts or len(contact.hidden) == 2)
        and max(contact.hidden, default=0) <= MAX_SIGNAL_UNITS
    )


@eqx.filter_jit
@full_precision()
def fused_forecast(
    model: CDLagrangeNetwork, starts: State, steps: int, *, interpret: bool = False
) -> Forecast:
    """As `carom.models.forecast_many`, for a model that `is_fusible`; `interpret` works without a GPU."""
    scene, count = model.scene, len(starts.position)
    # Half kicks at both ends stay outside the kernel: they are a batch of their own.
    entered = jax.vmap(model.enter)(starts)
    # The last block is padded with copies, whose motions are discarded.
    rows = jnp.minimum(jnp.arange(-(-count // BLOCK) * BLOCK), count - 1)
    sizes = [scene.coordinates, scene.coordinates, scene.contacts][: 3 if scene.contacts else 2]
    moved = pl.pallas_call(
        partial(
            _kernel,
            scene=scene,
            h=model.step_size,
            activation=model.potential.activation,
            precision=jax.lax.Precision.HIGHEST if interpret else PRECISION,
        ),
        out_shape=[jax.ShapeDtypeStruct((steps, size, len(rows)), jnp.float32) for size in sizes],
        grid=(len(rows) // BLOCK,),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1),
        name="carom_fused_rollout",
    )(
        *(part.reshape(count, -1)[rows].T for part in (entered.position, entered.velocity)),
        _potential_rows(model),
        *_signal_layers(model),
    )
    position, velocity, *signal = (jnp.moveaxis(part[..., :count], -1, 0) for part in moved)
    shape = (count, steps, scene.bodies, scene.dimension)
    states = jax.vmap(prepend)(entered, State(position.reshape(shape), velocity.reshape(shape)))

    def on_samples(start, states, logits):
        return as_forecast(start, jax.vmap(model.leave)(*consecutive(states), logits > 0), logits)

    return jax.vmap(on_samples)(starts, states, signal[0] if signal else jnp.zeros((count, steps, 0)))


def _kernel(position, velocity, potential, *others, scene: Scene, h, activation: Activation, precision):
    """All steps of one block; positional arguments are references into the memory of the device."""
    layers, out = (others[:6], others[6:]) if scene.contacts else ((), others)
    effects, n = contact_effects(scene), scene.coordinates
    mass = np.repeat(np.asarray(scene.masses, float), scene.dimension)
    here = pl.ds(pl.program_id(0) * BLOCK, BLOCK)
    if layers:  # loaded once, so that the second weights stay where products read their factors
        layers = (*layers[:2], layers[2][...], *layers[3:])

    def step(number, state):
        Q, V = state
        Q = [Q[i] + h * V[i] for i in range(n)]
        logits = _logits(*layers, inputs=[*Q, *V], precision=precision) if layers else []
        touching = [logit > 0 for logit in logits]
        Q = _add_effects(Q, touching, [(e.offset[:n], e.matrix[:n, :n]) for e in effects], Q)
        slope = _slope(potential, Q, activation)
        V_smooth = [V[i] - h / float(mass[i]) * slope[i] for i in range(n)]
        kicks = [(e.offset[n:], e.matrix[n:, n:]) for e in effects]
        V = _add_effects(V_smooth, touching, kicks, [*V, *V_smooth])
        for reference, values in zip(out, (Q, V, logits), strict=False):
            for i, value in enumerate(values):
                reference[number, i, here] = value
        return tuple(Q), tuple(V)

    start = tuple(tuple(part[i, here] for i in range(n)) for part in (position, velocity))
    jax.lax.fori_loop(0, out[0].shape[0], step, start)


class ContactEffect(NamedTuple):
    """(ΔQ, ΔV) = offset + matrix (Q, V, V^S) when one contact touches."""

    offset: Float[np.ndarray, "changes"]
    matrix: Float[np.ndarray, "changes inputs"]


@lru_cache
def contact_effects(scene: Scene) -> tuple[ContactEffect, ...]:
    """The effect of every contact on a CD-Lagrange step, by differentiating the formulae of mechanics.

    Effects are affine on flat surfaces with a projection that does not depend on the depth of the overlap,
    and add up over contacts that share no body.

    Example:
        >>> import carom
        >>> (floor,) = contact_effects(carom.systems.BouncingBall(restitution=0.5).scene())
        >>> floor.matrix[1, 1:].tolist()  # v⁺ = −e v⁻ instead of v^S
        [-0.5, -1.0]
    """

    def change(inputs, contact):
        Q, V, smooth = inputs.reshape(3, scene.bodies, scene.dimension)
        moved = project_overlap(
            scene.projection, scene.geometry, inertia, Q, contact > 0, reference=scene.reference
        )
        jacobian = scene.geometry.jacobian(jnp.zeros_like(Q))  # the same everywhere
        restitution = jnp.full_like(contact, scene.restitution)
        impulse = restitution_impulse(jacobian, inertia, V, smooth, restitution=restitution, active=contact)
        kick = inertia.solve(generalised_impulse(jacobian, impulse))
        return jnp.concatenate([(moved - Q).ravel(), kick.ravel()])

    # Evaluated to numbers even while the caller is being traced.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        inertia = Masses(jnp.asarray(scene.masses, jnp.float64))
        zero = jnp.zeros(3 * scene.coordinates, jnp.float64)
        return tuple(
            ContactEffect(np.asarray(change(zero, contact)), np.asarray(jax.jacfwd(change)(zero, contact)))
            for contact in jnp.eye(scene.contacts, dtype=jnp.float64)
        )


def _add_effects(values: list, touching: list, effects: list, inputs: list) -> list:
    """Add offset + matrix · inputs of every touching contact; zeros cost nothing."""
    # Written out entry by entry: a matrix this small would not fill a tensor core.
    result = list(values)
    for active, (offset, matrix) in zip(touching, effects, strict=True):
        for i, row in enumerate(matrix):
            terms = [jnp.full_like(values[i], offset[i])] if offset[i] else []
            terms += [float(factor) * x for factor, x in zip(row, inputs, strict=True) if factor]
            if terms:
                result[i] = result[i] + jnp.where(active, sum(terms[1:], terms[0]), 0.0)
    return result


def _potential_rows(model: CDLagrangeNetwork) -> Float[Array, "rows units"]:
    """Weights and biases as exponents of 2, and the factor of each unit in ∂U/∂q, one row per coordinate.

    φ′(x) is σ(x) for softplus and 4 σ(2x) (1 − σ(2x)) for tanh, and σ(x) = 1 / (1 + 2^{−x / ln 2}).
    """
    potential = model.potential
    twice = 2.0 if potential.activation == "tanh" else 1.0
    exponent = -twice / math.log(2) * jnp.column_stack([potential.weight, potential.bias])
    contribution = twice**2 * potential.output[:, None] * potential.weight
    rows = jnp.column_stack([exponent, contribution]).T
    # Units of padding have output weight 0, so they add nothing.
    return jnp.pad(rows, ((0, 0), (0, -potential.hidden % UNITS)))


def _slope(potential, Q: list, activation: Activation) -> list:
    """∂U/∂q. Chunks of units are summed first, and the partial sums of the threads only once."""
    size = len(Q)
    sums = [jnp.zeros((BLOCK, UNITS), jnp.float32) for _ in Q]
    for first in range(0, potential.shape[1], UNITS):
        row = [potential[k, pl.ds(first, UNITS)][None, :] for k in range(2 * size + 1)]
        exponent = row[size]
        for i in range(size):
            exponent = exponent + Q[i][:, None] * row[i]
        # A reciprocal square root takes half of the special functions that a division would.
        root = jax.lax.rsqrt(1.0 + jnp.exp2(exponent))
        rate = root * root
        if activation == "tanh":
            rate = rate - rate * rate
        sums = [sums[i] + rate * row[size + 1 + i] for i in range(size)]
    return [jnp.sum(part, axis=1) for part in sums]


def _signal_layers(model: CDLagrangeNetwork) -> list[Array]:
    """Weights and biases of the contact signal's three layers, padded to widths that are powers of 2."""
    if not isinstance(model.contact, CandidateContact):
        return []
    network = model.contact.network
    (first, second, last), biases = network.weights, network.biases
    one, two = (max(16, 1 << (width - 1).bit_length()) for width in network.hidden)

    def padded(x: Array, *shape: int) -> Array:
        return jnp.pad(x, [(0, new - old) for old, new in zip(x.shape, shape, strict=True)])

    first, second = padded(first, one, first.shape[1]).T, padded(second, two, one).T
    last = padded(last, last.shape[0], two)
    return [first, padded(biases[0], one), second, padded(biases[1], two), last, biases[2]]


def _logits(first, first_bias, second, second_bias, last, last_bias, *, inputs: list, precision) -> list:
    """Log-odds of the contacts, by the network of `CandidateContact`."""
    hidden = first_bias[:][None, :]
    for k, x in enumerate(inputs):
        hidden = hidden + x[:, None] * first[k, :][None, :]
    product = jnp.dot(jnp.maximum(hidden, 0.0), second, precision=precision)
    hidden = jnp.maximum(product + second_bias[:][None, :], 0.0)
    return [jnp.sum(hidden * last[j, :][None, :], axis=1) + last_bias[j] for j in range(last.shape[0])]
