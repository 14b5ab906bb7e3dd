"""Candidate contacts in NumPy, for loops outside of compiled programs."""

import numpy as np

from carom.mechanics.geometry import ContactGeometry


class PlainContacts:
    """Gaps and normals of `carom.mechanics.geometry` for many positions, without a module around them.

    Equinox builds a module at every access to a method of one, which takes ten times as long as these
    methods; a loop over small steps calls them a hundred thousand times. Positions may have leading axes.

    Example:
        >>> from carom.mechanics import Wall
        >>> floor = PlainContacts(ContactGeometry(1, 1, (Wall(0, (1.0,), offset=0.5),)))
        >>> floor.gap(np.array([[2.0]]))
        array([1.5])
    """

    def __init__(self, geometry: ContactGeometry):
        rows = geometry.rows
        self.signs, self.planes = np.asarray(rows.signs), np.asarray(rows.normal)
        self.offset = np.asarray(rows.offset)
        self.curved = np.zeros(len(geometry), bool) if rows.curved is None else np.asarray(rows.curved)
        self.any_curved = bool(self.curved.any())

    def relative(self, coordinates: np.ndarray) -> np.ndarray:
        """Of first bodies to second ones, or to walls."""
        return self.signs @ coordinates

    def gap(self, position: np.ndarray) -> np.ndarray:
        """One per contact."""
        return self.gap_of(self.relative(position))

    def gap_of(self, relative: np.ndarray) -> np.ndarray:
        """The gap from relative positions."""
        flat = self._heights(relative).max(axis=-1)
        if not self.any_curved:
            return flat
        distance = np.sqrt(np.sum(relative**2, axis=-1))
        return np.where(self.curved, distance - self.offset[:, 0], flat)

    def normal_of(self, relative: np.ndarray) -> np.ndarray:
        """The direction in which every gap opens fastest."""
        if self.planes.shape[1] == 1:
            flat = np.broadcast_to(self.planes[:, 0], relative.shape)
        else:
            highest = np.argmax(self._heights(relative), axis=-1)
            flat = self.planes[np.arange(len(self.planes)), highest]
        if not self.any_curved:
            return flat
        distance = np.sqrt(np.sum(relative**2, axis=-1, keepdims=True))
        return np.where(self.curved[:, None], relative / np.where(distance > 0, distance, 1.0), flat)

    def _heights(self, relative: np.ndarray) -> np.ndarray:
        return np.sum(self.planes * relative[..., None, :], axis=-1) - self.offset
