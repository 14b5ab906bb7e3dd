"""Declarations of physical parameters: name, unit, bounds and prior of the fields of a part.

A part (a force, a contact law, the bodies, the geometry) marks a field as a parameter:

    coefficient: Float[Array, "bodies"] = parameter("drag", "quadratic drag", unit="1/length", lower=0.0)

By that alone the number can be learned under the name "drag", bounded, reported with its error and saved.
Which parameters are free, and which contacts, bodies or runs share a value, belongs to a fit, not to the
part.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import equinox as eqx
import numpy as np

from carom.errors import require_choice

Axis = Literal["contact", "body", "coordinate", "impact"]
"""The objects to which the entries of a parameter belong."""
UNITS: dict[str, tuple[int, int]] = {
    "": (0, 0),
    "length": (1, 0),
    "time": (0, 1),
    "1/length": (-1, 0),
    "1/time": (0, -1),
    "length/time": (1, -1),
    "length/time²": (1, -2),
}
"""Units as exponents of length and time; mass does not occur, since motion determines only mass ratios."""
Path = tuple[str | int, ...]
"""Path of a field in a tree of modules and tuples."""


@dataclass(frozen=True)
class ParameterSpec:
    """Declaration of a parameter.

    Arguments:
        key: the name under which it is learned (`learn=["drag"]`, `--learn drag`).
        name: as it appears in reports.
        unit: one of `UNITS`; priors scale with it.
        lower, upper: bounds; an estimate may lie on a bound.
        mean, deviation: of a normal prior, in the natural units of a recording; a mean of None is the initial
            value of the estimate.
        axis: the objects to which the entries along the first axis belong.
        terms: names of the entries along a second axis.
        logarithm: whether the field is the logarithm of a positive number, of which only the ratios to the
            first entry are determined.
        pooled: whether values per run scatter about the common one with an estimated standard deviation
            (partial pooling) instead of being independent.
        network: whether these are network weights, which are not reported.
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
        """The natural unit of this parameter, from those of length and time."""
        length_exponent, time_exponent = UNITS[self.unit]
        return length**length_exponent * time**time_exponent


def parameter(key: str, name: str, **declared: Any) -> Any:
    """Declare a field as a parameter; arguments as for `ParameterSpec`."""
    # In the metadata, not in the module: names and priors must not become part of compiled programs.
    return eqx.field(metadata={"parameter": ParameterSpec(key, name, **declared)})


def parameters_of(tree: Any, path: Path = ()) -> Iterator[tuple[Path, ParameterSpec]]:
    """All parameters declared by the parts of a mechanism, with their paths."""
    if isinstance(tree, tuple):
        for index, part in enumerate(tree):
            yield from parameters_of(part, (*path, index))
    elif isinstance(tree, eqx.Module):
        for field in fields(tree):
            # A field of None is a parameter that this part does not have.
            value = getattr(tree, field.name, None)
            spec = field.metadata.get("parameter")
            if spec is None:
                yield from parameters_of(value, (*path, field.name))
            elif value is not None:
                yield (*path, field.name), spec


def at(*paths: Path) -> Callable[[Any], tuple[Any, ...]]:
    """A selector of the fields at these paths, for `eqx.tree_at`."""
    return lambda tree: tuple(_reached(tree, path) for path in paths)


def _reached(tree: Any, path: Path) -> Any:
    for step in path:
        tree = tree[step] if isinstance(step, int) else getattr(tree, step)
    return tree
