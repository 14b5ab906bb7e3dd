"""The base class of the parts of a mechanism, and their registry by name."""

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

    A class with a name is registered under it for model files and `learn`, wherever it is defined; importing
    it is enough.
    """

    name: ClassVar[str]

    @classmethod
    @abstractmethod
    def for_scene(cls: type[Part], scene: "Scene") -> Part:
        """The part with the values stated in a scene, or neutral ones; static fields are keyword options."""

    @property
    def options(self) -> dict[str, Any]:
        """The static fields, as accepted by `for_scene`."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.metadata.get("static", False)}


def named_parts(kind: type[Part]) -> dict[str, type[Part]]:
    """All named parts of a kind, by name."""
    found: dict[str, type[Part]] = {}
    for child in kind.__subclasses__():
        # Equinox makes a hidden subclass of every module while it is constructed.
        if "name" in vars(child) and child.__module__ != "equinox._module":
            found[child.name] = child
        found |= named_parts(child)
    return found


def part_named(kind: type[Part], name: str) -> type[Part]:
    """The part of a kind with this name."""
    known = named_parts(kind)
    if name not in known:
        names = ", ".join(sorted(known))
        raise InputError(f"No part is called {name!r}, only {names}; import the module that defines it.")
    return known[name]
