"""Ensembles: members stacked into one model, trained as many at a time as memory holds, on all devices."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from carom.compilation import device_memory
from carom.errors import InputError

MEMORY_FRACTION = 0.25
"""Fraction of a device's memory that training may use unless the caller sets a limit."""
AXIS = "members"
INCOMPATIBLE = "Models that are trained together need the same class, scene, options and number of windows."


def stack_models(models: Sequence[PyTree], *, on_host: bool = False) -> PyTree:
    """Ensemble members as one model, whose arrays have an axis over members first.

    With `on_host` the arrays are NumPy's, for which no program is compiled.
    """
    shapes = [jax.tree.map(jnp.shape, eqx.filter(model, eqx.is_array)) for model in models]
    if any(
        jax.tree.structure(model) != jax.tree.structure(models[0]) or shape != shapes[0]
        for model, shape in zip(models, shapes, strict=True)
    ):
        raise InputError(INCOMPATIBLE)
    stack = np.stack if on_host else jnp.stack
    return jax.tree.map(lambda *leaves: stack(leaves) if eqx.is_array(leaves[0]) else leaves[0], *models)


class Partition(NamedTuple):
    """Members in groups of one size, trained one group after another, each split over the devices."""

    members: int
    size: int
    devices: int

    @classmethod
    def of(
        cls, members: int, bytes_each: int, *, memory: float | None, devices: int | None = None
    ) -> "Partition":
        """Equal groups, as few as memory allows.

        Arguments:
            members: number of ensemble members.
            bytes_each: memory that the training of one member needs.
            memory: bytes that a group may use on one device; a fraction of what it has by default.
            devices: number of devices to split over; all local ones by default.

        Example:
            >>> Partition.of(100, 10**6, memory=3e7, devices=1)
            Partition(members=100, size=25, devices=1)
        """
        devices = min(devices or len(jax.local_devices()), members)
        memory = MEMORY_FRACTION * device_memory() if memory is None else memory
        most = devices * max(1, int(memory // max(bytes_each, 1)))
        # Rounded up twice, so that the groups differ by padding only and share one compiled program.
        groups = -(-members // most)
        size = -(-members // groups)
        return cls(members, -(-size // devices) * devices, devices)

    def groups(self) -> list[np.ndarray]:
        """The members of every group; the last group is padded by repeating the last member."""
        firsts = range(0, self.members, self.size)
        return [np.minimum(np.arange(first, first + self.size), self.members - 1) for first in firsts]


def map_members(function: Callable[..., Any], batched: Sequence[bool], *, devices: int) -> Callable[..., Any]:
    """A function of one member, mapped over the leading axis of its arguments and results.

    Arguments:
        function: takes and returns trees of arrays.
        batched: for every argument, whether each member has its own; the others are not copied.
        devices: number of devices that members are split over; nothing is communicated between them.
    """
    many = jax.vmap(function, in_axes=tuple(0 if own else None for own in batched))
    if devices == 1:
        return many
    split, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        many,
        mesh=Mesh(np.array(jax.local_devices()[:devices]), (AXIS,)),
        in_specs=tuple(split if own else whole for own in batched),
        out_specs=split,
        check_vma=False,  # members share no outputs, so there is no replication to check
    )


def tree_bytes(tree: PyTree) -> int:
    """The size of all arrays of a tree, given as arrays or by their shapes."""
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))
