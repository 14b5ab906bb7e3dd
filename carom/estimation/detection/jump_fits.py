"""Least squares over whole short runs: every coordinate a parabola, with jumps of velocity at impacts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.data.recording import channels
from carom.estimation.detection.impacts import OFFSETS
from carom.mechanics import Contacts, Scene


class ContactArrays(NamedTuple):
    """Which bodies candidate contacts join, and where their surfaces are; a wall has its body twice."""

    first: Int[np.ndarray, "contacts"]
    second: Int[np.ndarray, "contacts"]
    wall: Bool[np.ndarray, "contacts"]
    rows: Contacts

    @classmethod
    def of(cls, scene: Scene) -> "ContactArrays":
        geometry = scene.geometry
        bodies = np.array([(joined[0], joined[-1]) for joined in geometry.joined], int).reshape(-1, 2)
        return cls(bodies[:, 0], bodies[:, 1], ~geometry.body_pairs, geometry.rows)

    def gaps_and_normals(self, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of every contact, for positions of shape (…, bodies, dimension)."""
        relative = self.rows.relative(position)
        return self.rows.gap_of(relative), self.rows.normal_of(relative)


@dataclass(frozen=True, eq=False)
class RunStack:
    """Runs of one length side by side, values over their noise, and what parabolas leave of them."""

    time: Float[np.ndarray, "runs samples"]
    instants: Float[np.ndarray, "runs instants"]
    """Where an impact is tried, step by step."""
    basis: Float[np.ndarray, "runs bodies dimension rows 3"]
    """Orthonormal, of all parabolas."""
    triangle: Float[np.ndarray, "runs bodies dimension 3 3"]
    value: Float[np.ndarray, "runs bodies dimension rows"]
    ramps: Float[np.ndarray, "runs bodies dimension instants rows"]
    """What a jump of velocity by 1 at every instant changes."""
    bends: Float[np.ndarray, "runs bodies dimension instants rows"]
    """What no parabola explains of that."""
    counts: Float[np.ndarray, "runs"]

    @classmethod
    def of(
        cls, runs: Sequence[Run], noise: Float[np.ndarray, "2"], stiffness: Float[np.ndarray, "dimension"]
    ) -> "RunStack":
        time = np.stack([run.time - run.time[0] for run in runs])
        values = np.stack([channels(run) for run in runs])  # runs samples 2 bodies dimension
        known = np.isfinite(values)
        weight = np.moveaxis(known / noise[:, None, None], (1, 2), (3, 4))
        value = np.moveaxis(np.where(known, values, 0), (1, 2), (3, 4)) * weight
        ones, zeros = np.ones_like(time), np.zeros_like(time)
        design = np.stack(
            [np.stack([ones, time, 0.5 * time**2], -1), np.stack([zeros, ones, time], -1)], axis=2
        )
        count, samples = time.shape
        places = np.array(OFFSETS)
        step = np.diff(time, axis=1)
        instants = (time[:, :-1, None] + places * step[:, :, None]).reshape(count, -1)
        since = time[:, None, :] - instants[:, :, None]
        ramp = np.stack([np.maximum(since, 0), (since > 0).astype(float)], axis=-1)

        def rows(x, columns):
            """Samples and channels as one axis of rows, and a last row for the prior of the acceleration."""
            flat = x.reshape(*x.shape[: -2 - columns], 2 * samples, *x.shape[x.ndim - columns :])
            pad = [(0, 0)] * flat.ndim
            pad[flat.ndim - 1 - columns] = (0, 1)
            return np.pad(flat, pad)

        smooth = rows(weight[..., None] * design[:, None, None], 1)
        smooth[..., -1, 2] = np.sqrt(stiffness)[None, None]
        basis, triangle = np.linalg.qr(smooth)
        ramps = rows(weight[:, :, :, None] * ramp[:, None, None], 0)
        bends = _beyond(basis, ramps)
        counts = known.sum(axis=(1, 2, 3, 4)).astype(float)
        return cls(time, instants, basis, triangle, rows(value, 0), ramps, bends, counts)

    def take(self, rows: Int[np.ndarray, "some"]) -> "RunStack":
        """Some of the runs."""
        return RunStack(*(getattr(self, field.name)[rows] for field in fields(self)))

    def smoothed(self, x: np.ndarray) -> np.ndarray:
        """What no parabola explains of rows (runs bodies dimension … rows)."""
        return _beyond(self.basis, x)

    def parabola(self, x: np.ndarray) -> np.ndarray:
        """Coefficients q, v, a of every coordinate."""
        inner = np.einsum("rkdni,rkdn->rkdi", self.basis, x)
        return np.linalg.solve(self.triangle, inner[..., None])[..., 0]


def _beyond(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Rows (runs bodies dimension … rows) without what an orthonormal basis explains."""
    basis = basis.reshape(*basis.shape[:3], *(1,) * (x.ndim - 4), *basis.shape[3:])
    inner = np.swapaxes(basis, -1, -2) @ x[..., None]
    return x - (basis @ inner)[..., 0]


class Jumps(NamedTuple):
    """The impacts that were found so far: a column per run and round."""

    contact: Int[np.ndarray, "runs found"]
    """−1 for none."""
    instant: Int[np.ndarray, "runs found"]


class JumpMotion(NamedTuple):
    """Parabolas with jumps that explain the runs best."""

    coefficients: Float[np.ndarray, "runs bodies dimension 3"]
    change: Float[np.ndarray, "runs found bodies dimension"]
    """Of the velocities, at every found impact."""
    when: Float[np.ndarray, "runs found"]
    left: Float[np.ndarray, "runs bodies dimension rows"]
    basis: Float[np.ndarray, "runs columns bodies dimension rows"]
    """Orthonormal, of what the jumps change beyond parabolas."""

    def position(
        self, time: Float[np.ndarray, "runs times"]
    ) -> Float[np.ndarray, "runs times bodies dimension"]:
        q, v, a = np.moveaxis(self.coefficients, -1, 0)[:, :, None]
        t = time[:, :, None, None]
        since = np.maximum(time[:, :, None] - self.when[:, None, :], 0)
        return q + v * t + 0.5 * a * t**2 + np.einsum("rtf,rfkd->rtkd", since, self.change)

    def velocity(self, time: Float[np.ndarray, "runs times"], *, after: bool) -> np.ndarray:
        """Just before or just after an instant."""
        _, v, a = np.moveaxis(self.coefficients, -1, 0)[:, :, None]
        since = time[:, :, None] - self.when[:, None, :]
        past = (since >= -1e-12) if after else (since > 1e-12)
        return v + a * time[:, :, None, None] + np.einsum("rtf,rfkd->rtkd", past.astype(float), self.change)


@dataclass(frozen=True, eq=False)
class JumpFits:
    """What stays the same from one impact to the next."""

    runs: RunStack
    contacts: ContactArrays
    shares: Float[np.ndarray, "contacts 2"]
    """Inverse masses of the two bodies, the second negative and 0 at a wall."""
    masses_known: bool
    rough: bool
    """Whether friction may turn a jump away from the normal."""

    def columns(self, jumps: Jumps, normal: Float[np.ndarray, "runs found dimension"]):
        """What the impacts change: (runs, columns, bodies, dimension) directions, and their instants.

        Two columns for every impact along the normal, or along every axis where there is friction: one for
        each body, or both bodies in the first where masses are known.
        """
        count, found = jumps.contact.shape
        bodies, dimension = self.runs.value.shape[1:3]
        axes = np.broadcast_to(np.eye(dimension), (count, found, dimension, dimension))
        axes = axes if self.rough else normal[:, :, None]
        direction = np.zeros((count, found, axes.shape[2], 2, bodies, dimension))
        row, place = np.nonzero(jumps.contact >= 0)
        j = jumps.contact[row, place]
        for body, side in ((self.contacts.first[j], 0), (self.contacts.second[j], 1)):
            column = 0 if self.masses_known else side
            share = self.shares[j, side][:, None, None] * axes[row, place]
            for axis in range(axes.shape[2]):
                direction[row, place, axis, column, body] += share[:, axis]
        each = 2 * axes.shape[2]
        direction = direction.reshape(count, each * found, bodies, dimension)
        return direction, np.repeat(jumps.instant, each, axis=1)

    def motion(self, jumps: Jumps, normal: Float[np.ndarray, "runs found dimension"]) -> JumpMotion:
        """Least squares with these impacts."""
        runs = self.runs
        count, found = jumps.contact.shape
        direction, instant = self.columns(jumps, normal)
        rows = np.arange(count)[:, None]
        ramp = np.moveaxis(runs.ramps, 3, 1)[rows, instant]  # runs columns bodies dimension rows
        raw = direction[..., None] * ramp
        column = np.moveaxis(runs.smoothed(np.moveaxis(raw, 1, 3)), 3, 1)
        left = runs.smoothed(runs.value)
        flat = column.reshape(*column.shape[:2], int(np.prod(column.shape[2:])))
        size = np.sqrt(np.sum(flat**2, axis=-1))
        unit = flat / np.where(size > 1e-9, size, 1)[..., None]
        gram = np.einsum("rcn,rdn->rcd", unit, unit)
        used = size > 1e-9
        eye = np.eye(gram.shape[-1])
        gram = np.where(used[:, :, None] & used[:, None, :], gram, eye) + 1e-9 * eye
        wanted = np.where(used, np.einsum("rcn,rn->rc", unit, left.reshape(count, -1)), 0)
        amount = np.where(used, np.linalg.solve(gram, wanted[..., None])[..., 0], 0)
        # Orthonormal columns, for what further impacts would explain beyond these.
        triangle = np.linalg.inv(np.linalg.cholesky(gram))
        basis = np.einsum(
            "rcd,rdn->rcn", np.where(used[:, :, None], triangle, 0), np.where(used[..., None], unit, 0)
        )
        amount = amount / np.where(used, size, 1)
        explained = np.einsum("rc,rckdn->rkdn", amount, raw)
        each = direction.shape[1] // max(found, 1)
        change = (amount[:, :, None, None] * direction).reshape(count, found, each, *direction.shape[2:])
        return JumpMotion(
            runs.parabola(runs.value - explained),
            change.sum(axis=2),
            np.take_along_axis(runs.instants, jumps.instant, axis=1),
            runs.smoothed(runs.value - explained),
            basis.reshape(column.shape),
        )

    def settled(self, jumps: Jumps, normal: np.ndarray) -> tuple[JumpMotion, np.ndarray]:
        """The same with normals from where the motion itself has the bodies."""
        motion = self.motion(jumps, normal)
        for _ in range(3):
            normal = self.at(motion, jumps)[1]
            motion = self.motion(jumps, normal)
        return motion, normal

    def at(self, motion: JumpMotion, jumps: Jumps) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Gap, normal, and rates before and after of every impact that was found."""
        gap, normal = self.contacts.gaps_and_normals(motion.position(motion.when))
        j = np.maximum(jumps.contact, 0)

        def own(x):
            return np.take_along_axis(x, j.reshape(*j.shape, *(1,) * (x.ndim - 2)), axis=2)[:, :, 0]

        gap, normal = own(gap), own(normal)
        rates = []
        for after in (False, True):
            velocity = motion.velocity(motion.when, after=after)
            relative = _of_bodies(velocity, self.contacts.first[j]) - np.where(
                self.contacts.wall[j][..., None], 0, _of_bodies(velocity, self.contacts.second[j])
            )
            rates.append(np.sum(relative * normal, axis=-1))
        return gap, normal, rates[0], rates[1]

    def gains(self, motion: JumpMotion) -> tuple[np.ndarray, np.ndarray]:
        """Half the decrease of the sum of squares by one more impact, per run, contact and instant; gaps.

        Friction is left out here: it does not change the part of a jump along the normal.
        """
        runs, contacts = self.runs, self.contacts
        gap, normal = contacts.gaps_and_normals(motion.position(runs.instants))  # runs instants contacts
        ramps = runs.bends
        told = np.einsum("rkdtn,rkdn->rtkd", ramps, motion.left)
        size = np.einsum("rkdtn,rkdtn->rtkd", ramps, ramps)
        known = np.einsum("rkdtn,rckdn->rctkd", ramps, motion.basis)
        sides = []
        for body, side in ((contacts.first, 0), (contacts.second, 1)):
            direction = self.shares[:, side][:, None] * normal
            sides.append(
                (
                    np.sum(direction * told[:, :, body], axis=-1),
                    np.sum(direction**2 * size[:, :, body], axis=-1),
                    np.sum(direction[:, None] * known[:, :, :, body], axis=-1),
                )
            )
        (told1, size1, known1), (told2, size2, known2) = sides
        if self.masses_known:
            told, size = told1 + told2, size1 + size2 - np.sum((known1 + known2) ** 2, axis=1)
            gain = np.where((told > 0) & (size > 1e-6), 0.5 * told**2 / np.maximum(size, 1e-6), 0)
            return gain, gap
        size1, size2 = size1 - np.sum(known1**2, axis=1), size2 - np.sum(known2**2, axis=1)
        mixed = -np.sum(known1 * known2, axis=1)
        pair = ~contacts.wall & (size2 > 1e-6) & (size1 > 1e-6)
        determinant = np.where(pair, size1 * size2 - mixed**2, 1)
        pair &= determinant > 1e-6 * size1 * size2
        determinant = np.where(pair, determinant, 1)
        first, second = size2 * told1 - mixed * told2, size1 * told2 - mixed * told1
        both = 0.5 * (told1 * first + told2 * second) / determinant
        alone = 0.5 * told1**2 / np.maximum(size1, 1e-6)
        gain = np.where(contacts.wall, np.where((told1 > 0) & (size1 > 1e-6), alone, 0), 0)
        return np.where(pair & (first > 0) & (second > 0), both, gain), gap


def _of_bodies(x: Float[np.ndarray, "runs found bodies dimension"], body: Int[np.ndarray, "runs found"]):
    return np.take_along_axis(x, body[:, :, None, None], axis=2)[:, :, 0]
