"""Members of an ensemble: as many at a time as memory holds, split over the devices of this machine."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import PyTree

from carom.compilation import device_memory

SHARE = 0.25
"""Of a device's memory that members may take, unless a caller says how much."""
AXIS = "members"


class Parts(NamedTuple):
    """How members are worked through: parts of one size, one after another, each split over the devices."""

    members: int
    size: int
    devices: int

    @classmethod
    def of(
        cls, members: int, bytes_each: int, *, memory: float | None, devices: int | None = None
    ) -> "Parts":
        """Equal parts, as few as memory allows.

        Arguments:
            members: how many there are.
            bytes_each: what one needs while it is trained.
            memory: bytes that all of a part may take on one device; a share of what it has by default.
            devices: over how many to split; all of this machine by default.

        Example:
            >>> Parts.of(100, 10**6, memory=3e7, devices=1)
            Parts(members=100, size=25, devices=1)
        """
        devices = min(devices or len(jax.local_devices()), members)
        memory = SHARE * device_memory() if memory is None else memory
        most = devices * max(1, int(memory // max(bytes_each, 1)))
        parts = -(-members // most)
        size = -(-members // parts)
        return cls(members, -(-size // devices) * devices, devices)

    def each(self) -> list[np.ndarray]:
        """The members of every part; the last part repeats the last member where it would be smaller."""
        return [
            np.minimum(np.arange(first, first + self.size), self.members - 1)
            for first in range(0, self.members, self.size)
        ]


def over_members(function: Callable[..., Any], each: Sequence[bool], *, devices: int) -> Callable[..., Any]:
    """A function of one member as one of many, its arguments and results with an axis over them.

    Arguments:
        function: of trees of arrays.
        each: of every argument whether members have their own; what they share is not copied for them.
        devices: over how many members are split, nothing being passed between them.
    """
    many = jax.vmap(function, in_axes=tuple(0 if own else None for own in each))
    if devices == 1:
        return many
    split, whole = PartitionSpec(AXIS), PartitionSpec()
    return jax.shard_map(
        many,
        mesh=Mesh(np.array(jax.local_devices()[:devices]), (AXIS,)),
        in_specs=tuple(split if own else whole for own in each),
        out_specs=split,
        check_vma=False,  # members share nothing, so there is nothing to check
    )


def tree_bytes(tree: PyTree) -> int:
    """The size of all arrays in a tree; their shapes are enough."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape")]
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
