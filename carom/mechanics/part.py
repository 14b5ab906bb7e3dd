"""What every part of a mechanism has in common: a name in files, and how it is made for a scene."""

from abc import abstractmethod
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import equinox as eqx

from carom.errors import InputError

if TYPE_CHECKING:
    from carom.mechanics.scene import Scene

Part = TypeVar("Part", bound="AbstractPart")


class AbstractPart(eqx.Module):
    """A force, a contact law or a stepper: an immutable module with a name.

    A class that names itself is found by that name in model files and among what can be learned, wherever it
    is
    defined: importing it is enough.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def for_scene(cls: type[Part], scene: "Scene") -> Part:
        """The part with the numbers that the scene states, or with neutral ones; options are static
        fields."""

    @property
    def options(self) -> dict[str, Any]:
        """The static fields, which `for_scene` takes."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("static", False)}


def named_parts(kind: type[Part]) -> dict[str, type[Part]]:
    """All parts of a kind that have a name, by that name."""
    found: dict[str, type[Part]] = {}
    for child in kind.__subclasses__():
        if "name" in vars(child) and child.__module__ != "equinox._module":
            found[child.name] = child
        found |= named_parts(child)
    return found


def part_named(kind: type[Part], name: str) -> type[Part]:
    """The part of a kind that has this name."""
    known = named_parts(kind)
    if name not in known:
        names = ", ".join(sorted(known))
        raise InputError(f"There is no part called {name!r} among {names}; import what defines it.")
    return known[name]
