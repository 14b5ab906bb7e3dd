"""Rollouts of many starts by one kernel, in whose registers a block of them stays for all steps.

XLA writes the activations of every step to memory and reads them back, which takes longer than computing
them. Here only states leave the kernel. It is written in Pallas for GPUs of NVIDIA; elsewhere it is
interpreted, slowly, to be tested.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float

from carom.mechanics import Scene
from carom.models.cd_lagrange_network import CDLagrangeNetwork
from carom.models.contact_effects import contact_effects
from carom.models.contact_signal import CandidateContact
from carom.networks import Activation
from carom.types import State

PRECISION = jax.lax.DotAlgorithmPreset.BF16_BF16_F32_X3
"""Of products in the contact signal: three of 8 bits make one of 16, on units made for products.

What decides a contact is the sign of the log-odds, which this moves by 1e-5. All else is in float32.
"""


class Tiling(NamedTuple):
    """How the work is cut: starts of a block, units of the potential at a time, warps of a block."""

    block: int = 128
    units: int = 32
    warps: int = 8


class OwnGrid(NamedTuple):
    """States on the model's own grid after every step, and log-odds of the contacts of these steps."""

    position: Float[Array, "steps coordinates starts"]
    velocity: Float[Array, "steps coordinates starts"]
    logits: Float[Array, "steps signals starts"]


def fused_rollout(
    model: CDLagrangeNetwork,
    starts: State,
    steps: int,
    *,
    tiling: Tiling = Tiling(),  # noqa: B008
    interpret: bool = False,
) -> OwnGrid:
    """Roll the model out from many states on its own grid, with its own contacts.

    Arguments:
        model: one that `carom.models.forecast_many` says `is_fusible`.
        starts: with an axis over them before their own.
        steps: steps to take.
        tiling: how the work is cut.
        interpret: run the kernel without a GPU.
    """
    count = len(starts.position)
    blocks = -(-count // tiling.block)
    # The last block is filled up with copies, whose motions are thrown away.
    rows = jnp.minimum(jnp.arange(blocks * tiling.block), count - 1)
    start = [part.reshape(count, -1)[rows].T for part in (starts.position, starts.velocity)]
    signal = _signal_layers(model)
    written = [scale.shape[0] for scale in start] + [len(layers.last) for layers in signal]
    kernel = partial(
        _kernel,
        scene=model.scene,
        h=model.step_size,
        activation=model.potential.activation,
        tiling=tiling,
        precision=jax.lax.Precision.HIGHEST if interpret else PRECISION,
    )
    moved = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct((steps, size, len(rows)), jnp.float32) for size in written],
        grid=(blocks,),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=tiling.warps, num_stages=1),
        name="carom_fused_rollout",
    )(*start, _potential_rows(model, tiling.units), *(array for layers in signal for array in layers))
    nothing = [] if signal else [jnp.zeros((steps, 0, len(rows)), jnp.float32)]
    return OwnGrid(*(part[..., :count] for part in (*moved, *nothing)))


def _kernel(
    position, velocity, potential, *others, scene: Scene, h: float, activation: Activation, tiling, precision
):
    """All steps of one block; positional arguments are references into the memory of the device."""
    signal = _Signal(*others[:6]) if scene.contacts else None
    out = others[6:] if scene.contacts else others
    effects = contact_effects(scene)
    mass = np.repeat(np.asarray(scene.masses, float), scene.dimension)
    here = pl.ds(pl.program_id(0) * tiling.block, tiling.block)
    axes = range(scene.coordinates)
    # Loaded once: it then stays where products take their factors from.
    layers = None if signal is None else signal._replace(second=signal.second[...])

    def step(n, state):
        Q, V = state
        Q = [Q[i] + h * V[i] for i in axes]
        logits = [] if layers is None else _logits(layers, [*Q, *V], precision)
        touching = [logit > 0 for logit in logits]
        Q = _changed(Q, touching, [[(effect.move, Q)] for effect in effects], [e.place for e in effects])
        slope = _slope(potential, Q, activation, tiling.units)
        V_smooth = [V[i] - h / float(mass[i]) * slope[i] for i in axes]
        kicks = [[(effect.by_before, V), (effect.by_smooth, V_smooth)] for effect in effects]
        V = _changed(V_smooth, touching, kicks)
        for reference, values in zip(out, (Q, V, logits), strict=False):
            for i, value in enumerate(values):
                reference[n, i, here] = value
        return tuple(Q), tuple(V)

    start = tuple(tuple(part[i, here] for i in axes) for part in (position, velocity))
    jax.lax.fori_loop(0, out[0].shape[0], step, start)


def _changed(vector: list, touching: list, products: list, places: list | None = None) -> list:
    """A vector with what touching contacts add, matrices times vectors and a place; zeros cost nothing."""
    result = list(vector)
    for j, active in enumerate(touching):
        for i in range(len(vector)):
            place = 0.0 if places is None else float(places[j][i])
            added = [jnp.full_like(vector[i], place)] if place else []
            added += [
                float(factor) * other
                for matrix, others in products[j]
                for factor, other in zip(matrix[i], others, strict=True)
                if factor
            ]
            if added:
                result[i] = result[i] + jnp.where(active, sum(added[1:], added[0]), 0.0)
    return result


def _potential_rows(model: CDLagrangeNetwork, multiple: int) -> Float[Array, "rows units"]:
    """Weights and biases as exponents of 2, and what each unit contributes to ∂U/∂q, a row per coordinate.

    φ′(x) is σ(x) for softplus and 4 σ(2x) (1 − σ(2x)) for tanh, and σ(x) = 1 / (1 + 2^{−x / ln 2}).
    """
    potential = model.potential
    twice = 2.0 if potential.activation == "tanh" else 1.0
    exponent = -twice / math.log(2) * jnp.column_stack([potential.weight, potential.bias])
    contribution = twice**2 * potential.output[:, None] * potential.weight
    rows = jnp.column_stack([exponent, contribution]).T
    return jnp.pad(rows, ((0, 0), (0, -potential.hidden % multiple)))


def _slope(potential, Q: list, activation: Activation, units: int) -> list:
    """∂U/∂q. Chunks of units are added up first, and then once what the threads have."""
    size = len(Q)
    sums = [jnp.zeros((len(Q[0]), units), jnp.float32) for _ in Q]
    for first in range(0, potential.shape[1], units):
        row = [potential[k, pl.ds(first, units)][None, :] for k in range(2 * size + 1)]
        exponent = row[size]
        for i in range(size):
            exponent = exponent + Q[i][:, None] * row[i]
        # Half of the special functions that a division would take.
        root = jax.lax.rsqrt(1.0 + jnp.exp2(exponent))
        rate = root * root
        if activation == "tanh":
            rate = rate - rate * rate
        sums = [sums[i] + rate * row[size + 1 + i] for i in range(size)]
    return [jnp.sum(part, axis=1) for part in sums]


class _Signal(NamedTuple):
    """The layers of the contact signal, filled up with zeros to widths that are powers of 2."""

    first: Array
    first_bias: Array
    second: Array
    second_bias: Array
    last: Array
    last_bias: Array


def _signal_layers(model: CDLagrangeNetwork) -> list[_Signal]:
    """None or one."""
    if not isinstance(model.contact, CandidateContact):
        return []
    network = model.contact.network
    (first, second, last), biases = network.weights, network.biases
    inputs, outputs = first.shape[1], last.shape[0]
    one, two = (max(16, 1 << (width - 1).bit_length()) for width in network.hidden)

    def filled(x: Array, *shape: int) -> Array:
        return jnp.pad(x, [(0, new - old) for old, new in zip(x.shape, shape, strict=True)])

    return [
        _Signal(
            filled(first, one, inputs).T,
            filled(biases[0], one),
            filled(second, two, one).T,
            filled(biases[1], two),
            filled(last, outputs, two),
            biases[2],
        )
    ]


def _logits(layers: _Signal, inputs: list, precision) -> list:
    """Log-odds of the contacts, by the network of `CandidateContact`."""
    hidden = layers.first_bias[:][None, :]
    for k, x in enumerate(inputs):
        hidden = hidden + x[:, None] * layers.first[k, :][None, :]
    product = jnp.dot(jnp.maximum(hidden, 0.0), layers.second, precision=precision)
    hidden = jnp.maximum(product + layers.second_bias[:][None, :], 0.0)
    return [
        jnp.sum(hidden * layers.last[j, :][None, :], axis=1) + layers.last_bias[j]
        for j in range(layers.last.shape[0])
    ]
