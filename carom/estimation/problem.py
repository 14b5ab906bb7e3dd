"""A recording with all that can be said of it before the first least squares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import numpy as np

from carom.contact_laws import AbstractRestitution, ConstantRestitution, CoulombFriction
from carom.data import Recording
from carom.errors import InputError
from carom.estimation.detection import Impacts, detect_impacts
from carom.estimation.detection.detect import first_guess, short
from carom.estimation.detection.sensor_rates import SensorEstimate
from carom.estimation.detection.short_runs import AT_ONCE
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.estimation.parameters.free import PER_RUN, FreeParameters, Priors, require_learnable
from carom.estimation.settings import Settings
from carom.estimation.solver.segments import (
    Partition,
    Prescription,
    Segments,
    cut,
    first_states,
    prescribe,
)
from carom.forces import AbstractForce, AbstractLearnedPotential, NaturalUnits
from carom.integrators import AbstractStepper, CDLagrange, ConstraintExact
from carom.mechanics import Scene, named_parts, parameters_of
from carom.models import Mechanism
from carom.models.mechanism import learned_potentials
from carom.types import State, Values

RESOLUTION = 1e-5
"""The least noise that a recording is taken to have, as a share of its spread: what 16 bits resolve."""
VAGUE = 100.0
"""Standard deviation of the prior of start states, in units of length: it only matters where no sample
does."""
KNOWN_START = 1e-4
"""Standard deviation of a start state that is known exactly, as a share of the noise."""


def mechanism_to_fit(
    scene: Scene, step_size: float, settings: Settings, stepper: AbstractStepper
) -> Mechanism:
    """The mechanism whose parameters are estimated: what the scene states, and the parts that `learn`
    names."""
    learn = {name.removesuffix(PER_RUN) for name in settings.learn}
    laws = {
        spec.key: law
        for law in named_parts(AbstractRestitution).values()
        for _, spec in parameters_of(law.for_scene(scene))
    }
    chosen = [laws[name] for name in settings.learn if name in laws]
    forces = [force.for_scene(scene) for name, force in named_parts(AbstractForce).items() if name in learn]
    template = Mechanism.of(
        scene,
        step_size,
        forces=[*learned_potentials(scene, settings.potential, settings.hidden), *forces],
        restitution=(chosen[0] if chosen else ConstantRestitution).for_scene(scene),
        friction=CoulombFriction.for_scene(scene) if "friction" in learn else None,
        stepper=stepper,
    )
    template = template.with_tilt() if "normals" in learn else template
    require_learnable(template, settings.learn)
    return template


def stepper_for(scene: Scene, settings: Settings, name: str) -> AbstractStepper:
    """The scheme of that name."""
    if name == "cd_lagrange":
        return CDLagrange.for_scene(scene, detection=settings.detection)
    return ConstraintExact()


@dataclass(frozen=True, eq=False)
class Problem:
    """One recording with all that is known before the first least squares."""

    recording: Recording
    settings: Settings
    impacts: list[Impacts]
    sensor: SensorEstimate | None
    """What was estimated of the touch sensor."""
    prescriptions: list[Prescription]
    units: NaturalUnits
    parameters: FreeParameters
    start: np.ndarray
    """Where the shared values start, weights of networks at 0."""
    priors: Priors
    starts: Sequence[State] | None
    surfaces: list[np.ndarray]
    """Where the surfaces seem to be in each run, relative to where they are stated."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        template: Mechanism,
        settings: Settings,
        sensor: TouchSensor | None,
        starts: Sequence[State] | None,
    ) -> "Problem":
        """Find impacts, scales and first guesses in a recording."""
        scene, learn = recording.scene, set(settings.learn)
        assert scene is not None
        impacts, estimate = detect_impacts(
            recording,
            sensor=sensor,
            masses_known=not learn & {"masses", "masses-per-run"},
            surfaces_known=not learn & {"surfaces", "radii", "surfaces-per-run", "normals"},
            rough=template.friction is not None,
            mask=settings.mask,
        )
        shift, restitution = first_guess(impacts, recording)
        surfaces = [shift] * len(impacts)
        if "surfaces-per-run" in learn:
            surfaces = [first_guess([found], recording)[0] for found in impacts]
        units = natural_units(recording, impacts)
        forces = tuple(
            force.in_units(units) if isinstance(force, AbstractLearnedPotential) else force
            for force in template.forces
        )
        template = eqx.tree_at(
            lambda m: m.forces, template, forces, is_leaf=lambda x: isinstance(x, AbstractForce)
        )
        parameters = FreeParameters.of(template, settings.learn, share=settings.share)
        start = parameters.values_of(_starting(template, shift, restitution, settings))
        return cls(
            recording,
            settings,
            impacts,
            estimate,
            prescribe(recording, impacts, surfaces, mask=settings.mask),
            units,
            parameters,
            start,
            parameters.priors(units, start, _resolution(recording)),
            starts,
            surfaces,
        )

    @property
    def short(self) -> bool:
        return short(self.recording)

    @property
    def most(self) -> int | None:
        """How many contacts are prescribed in a step at most; None where that saves no work."""
        template = self.parameters.template
        found = max((int(found.chosen.sum(axis=1).max(initial=0)) for found in self.impacts), default=0)
        most = AT_ONCE if self.short else max(found, 1)
        listed = isinstance(template.stepper, ConstraintExact) and not template.geometry.edged
        return most if listed and most < len(template.geometry) else None

    def random_start(self, generator: np.random.Generator) -> np.ndarray:
        """Shared values with random weights of the networks."""
        template = self.parameters.template
        forces = tuple(
            eqx.tree_at(lambda f: f.network, force, force.network.random(generator))
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in template.forces
        )
        weights = self.parameters.layout.weights
        changed = eqx.tree_at(
            lambda m: m.forces, template, forces, is_leaf=lambda x: isinstance(x, AbstractForce)
        )
        return np.concatenate([self.parameters.values_of(changed)[:weights], self.start[weights:]])

    def with_impacts(self, impacts: list[Impacts]) -> "Problem":
        """The same recording with its impacts elsewhere."""
        prescriptions = prescribe(self.recording, impacts, self.surfaces, mask=self.settings.mask)
        return replace(self, impacts=impacts, prescriptions=prescriptions)

    @property
    def noise(self) -> np.ndarray:
        """Of positions and velocities, the median over the runs that have any; no less than they resolve."""
        found = np.array([impacts.noise for impacts in self.impacts])
        without = [run.velocity is None or np.isnan(run.velocity).all() for run in self.recording.runs]
        speeds = found[~np.array(without), 1]
        rough = np.array([np.median(found[:, 0]), np.median(speeds) if len(speeds) else 1.0])
        return np.maximum(rough, self.priors.resolution)

    def first_states(self, partition: Partition) -> np.ndarray:
        """Start states of the segments, from the data near each, and what their runs add."""
        states = first_states(self.recording, self.impacts, partition)
        added = np.zeros(
            (len(self.impacts), self.parameters.layout.local_size - self.parameters.layout.state)
        )
        layout = self.parameters.layout
        first = 0
        for block in layout.local:
            if block.path == ("geometry", "offset"):
                common = self.surfaces[0] * 0
                if any(b.path == block.path for b in layout.shared):
                    common = first_guess(self.impacts, self.recording)[0]
                added[:, first : first + block.count] = np.array(self.surfaces) - common
            first += block.count
        states = np.concatenate([states, added[partition.run]], axis=1)
        return self.with_known_starts(states, partition)[0]

    def with_known_starts(
        self, states: Values, partition: Partition
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Parameters of the segments with known starts put in, and means and precisions of their priors."""
        states, layout = np.array(states), self.parameters.layout
        precision = np.full(states.shape, (VAGUE * self.units.length) ** -2)
        precision[:, layout.state :] = self.priors.local_precision
        if self.starts is not None:
            for row in np.flatnonzero(partition.sample == 0):
                start = self.starts[partition.run[row]]
                states[row, : layout.state] = np.concatenate(
                    [np.ravel(start.position), np.ravel(start.velocity)]
                )
                precision[row, : layout.state] = (KNOWN_START * self.noise[0]) ** -2
        mean = states.copy()
        # Runs scatter about what all have in common; where surfaces lie is known of each run alone.
        first = layout.state
        for block in layout.local:
            if block.path != ("geometry", "offset"):
                mean[:, first : first + block.count] = 0.0
            first += block.count
        return states, mean, precision

    def segments(self, partition: Partition, *, by_gap: bool) -> Segments:
        """The data of all segments, with impacts as prescribed or by the gap alone."""
        chosen = [one.by_gap() if by_gap else one for one in self.prescriptions]
        return cut(self.recording, chosen, partition)


def natural_units(recording: Recording, impacts: Sequence[Impacts]) -> NaturalUnits:
    """Scales from the range of positions, typical speeds and typical accelerations."""
    positions = np.concatenate([run.position for run in recording.runs])
    flat = positions.reshape(-1, recording.dimension)
    length = max(float(np.max(0.5 * (np.nanmax(flat, axis=0) - np.nanmin(flat, axis=0)))), 1e-9)
    speeds = [np.diff(run.position, axis=0) / np.diff(run.time)[:, None, None] for run in recording.runs]
    speed = float(np.sqrt(np.nanmean(np.concatenate([part.ravel() for part in speeds]) ** 2)))
    acceleration = float(np.median([found.acceleration for found in impacts]))
    return NaturalUnits(
        positions, _distances(recording), acceleration, length, length / max(speed, 1e-9 * length)
    )


def _distances(recording: Recording) -> np.ndarray:
    """The centre and half the range of the distances of pairs of bodies."""
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


def _starting(
    template: Mechanism, shift: np.ndarray, restitution: np.ndarray, settings: Settings
) -> Mechanism:
    """The mechanism with the numbers that an estimate starts from."""
    changed = eqx.tree_at(lambda m: m.geometry.offset, template, np.asarray(template.geometry.offset) + shift)
    changed = eqx.tree_at(
        lambda m: m.restitution,
        changed,
        template.restitution.starting_from(restitution),
        is_leaf=lambda x: isinstance(x, AbstractRestitution),
    )
    if changed.friction is None or "friction" not in settings.learn:
        return changed
    return eqx.tree_at(lambda m: m.friction.value, changed, changed.friction.starting().value)


def require_scene(recordings: Sequence[Recording], settings: Settings) -> Scene:
    """The scene that recordings share, or a refusal."""
    scene = recordings[0].scene
    if scene is None:
        raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
    if settings.touch != "inferred" and not recordings[0].has_touch:
        raise InputError(
            f"Touch is to be {settings.touch}, but the recording has no touch readings; leave that out: "
            "contacts are then inferred from the motion."
        )
    return scene
