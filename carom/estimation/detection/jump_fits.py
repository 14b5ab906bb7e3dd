"""Least-squares fits to whole short runs: a parabola per coordinate, with velocity jumps at impacts."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.data.recording import channels
from carom.estimation.detection.local_motion import INSTANTS
from carom.mechanics import Contacts, Scene


class ContactArrays(NamedTuple):
    """The bodies and surfaces of candidate contacts as arrays; a wall has its body twice."""

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
        """Gaps and normals of every contact at positions of shape (…, bodies, dimension)."""
        relative = self.rows.relative(position)
        return self.rows.gap_of(relative), self.rows.normal_of(relative)


@dataclass(frozen=True, eq=False)
class RunStack:
    """Runs of one length, stacked, with values over their noise, and projections onto parabolas."""

    time: Float[np.ndarray, "runs samples"]
    instants: Float[np.ndarray, "runs instants"]
    """Instants of trial impacts, step by step."""
    basis: Float[np.ndarray, "runs bodies dimension rows 3"]
    """Orthonormal basis of the parabolas."""
    triangle: Float[np.ndarray, "runs bodies dimension 3 3"]
    value: Float[np.ndarray, "runs bodies dimension rows"]
    ramps: Float[np.ndarray, "runs bodies dimension instants rows"]
    """Change of the values by a unit velocity jump at every instant."""
    orthogonal_ramps: Float[np.ndarray, "runs bodies dimension instants rows"]
    """The part of the ramps that is orthogonal to all parabolas."""
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
        step = np.diff(time, axis=1)
        instants = (time[:, :-1, None] + np.array(INSTANTS) * step[:, :, None]).reshape(count, -1)
        since = time[:, None, :] - instants[:, :, None]
        ramp = np.stack([np.maximum(since, 0), (since > 0).astype(float)], axis=-1)

        def rows(x, columns):
            """Flatten samples and channels into rows, and append a row for the prior of the acceleration."""
            flat = x.reshape(*x.shape[: -2 - columns], 2 * samples, *x.shape[x.ndim - columns :])
            pad = [(0, 0)] * flat.ndim
            pad[flat.ndim - 1 - columns] = (0, 1)
            return np.pad(flat, pad)

        smooth = rows(weight[..., None] * design[:, None, None], 1)
        smooth[..., -1, 2] = np.sqrt(stiffness)[None, None]
        basis, triangle = np.linalg.qr(smooth)
        ramps = rows(weight[:, :, :, None] * ramp[:, None, None], 0)
        orthogonal = _orthogonal(basis, ramps)
        counts = known.sum(axis=(1, 2, 3, 4)).astype(float)
        return cls(time, instants, basis, triangle, rows(value, 0), ramps, orthogonal, counts)

    def take(self, rows: Int[np.ndarray, "some"]) -> "RunStack":
        """A subset of the runs."""
        return RunStack(*(getattr(self, field.name)[rows] for field in fields(self)))

    def smoothed(self, x: np.ndarray) -> np.ndarray:
        """Residuals of rows (runs bodies dimension … rows) after fitting parabolas."""
        return _orthogonal(self.basis, x)

    def parabola(self, x: np.ndarray) -> np.ndarray:
        """Coefficients q, v, a of the parabola of every coordinate."""
        inner = np.einsum("rkdni,rkdn->rkdi", self.basis, x)
        return np.linalg.solve(self.triangle, inner[..., None])[..., 0]


def _orthogonal(basis: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Rows (runs bodies dimension … rows) minus their projection onto an orthonormal basis."""
    basis = basis.reshape(*basis.shape[:3], *(1,) * (x.ndim - 4), *basis.shape[3:])
    inner = np.swapaxes(basis, -1, -2) @ x[..., None]
    return x - (basis @ inner)[..., 0]


class Jumps(NamedTuple):
    """The impacts detected so far, one column per impact of a run."""

    contact: Int[np.ndarray, "runs found"]
    """−1 for none."""
    instant: Int[np.ndarray, "runs found"]


class JumpMotion(NamedTuple):
    """The least-squares motion: parabolas with velocity jumps."""

    coefficients: Float[np.ndarray, "runs bodies dimension 3"]
    change: Float[np.ndarray, "runs found bodies dimension"]
    """Of the velocities, at every impact."""
    when: Float[np.ndarray, "runs found"]
    residual: Float[np.ndarray, "runs bodies dimension rows"]
    basis: Float[np.ndarray, "runs columns bodies dimension rows"]
    """Orthonormal basis of the jumps, orthogonal to parabolas."""

    def position(
        self, time: Float[np.ndarray, "runs times"]
    ) -> Float[np.ndarray, "runs times bodies dimension"]:
        q, v, a = np.moveaxis(self.coefficients, -1, 0)[:, :, None]
        t = time[:, :, None, None]
        since = np.maximum(time[:, :, None] - self.when[:, None, :], 0)
        return q + v * t + 0.5 * a * t**2 + np.einsum("rtf,rfkd->rtkd", since, self.change)

    def velocity(self, time: Float[np.ndarray, "runs times"], *, after: bool) -> np.ndarray:
        """Velocities just before or just after given instants."""
        _, v, a = np.moveaxis(self.coefficients, -1, 0)[:, :, None]
        since = time[:, :, None] - self.when[:, None, :]
        past = (since >= -1e-12) if after else (since > 1e-12)
        return v + a * time[:, :, None, None] + np.einsum("rtf,rfkd->rtkd", past.astype(float), self.change)


@dataclass(frozen=True, eq=False)
class JumpFits:
    """Least-squares fits of runs with any set of impacts."""

    runs: RunStack
    contacts: ContactArrays
    shares: Float[np.ndarray, "contacts 2"]
    """Inverse masses of the two bodies; the second is negative, and 0 at a wall."""
    masses_known: bool
    rough: bool
    """Whether friction may add a tangential component to a jump."""

    def columns(self, jumps: Jumps, normal: Float[np.ndarray, "runs found dimension"]):
        """Directions (runs, columns, bodies, dimension) of the velocity jumps, and their instants.

        Every impact has two columns along the normal, or along every axis if there is friction: one for each
        body, or both bodies in the first if masses are known.
        """
        count, found = jumps.contact.shape
        bodies, dimension = self.runs.value.shape[1:3]
        axes = np.broadcast_to(np.eye(dimension), (count, found, dimension, dimension))
        axes = axes if self.rough else normal[:, :, None]
        direction = np.zeros((count, found, axes.shape[2], 2, bodies, dimension))
        row, slot = np.nonzero(jumps.contact >= 0)
        j = jumps.contact[row, slot]
        for body, side in ((self.contacts.first[j], 0), (self.contacts.second[j], 1)):
            column = 0 if self.masses_known else side
            share = self.shares[j, side][:, None, None] * axes[row, slot]
            for axis in range(axes.shape[2]):
                direction[row, slot, axis, column, body] += share[:, axis]
        each = 2 * axes.shape[2]
        direction = direction.reshape(count, each * found, bodies, dimension)
        return direction, np.repeat(jumps.instant, each, axis=1)

    def motion(self, jumps: Jumps, normal: Float[np.ndarray, "runs found dimension"]) -> JumpMotion:
        """The least-squares motion with these impacts and normals."""
        runs = self.runs
        count, found = jumps.contact.shape
        direction, instant = self.columns(jumps, normal)
        rows = np.arange(count)[:, None]
        ramp = np.moveaxis(runs.ramps, 3, 1)[rows, instant]  # runs columns bodies dimension rows
        raw = direction[..., None] * ramp
        column = np.moveaxis(runs.smoothed(np.moveaxis(raw, 1, 3)), 3, 1)
        residual = runs.smoothed(runs.value)
        flat = column.reshape(*column.shape[:2], int(np.prod(column.shape[2:])))
        size = np.sqrt(np.sum(flat**2, axis=-1))
        unit = flat / np.where(size > 1e-9, size, 1)[..., None]
        gram = np.einsum("rcn,rdn->rcd", unit, unit)
        used = size > 1e-9
        eye = np.eye(gram.shape[-1])
        gram = np.where(used[:, :, None] & used[:, None, :], gram, eye) + 1e-9 * eye
        inner = np.where(used, np.einsum("rcn,rn->rc", unit, residual.reshape(count, -1)), 0)
        amount = np.where(used, np.linalg.solve(gram, inner[..., None])[..., 0], 0)
        # Orthonormal columns, from which `gains` computes the additional gain of a further impact.
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

    def with_normals(self, jumps: Jumps, normal: np.ndarray) -> tuple[JumpMotion, np.ndarray]:
        """The least-squares motion with normals that are consistent with it, by fixed-point iteration."""
        motion = self.motion(jumps, normal)
        for _ in range(3):
            normal = self.at(motion, jumps)[1]
            motion = self.motion(jumps, normal)
        return motion, normal

    def at(self, motion: JumpMotion, jumps: Jumps) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Gap, normal, and rates of the gap before and after every impact."""
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
        """Half the decrease of the sum of squares by a further impact, per run, instant and contact; gaps.

        Friction is neglected: it does not change the normal component of a jump. With g the inner product of
        a jump with the residual and s its squared norm orthogonal to all present jumps, the gain is g²/2s;
        the jumps of two bodies with unknown masses are fitted together, by a 2 × 2 system.
        """
        runs, contacts = self.runs, self.contacts
        gap, normal = contacts.gaps_and_normals(motion.position(runs.instants))  # runs instants contacts
        ramps = runs.orthogonal_ramps
        inner = np.einsum("rkdtn,rkdn->rtkd", ramps, motion.residual)
        square = np.einsum("rkdtn,rkdtn->rtkd", ramps, ramps)
        overlap = np.einsum("rkdtn,rckdn->rctkd", ramps, motion.basis)
        sides = []
        for body, side in ((contacts.first, 0), (contacts.second, 1)):
            direction = self.shares[:, side][:, None] * normal
            sides.append(
                (
                    np.sum(direction * inner[:, :, body], axis=-1),
                    np.sum(direction**2 * square[:, :, body], axis=-1),
                    np.sum(direction[:, None] * overlap[:, :, :, body], axis=-1),
                )
            )
        (g1, s1, overlap1), (g2, s2, overlap2) = sides
        # Only positive amounts push the bodies apart.
        if self.masses_known:
            g, s = g1 + g2, s1 + s2 - np.sum((overlap1 + overlap2) ** 2, axis=1)
            return np.where((g > 0) & (s > 1e-6), 0.5 * g**2 / np.maximum(s, 1e-6), 0), gap
        s1, s2 = s1 - np.sum(overlap1**2, axis=1), s2 - np.sum(overlap2**2, axis=1)
        mixed = -np.sum(overlap1 * overlap2, axis=1)
        pair = ~contacts.wall & (s2 > 1e-6) & (s1 > 1e-6)
        determinant = np.where(pair, s1 * s2 - mixed**2, 1)
        pair &= determinant > 1e-6 * s1 * s2
        determinant = np.where(pair, determinant, 1)
        first, second = s2 * g1 - mixed * g2, s1 * g2 - mixed * g1
        both = 0.5 * (g1 * first + g2 * second) / determinant
        alone = 0.5 * g1**2 / np.maximum(s1, 1e-6)
        gain = np.where(contacts.wall, np.where((g1 > 0) & (s1 > 1e-6), alone, 0), 0)
        return np.where(pair & (first > 0) & (second > 0), both, gain), gap


def _of_bodies(x: Float[np.ndarray, "runs found bodies dimension"], body: Int[np.ndarray, "runs found"]):
    return np.take_along_axis(x, body[:, :, None, None], axis=2)[:, :, 0]
