"""A recording with all that can be said of it before the first least squares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from carom.data import Recording, Run
from carom.estimation.detection.impacts import Impacts, find_impacts
from carom.estimation.detection.sensor_rates import DELAYS, SensorEstimate, count_readings, estimate_rates
from carom.estimation.detection.short_runs import AT_ONCE, LONGEST, find_in_short_runs
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.estimation.parameters.per_run import RunShape
from carom.estimation.parameters.sharing import law_of, surface_map, tilt_map
from carom.estimation.parameters.unknowns import MASS_SPREAD, Units
from carom.estimation.settings import LatentSettings
from carom.estimation.solver.segments import Layout, Plan, Segments, cut, first_states, plans, resolved
from carom.mechanics import Scene
from carom.models import ImpactNetwork
from carom.types import State, Values

PLACES, WIDER = 32, 3.0
"""Where the smoothness of the force is judged: so many places along one coordinate, twice as many among more
of them, and as many again in a region so many times as wide, since balls in another box will get there."""
RESOLUTION = 1e-5
"""The least noise that a recording is taken to have, as a share of its spread: what 16 bits resolve."""
ROUNDS = 6
"""How often impacts and the rates of a sensor are estimated in turn, at most."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One recording with all that is known before the first least squares."""

    recording: Recording
    impacts: list[Impacts]
    sensor: SensorEstimate | None
    """What was estimated of the touch sensor."""
    plans: list[Plan]
    guess: dict[str, np.ndarray]
    units: Units
    starts: Sequence[State] | None
    own: RunShape
    run_gaps: np.ndarray
    """First guesses of what each run adds to the gaps; no columns where that is not estimated."""
    surfaces: list[np.ndarray]
    """Where the surfaces seem to be in each run."""
    blind: int

    @classmethod
    def of(
        cls,
        recording: Recording,
        template: ImpactNetwork,
        settings: LatentSettings,
        sensor: TouchSensor | None,
        starts: Sequence[State] | None,
    ) -> "Problem":
        learned = settings.learned
        own = RunShape.of(template.scene, learned)
        masses_known = not (learned.masses or learned.masses_per_run)
        if short(recording) and sensor is None:
            impacts, estimate = (
                find_in_short_runs(
                    recording.runs,
                    template.scene,
                    masses_known=masses_known,
                    surfaces_known=not (learned.gap or learned.gap_per_run or learned.normals),
                    rough=template.rough,
                ),
                None,
            )
        else:
            impacts, estimate = infer_impacts(
                recording, template.scene, sensor, masses_known=masses_known, blind=settings.blind
            )
        guess = first_guess(impacts, recording)
        units = natural_units(recording, impacts, settings)
        run_gaps = np.zeros((len(impacts), 0))
        surfaces = [guess["shift"]] * len(impacts)
        if learned.gap_per_run:
            surfaces = [first_guess([found], recording)["shift"] for found in impacts]
            common = guess["shift"] if learned.gap else 0.0
            run_gaps = np.array(surfaces) - common
        decided = plans(recording, impacts, surfaces, blind=settings.blind)
        return cls(
            recording,
            impacts,
            estimate,
            decided,
            guess,
            units,
            starts,
            own,
            run_gaps,
            surfaces,
            settings.blind,
        )

    @property
    def short(self) -> bool:
        return short(self.recording)

    def most(self, template: ImpactNetwork) -> int | None:
        """How many contacts a step has at most by schedule; None where that does not spare any work."""
        scene = template.scene
        found = max((int(found.chosen.sum(axis=1).max(initial=0)) for found in self.impacts), default=0)
        most = AT_ONCE if self.short else max(found, 1)
        listed = template.scheme == "constraint_exact" and not any(w.edges for w in scene.geometry.walls)
        return most if listed and most < scene.contacts else None

    def with_impacts(self, impacts: list[Impacts]) -> "Problem":
        """The same recording with its impacts elsewhere."""
        decided = plans(self.recording, impacts, self.surfaces, blind=self.blind)
        return replace(self, impacts=impacts, plans=decided)

    @property
    def noise(self) -> np.ndarray:
        """Of positions and velocities, the median over the runs that have any; no less than they resolve."""
        found = np.array([impacts.noise for impacts in self.impacts])
        without = [run.velocity is None or np.isnan(run.velocity).all() for run in self.recording.runs]
        speeds = found[~np.array(without), 1]
        rough = np.array([np.median(found[:, 0]), np.median(speeds) if len(speeds) else 1.0])
        return np.maximum(rough, self.units.resolution)

    def first_states(self, places: Layout) -> np.ndarray:
        """Start states of the segments, from the data near each, and what their runs add."""
        states = first_states(self.recording, self.impacts, places)
        others = np.zeros((len(states), self.own.laws + self.own.masses))
        states = np.concatenate([states, self.run_gaps[places.run], others], axis=1)
        return self.with_known_starts(states, places)[0]

    def with_known_starts(self, states: Values, places: Layout) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The unknowns of the segments with known starts put in, and means and precisions of their priors."""
        states = np.array(states)
        own, scale = self.own, float(np.max(self.units.scale))
        laws = own.restitution
        # A prior that only matters where no sample does.
        precision = np.full(states.shape, (100 * scale) ** -2)
        # Runs may differ as much as they like, but a run without an impact says nothing of its gap.
        precision[:, own.state : laws.start] = scale**-2
        precision[:, laws.stop :] = MASS_SPREAD**-2
        if self.starts is not None:
            for row in np.flatnonzero(places.sample == 0):
                start = self.starts[places.run[row]]
                states[row, : own.state] = np.concatenate(
                    [np.ravel(start.position), np.ravel(start.velocity)]
                )
                precision[row, : own.state] = (1e-4 * self.noise[0]) ** -2
        mean = states.copy()
        mean[:, laws.start :] = 0.0
        return states, mean, precision

    def segments(self, places: Layout, *, free: bool) -> Segments:
        chosen = [plan.undecided() if free else plan for plan in self.plans]
        return cut(self.recording, chosen, places)


def short(recording: Recording) -> bool:
    """Whether all runs are so short that impacts are looked for in each as a whole."""
    return max(len(run) for run in recording.runs) <= LONGEST


def infer_impacts(
    recording: Recording,
    scene: Scene,
    sensor: TouchSensor | None,
    *,
    masses_known: bool,
    blind: int = 0,
) -> tuple[list[Impacts], SensorEstimate | None]:
    """The impacts of every run, and what was estimated of the sensor on the way.

    Arguments:
        sensor: how touch readings relate to impacts: a perfect one where they are observed, None where they
            are ignored. What it does not state is estimated in turn with the impacts, beginning with those
            that the motion alone shows, until these no longer change.
        masses_known, blind: as in `find_impacts`.
    """

    def find(sensor: TouchSensor | None) -> list[Impacts]:
        search = partial(find_impacts, scene=scene, sensor=sensor, masses_known=masses_known, blind=blind)
        return [search(run) for run in recording.runs]

    if sensor is None or sensor.known:
        return find(sensor), None
    delays = DELAYS if sensor.delay is None else (sensor.delay,)
    impacts, estimate = find(None), None
    for _ in range(ROUNDS):
        shift = first_guess(impacts, recording)["shift"]
        counts = [
            count_readings(run, found, scene, _in_motion(run, found, shift), delays)
            for run, found in zip(recording.runs, impacts, strict=True)
        ]
        estimate = estimate_rates(sensor, counts)
        before, impacts = impacts, find(estimate.sensor)
        if all((a.chosen == b.chosen).all() for a, b in zip(before, impacts, strict=True)):
            break
    return impacts, estimate


def _in_motion(run: Run, found: Impacts, shift: np.ndarray) -> np.ndarray:
    """Samples that do not follow the last impact near a surface, where a body may have come to rest."""
    steps = np.flatnonzero(found.chosen.any(axis=1))
    last = steps[-1] + 1 + max(DELAYS) if len(steps) else 0
    return resolved(run, found, shift) | (np.arange(len(run)) <= last)


def natural_units(recording: Recording, impacts: Sequence[Impacts], settings: LatentSettings) -> Units:
    """Scales from the range of the recording and its typical acceleration; where smoothness is judged."""
    width = recording.dimension * (recording.bodies if settings.field == "joint" else 1)
    values = np.concatenate([run.position.reshape(-1, width) for run in recording.runs])
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    scale = np.maximum(0.5 * (high - low), 1e-9)
    acceleration = float(np.median([found.acceleration for found in impacts]))
    center = 0.5 * (low + high)
    if width == 1:
        places, directions = np.linspace(-1, 1, PLACES)[:, None], np.ones((PLACES, 1))
    else:
        whole = values[np.isfinite(values).all(axis=1)]
        inside = (whole[np.linspace(0, len(whole) - 1, 2 * PLACES).astype(int)] - center) / scale
        places = np.concatenate([inside, WIDER * inside])
        directions = np.random.default_rng(0).standard_normal(places.shape)
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    energy = max(acceleration, 1e-9) * scale.max()
    assert recording.scene is not None
    scene, learned = recording.scene, settings.learned
    return Units(
        center,
        scale,
        np.asarray(energy),
        places,
        directions,
        _distances(recording),
        law_of(scene, learned.laws),
        surface_map(scene, learned.surfaces),
        tilt_map(scene) if learned.normals else np.zeros((0, scene.contacts, scene.dimension)),
        _resolution(recording),
    )


def _distances(recording: Recording) -> np.ndarray:
    """The middle and half the range of the distances of pairs of bodies."""
    first, second = np.triu_indices(recording.bodies, 1)
    if not len(first):
        return np.ones(2)
    apart = [
        np.linalg.norm(run.position[:, first] - run.position[:, second], axis=-1) for run in recording.runs
    ]
    low, high = (extreme([extreme(part) for part in apart]) for extreme in (np.nanmin, np.nanmax))
    return np.array([0.5 * (low + high), max(0.5 * (high - low), 1e-9)])


def _resolution(recording: Recording) -> np.ndarray:
    """A small share of the spread of positions and of velocities."""
    position = np.concatenate([run.position.ravel() for run in recording.runs])
    velocity = [run.velocity.ravel() for run in recording.runs if run.velocity is not None]
    spreads = [np.nanstd(position), np.nanstd(np.concatenate(velocity)) if velocity else 1.0]
    return np.maximum(RESOLUTION * np.array(spreads), 1e-12)


def first_guess(impacts: Sequence[Impacts], recording: Recording) -> dict[str, np.ndarray]:
    """Surfaces and restitution from the impacts that were found."""
    scene = recording.scene
    assert scene is not None
    shift, restitution = np.zeros(scene.contacts), np.full(scene.contacts, scene.restitution)
    for j in range(scene.contacts):
        gaps = np.concatenate([found.gap[found.chosen[:, j], j] for found in impacts])
        ratios = [-(f.after[f.chosen[:, j], j] / f.before[f.chosen[:, j], j]) for f in impacts]
        if not len(gaps):
            # No impact was seen: the surface lies out of reach of what was.
            reach = min(float(found.smooth_gap[:, j].min()) for found in impacts)
            shift[j] = min(0.0, reach - 5 * max(float(found.noise[0]) for found in impacts))
        else:
            shift[j] = np.median(gaps)
            restitution[j] = np.clip(np.median(np.concatenate(ratios)), 0.05, 0.99)
    return {"shift": shift, "restitution": restitution}
