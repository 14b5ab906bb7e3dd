"""Declarations of physical parameters: what a part says of its numbers, wherever they are estimated.

A part (a force, a contact law, the bodies, the geometry) marks a field as a parameter:

    coefficient: Float[Array, "bodies"] = parameter("drag", "quadratic drag", unit="1/length", lower=0.0)

By that alone the number can be learned under the name "drag", bounded, reported with its error and saved.
Which parameters are free, and which contacts, bodies or runs share a value, belongs to a fit and not to the
part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import equinox as eqx
import numpy as np

from carom.errors import require_choice

Axis = Literal["contact", "body", "coordinate"]
"""What the entries of a parameter belong to."""
UNITS: dict[str, tuple[int, int]] = {
    "": (0, 0),
    "length": (1, 0),
    "1/length": (-1, 0),
    "1/time": (0, -1),
    "length/time": (1, -1),
    "length/time²": (1, -2),
}
"""Units as exponents of length and time. Masses are never determined but for their ratios."""
Path = tuple[str | int, ...]
"""Where in a tree of modules and tuples a field lies."""


@dataclass(frozen=True)
class ParameterSpec:
    """What is known of a parameter before any data.

    Arguments:
        key: the name under which it is learned (`learn=["drag"]`, `--learn drag`).
        name: what it is, in words.
        unit: one of `UNITS`; priors scale with it.
        lower, upper: bounds of possible values; an estimate may lie on a bound.
        mean, deviation: of a normal prior, in the natural units of a recording; a mean of None is where an
            estimate starts.
        axis: what the entries along the first axis belong to.
        terms: names of the entries along a second axis.
        logarithm: whether the field holds the logarithm of a positive number, of which only ratios to the
            first entry can be determined.
        pooled: whether values that differ from run to run scatter about the common one by an estimated
            standard deviation, rather than each on its own.
        network: whether these are weights of a network, which are not reported.
    """

    key: str
    name: str
    unit: str = ""
    lower: float = -np.inf
    upper: float = np.inf
    mean: float | None = 0.0
    deviation: float = 1.0
    axis: Axis = "contact"
    terms: tuple[str, ...] = ()
    logarithm: bool = False
    pooled: bool = False
    network: bool = False

    def __post_init__(self):
        require_choice("axis", self.axis, Axis)
        if self.unit not in UNITS:
            raise ValueError(f"The unit of {self.key} must be one of {', '.join(map(repr, UNITS))}.")

    def scale(self, length: float, time: float) -> float:
        """The natural unit of this parameter where these are those of length and time."""
        of_length, of_time = UNITS[self.unit]
        return length**of_length * time**of_time


def parameter(key: str, name: str, **declared: Any) -> Any:
    """A field that holds a parameter; arguments as for `ParameterSpec`."""
    return eqx.field(metadata={"parameter": ParameterSpec(key, name, **declared)})


def parameters_of(tree: Any, path: Path = ()) -> Iterator[tuple[Path, ParameterSpec]]:
    """All parameters that the parts of a mechanism declare, and where they are."""
    if isinstance(tree, tuple):
        for index, part in enumerate(tree):
            yield from parameters_of(part, (*path, index))
    elif isinstance(tree, eqx.Module):
        for field in fields(tree):
            value = getattr(tree, field.name, None)
            spec = field.metadata.get("parameter")
            if spec is None:
                yield from parameters_of(value, (*path, field.name))
            elif value is not None:
                yield (*path, field.name), spec


def at(*paths: Path) -> Callable[[Any], tuple[Any, ...]]:
    """Selects what lies at these places, for `eqx.tree_at`."""

    def one(tree: Any, path: Path) -> Any:
        for step in path:
            tree = tree[step] if isinstance(step, int) else getattr(tree, step)
        return tree

    return lambda tree: tuple(one(tree, path) for path in paths)
