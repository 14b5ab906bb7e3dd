"""The textbook's model of bouncing bodies, by plain regression: the rival of every fit.

Between impacts every body has the same constant acceleration, and perhaps quadratic drag; arcs are
polynomials fitted by least squares. At an impact the normal velocity is reversed and multiplied by e,
constant, linear or logarithmic in the closing speed, and the tangential velocity by a constant ratio; both by
regression of the velocities that the arcs have where they meet. Which of these variants is used is decided on
runs left out.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from carom.data import Recording, Run
from carom.errors import InputError
from carom.mechanics import Scene
from carom.textbook.model import NOTHING, Contacts, Estimate, TextbookModel, Variant
from carom.textbook.regression import (
    ENOUGH_RUNS,
    Arc,
    Flights,
    Hits,
    ImpactTimes,
    arcs_between,
    measure_hits,
    regress_flights,
    regress_restitution,
    regress_tangential,
)
from carom.textbook.velocity_jumps import Jump, find_jumps, surfaces_from_jumps, without_outliers

FOLDS = 4
"""Parts into which training runs are divided to choose a variant."""
KINDS = ("walls", "pairs")


def fit_textbook(
    recording: Recording,
    scene: Scene | None = None,
    *,
    impacts: ImpactTimes | None = None,
    mask: int = 0,
) -> TextbookModel:
    """Fit the textbook's model to the positions of a recording.

    Arguments:
        recording: the runs.
        scene: bodies, known masses and contacts, by default those of the recording; without any, walls and
            pairs are inferred from the velocity jumps.
        impacts: time and number of the contact of every impact, by run; by default they are detected.
        mask: samples left out at least on either side of an impact.

    Example:
        >>> import carom
        >>> ball = carom.systems.BouncingBall(restitution=0.8)
        >>> recording = carom.simulate(ball, steps=250, step_size=0.02, noise=0.01, seed=0)
        >>> abs(fit_textbook(recording).parameters["restitution of walls"].value - 0.8) < 0.01
        True
    """
    runs = [without_outliers(run) for run in recording.runs]
    scene = scene or recording.scene
    if impacts is None:
        jumps = [find_jumps(run) for run in runs]
        scene = scene or Scene(recording.bodies, recording.dimension, surfaces_from_jumps(runs, jumps))
        impacts = [_assigned(found, scene, recording.step_size, mask) for found in jumps]
    elif scene is None:
        raise InputError("Impacts name contacts by their number; give the scene that lists them.")
    study = _Study(runs, scene, [sorted(found) for found in impacts], recording.step_size, mask)
    best = Variant(margin=mask + 0.6)
    # Contacts of rubber last longer still.
    steps: list[dict[str, Any]] = [{"margin": margin} for margin in (3.6, 10.0, 30.0) if margin > best.margin]
    steps += [{"nearest": 200}, {"drag": True}]
    steps += [{"sliding": True}] * (scene.dimension > 1) + [{"law": "linear"}, {"law": "logarithmic"}]
    # Twice: drag may be worth nothing until restitution depends on speed, or the other way round.
    for other in steps * 2:
        challenger = best._replace(**other)
        # A term more must be worth it, or noise decides.
        if study.score(challenger) < 0.98 * study.score(best):
            best = challenger
    return replace(study.fit(best, np.ones(len(runs), bool)), slowing=study.slowing(best))


def _assigned(jumps: Sequence[Jump], scene: Scene, step: float, mask: int) -> list[tuple[float, int]]:
    """The contacts that explain jumps: aligned with the change of velocity, and closed.

    The samples to be left out may hide several jumps of one contact that lasts.
    """
    tolerance, apart = max(2, mask) * step, 2 * mask * step
    world, hits, used = Contacts(scene), [], set()
    strongest_last = sorted(range(len(jumps)), key=lambda i: float(np.linalg.norm(jumps[i].change)))
    for i, jump in enumerate(jumps):
        near = {
            jumps[j].body: (j, jumps[j]) for j in strongest_last if abs(jumps[j].time - jump.time) < tolerance
        }
        near[jump.body] = i, jump
        position, change = np.zeros((2, scene.bodies, scene.dimension))
        for body, (_, other) in near.items():
            position[body], change[body] = other.position, other.change
        relative = world.rows.relative(position)
        along = np.sum(world.rows.normal_of(relative) * world.rows.relative(change), axis=-1)
        gap, size = np.abs(world.rows.gap_of(relative)), np.linalg.norm(world.rows.relative(change), axis=-1)
        possible = [jump.body in bodies and {*bodies} <= {*near} for bodies in world.joined]
        cost = np.where(np.array(possible, bool) & (along > 0.7 * size), gap, np.inf)
        if i in used or not len(cost) or not np.isfinite(cost).any():
            continue
        contact = int(np.argmin(cost))
        used |= {near[body][0] for body in world.joined[contact]}
        if not any(contact == other and jump.time - time < apart for time, other in hits):
            hits.append((jump.time, contact))
    return hits


class _Study:
    """Runs and their impacts; variants of the model are fitted to some of them and scored on others."""

    def __init__(
        self, runs: list[Run], scene: Scene, impacts: list[list[tuple[float, int]]], step: float, mask: int
    ):
        self.runs, self.scene, self.impacts, self.step, self.mask = runs, scene, impacts, step, mask
        self.world = Contacts(scene)
        self.measured: dict[Variant, tuple[Flights, Hits]] = {}
        self.scores: dict[Variant, float] = {}
        self.fold = np.arange(len(runs)) % min(FOLDS, len(runs))
        self.histories = [self._history(run, found) for run, found in zip(runs, impacts, strict=True)]

    def _history(self, run: Run, impacts: list[tuple[float, int]]) -> Run | None:
        first = min([time for time, _ in impacts], default=np.inf)
        count = int(np.sum(run.time < first - (self.mask + 0.6) * self.step))
        # Not from the first sample on: a hand may hold the bodies at first.
        begin = max(0, min(count // 2, count - 20))
        return run.part(slice(begin, count)) if count - begin >= 4 else None

    def score(self, variant: Variant) -> float:
        """Mean error of the forecasts of runs left out, from their first samples."""
        if variant not in self.scores:
            errors: list[float] = []
            # A margin may leave nothing of the flights of some folds; then the others do not count either.
            with suppress(InputError):
                models = [self.fit(variant, self._others(fold)) for fold in range(self.fold.max() + 1)]
                for fold, model in enumerate(models):
                    errors += self._errors(model, self.fold == fold)
            self.scores[variant] = float(np.mean(errors)) if errors else np.inf
        return self.scores[variant]

    def _others(self, fold: int) -> np.ndarray:
        return self.fold != fold if self.fold.any() else np.ones(len(self.runs), bool)

    def _errors(self, model: TextbookModel, chosen: np.ndarray) -> list[float]:
        which = [i for i in np.flatnonzero(chosen) if self.histories[i] is not None]
        if not which:
            return []
        position, velocity = model.start_of([self.histories[i] for i in which])  # pyright: ignore
        rest = [self.runs[i].part(self.runs[i].time >= self.histories[i].time[0]) for i in which]  # pyright: ignore
        count = max(len(run) for run in rest)
        times = np.stack([np.pad(run.time, (0, count - len(run)), mode="edge") for run in rest])
        path = model.predict_many(position, velocity, times)
        misses = [path[row, : len(run)] - run.position for row, run in enumerate(rest)]
        return [float(np.sqrt(np.nanmean(miss**2))) for miss in misses]

    def fit(self, variant: Variant, chosen: np.ndarray) -> TextbookModel:
        """The model of some runs."""
        flights, hits = self._measured(variant)
        value, errors, noise = flights.solve(chosen)
        dimension = self.scene.dimension
        kept = chosen[hits.run]
        hits = Hits(*(part[..., kept, :] if part.ndim == 3 else part[kept] for part in hits))
        names = [f"acceleration along axis {axis + 1}" for axis in range(dimension)] + ["drag"] * variant.drag
        parameters = {
            name: Estimate(*map(float, two)) for name, *two in zip(names, value, errors, strict=True)
        }
        law, speeds, ratio = np.array([[1.0, 0.0]] * 2), np.array([[0.0, np.inf]] * 2), np.ones(2)
        ratio -= variant.sliding
        for kind, name in enumerate(KINDS):
            of_kind = self.world.kind[hits.contact] == kind
            if of_kind.sum() >= 2:
                law[kind], error = regress_restitution(
                    hits.closing[of_kind], hits.leaving[of_kind], variant.law
                )
                speeds[kind] = hits.closing[of_kind].min(), hits.closing[of_kind].max()
                parameters[f"restitution of {name}"] = Estimate(float(law[kind, 0]), error[0])
                if variant.law != "constant":
                    parameters[f"restitution of {name} by speed"] = Estimate(float(law[kind, 1]), error[1])
                if dimension > 1:
                    change = hits.closing[of_kind] + hits.leaving[of_kind]
                    ratio[kind], spread = regress_tangential(
                        hits.slip[0, of_kind], hits.slip[1, of_kind], change, sliding=variant.sliding
                    )
                    word = "friction" if variant.sliding else "tangential ratio"
                    parameters[f"{word} of {name}"] = Estimate(float(ratio[kind]), spread)
        candidates = list(self.scene.candidates)
        for contact in np.unique(hits.contact):
            gap = hits.gap[hits.contact == contact]
            offset = candidates[contact].offset + float(np.median(gap))
            candidates[contact] = replace(candidates[contact], offset=offset)
            error = 1.2533 * float(np.std(gap)) / np.sqrt(len(gap))  # of a median
            parameters[f"surface {self.scene.contact_name(int(contact))}"] = Estimate(offset, error)
        scene = replace(self.scene, candidates=tuple(candidates))
        drag = float(value[-1]) if variant.drag else 0.0
        return TextbookModel(
            scene, variant, value[:dimension], drag, law, speeds, ratio, parameters, noise, hits
        )

    def slowing(self, variant: Variant) -> Estimate:
        """The drag of flights, where those before the first impacts and those after them agree on it.

        Bodies that are slowed after impacts alone still touch, or swing.
        """
        arcs = self._arcs(variant)
        first = [min((time for time, _ in found), default=np.inf) for found in self.impacts]
        before = [bool(arc.time[-1] < first[arc.run]) for arc in arcs]
        parts = [
            [arc for arc, early in zip(arcs, before, strict=True) if early is side] for side in (True, False)
        ]
        if any(len({arc.run for arc in part}) < ENOUGH_RUNS for part in parts):
            return self._drag_of(arcs)
        early, late = map(self._drag_of, parts)
        agree = abs(early.value - late.value) < 3 * np.hypot(early.error, late.error)
        return self._drag_of(arcs) if agree else NOTHING

    def _drag_of(self, arcs: Sequence[Arc]) -> Estimate:
        value, errors, _ = self._flights(arcs, drag=True).solve(np.ones(len(self.runs), bool))
        return Estimate(float(value[-1]), float(errors[-1]))

    def _measured(self, variant: Variant) -> tuple[Flights, Hits]:
        """What regression needs of all runs; it depends on the variant but for the law of restitution."""
        key = variant._replace(law="constant", sliding=False)
        if key not in self.measured:
            flights = self._flights(self._arcs(variant), drag=variant.drag)
            value, dimension = flights.solve(np.ones(len(self.runs), bool))[0], self.scene.dimension
            drag = float(value[-1]) if variant.drag else 0.0
            hits = measure_hits(
                self.runs,
                self.impacts,
                self.scene,
                acceleration=value[:dimension],
                drag=drag,
                margin=variant.margin * self.step,
                nearest=variant.nearest,
            )
            self.measured[key] = flights, hits
        return self.measured[key]

    def _arcs(self, variant: Variant) -> list[Arc]:
        arcs = arcs_between(self.runs, self.impacts, self.world, margin=variant.margin * self.step)
        if not arcs:
            raise InputError("No body moves freely for 5 samples; the textbook needs arcs between impacts.")
        return arcs

    def _flights(self, arcs: Sequence[Arc], *, drag: bool) -> Flights:
        flights = regress_flights(arcs, len(self.runs), drag=False)
        for _ in range(2 * drag):
            value = flights.solve(np.ones(len(self.runs), bool))[0][: self.scene.dimension]
            flights = regress_flights(arcs, len(self.runs), drag=True, guess=value)
        return flights
