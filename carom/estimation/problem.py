"""The estimation problem of one recording: detected impacts, scales, priors and initial values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import numpy as np

from carom.contact_laws import (
    AbstractRestitution,
    ConstantRestitution,
    ContactDuration,
    CoulombFriction,
    ImpactDeviations,
)
from carom.data import Recording
from carom.errors import InputError
from carom.estimation.detection import Impacts, detect_impacts
from carom.estimation.detection.detect import first_guess, short
from carom.estimation.detection.sensor_rates import SensorEstimate
from carom.estimation.detection.short_runs import MAX_PER_STEP
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.estimation.parameters.free import PER_IMPACT, PER_RUN, FreeParameters, Priors, require_learnable
from carom.estimation.parameters.sharing import Share, groups_of
from carom.estimation.settings import Settings
from carom.estimation.solver.segments import (
    Partition,
    Prescription,
    Segments,
    cut,
    first_states,
    padded_size,
    prescribe,
)
from carom.forces import AbstractForce, AbstractLearnedPotential, NaturalUnits, UniformGravity
from carom.integrators import AbstractStepper, CDLagrange, ConstraintExact
from carom.mechanics import Scene, named_parts, parameters_of
from carom.models import Mechanism
from carom.models.mechanism import learned_potentials
from carom.types import State, Values

RESOLUTION = 1e-5
"""Lower bound on the noise as a fraction of the standard deviation of the data: the resolution of 16 bits."""
TINY = 1e-9
"""Lower bound on lengths and speeds, relative to others of the recording."""
VAGUE = 100.0
"""Prior standard deviation of start states in natural units; it matters only without data."""
SURFACES = ("geometry", "offset")
"""Path of the surface positions in a mechanism."""
MAX_DEVIATIONS = 32
"""Greatest number of impacts in a segment where every impact has a deviation of its own."""
KNOWN_START = 1e-4
"""Standard deviation of a start state that is known exactly, as a fraction of the noise."""


def mechanism_to_fit(
    scene: Scene, step_size: float, settings: Settings, stepper: AbstractStepper
) -> Mechanism:
    """The mechanism to be estimated: the constants of the scene, and the parts that `learn` names."""
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
        duration=ContactDuration.for_scene(scene) if "duration" in learn else None,
        stepper=stepper,
    )
    template = template.with_tilt() if "normals" in learn else template
    if PER_IMPACT in settings.learn:
        # The CD-Lagrange scheme knows no deviations of the slip.
        slips = scene.dimension > 1 and isinstance(stepper, ConstraintExact)
        common = "surfaces-per-run" not in settings.learn
        deviations = ImpactDeviations.zeros(1, scene.dimension if slips else None, surface=common)
        template = replace(template, deviations=deviations)
    require_learnable(template, settings.learn)
    return template


def stepper_for(scene: Scene, settings: Settings, name: str) -> AbstractStepper:
    """The stepper with this name, for a scene."""
    if name == "cd_lagrange":
        return CDLagrange.for_scene(scene, detection=settings.detection)
    return ConstraintExact()


@dataclass(frozen=True, eq=False)
class Problem:
    """A recording with its detected impacts, free parameters, priors and initial values."""

    recording: Recording
    settings: Settings
    impacts: list[Impacts]
    sensor: SensorEstimate | None
    """Estimated error rates of the touch sensor, if it is imperfect."""
    prescriptions: list[Prescription]
    units: NaturalUnits
    free: FreeParameters
    start: np.ndarray
    """Initial shared values, with network weights 0."""
    priors: Priors
    starts: Sequence[State] | None
    surfaces: list[np.ndarray]
    """Estimated displacement of the surfaces from their stated positions, in each run."""

    @classmethod
    def of(
        cls,
        recording: Recording,
        template: Mechanism,
        settings: Settings,
        sensor: TouchSensor | None,
        starts: Sequence[State] | None,
    ) -> "Problem":
        """Detect impacts and derive scales, priors and initial values from a recording."""
        scene, learn = recording.scene, set(settings.learn)
        assert scene is not None
        impacts, estimate = detect_impacts(
            recording,
            sensor=sensor,
            masses_known=not learn & {"masses", "masses-per-run"},
            surfaces="per run"
            if "surfaces-per-run" in learn
            else "common"
            if learn & {"surfaces", "radii", "normals"}
            else "known",
            rough=template.friction is not None,
            mask=settings.mask,
        )
        lasting = template.duration is not None
        shift, restitution, durations = first_guess(impacts, recording, lasting=lasting)
        if lasting:
            # Nothing is modelled while bodies touch, which smoothing spreads.
            width = impacts[0].width if impacts[0].width > 1 else 0
            least = int(np.ceil(0.5 * np.median(durations) / recording.step_size)) + 1 + width
            impacts = [replace(found, mask=max(found.mask, least)) for found in impacts]
        surfaces = [shift] * len(impacts)
        if "surfaces-per-run" in learn:
            surfaces = [first_guess([found], recording, lasting=lasting)[0] for found in impacts]
        units = natural_units(recording, impacts)
        forces = tuple(
            force.in_units(units) if isinstance(force, AbstractLearnedPotential) else force
            for force in template.forces
        )
        stepper = template.stepper
        if isinstance(stepper, ConstraintExact):
            stepper = stepper.in_units(units.length, units.time)
        template = replace(template, forces=forces, stepper=stepper)
        if template.geometry.tilt is not None:
            positions = np.concatenate([run.position for run in recording.runs])
            template = template.with_tilt(np.nanmean(positions, axis=(0, 1)))
        if template.deviations is not None:
            each = [int(one.chosen[a : b - 1].sum()) for one in impacts for a, b in one.pieces]
            most = padded_size(int(np.clip(max(each, default=0), 4, MAX_DEVIATIONS)))
            template = replace(template, deviations=template.deviations.resized(most))
        free = FreeParameters.of(template, settings.learn, share=settings.share)
        start = free.values_of(_starting(template, shift, restitution, durations, impacts, settings))
        return cls(
            recording,
            settings,
            impacts,
            estimate,
            prescribe(impacts),
            units,
            free,
            start,
            free.priors(units, start, _resolution(recording)),
            starts,
            surfaces,
        )

    @property
    def short(self) -> bool:
        return short(self.recording)

    @property
    def most(self) -> int | None:
        """Greatest number of prescribed contacts in a step; None if all contacts are to be evaluated."""
        template = self.free.template
        detected = max((int(found.chosen.sum(axis=1).max(initial=0)) for found in self.impacts), default=0)
        # In short runs impacts are reassigned; a fixed number avoids compiling again for each assignment.
        most, contacts = MAX_PER_STEP if self.short else max(detected, 1), len(template.geometry)
        supported = isinstance(template.stepper, ConstraintExact) and not template.geometry.edged
        # Networks have too many parameters for forward mode, unless contacts have as many.
        few = most < contacts or (contacts > 0 and not self.free.layout.weights)
        return min(most, contacts) if supported and few else None

    def random_start(self, generator: np.random.Generator) -> np.ndarray:
        """Initial shared values with random network weights."""
        template = self.free.template
        forces = tuple(
            eqx.tree_at(lambda f: f.network, force, force.network.random(generator))
            if isinstance(force, AbstractLearnedPotential)
            else force
            for force in template.forces
        )
        weights = self.free.layout.weights
        values = self.free.values_of(replace(template, forces=forces))
        return np.concatenate([values[:weights], self.start[weights:]])

    def with_impacts(self, impacts: list[Impacts]) -> "Problem":
        """The problem with other impacts prescribed."""
        return replace(self, impacts=impacts, prescriptions=prescribe(impacts))

    @property
    def noise(self) -> np.ndarray:
        """Initial noise of positions and velocities: the median over the runs, at least the resolution."""
        by_run = np.array([impacts.noise for impacts in self.impacts])
        without = [run.velocity is None or np.isnan(run.velocity).all() for run in self.recording.runs]
        of_velocity = by_run[~np.array(without), 1]
        median = np.array([np.median(by_run[:, 0]), np.median(of_velocity) if len(of_velocity) else 1.0])
        return np.maximum(median, self.priors.resolution)

    def first_states(self, partition: Partition) -> np.ndarray:
        """Initial local parameters of the segments: start states from nearby data, deviations of the runs."""
        layout = self.free.layout
        local = np.zeros((len(partition.run), layout.local_size))
        local[:, : layout.state] = first_states(self.recording, self.impacts, partition)
        for block, columns in layout.local_slices():
            if block.path == SURFACES:
                common = self.surfaces[0] * 0
                if any(b.path == block.path for b in layout.shared):
                    lasting = self.free.template.duration is not None
                    common = first_guess(self.impacts, self.recording, lasting=lasting)[0]
                local[:, columns] = (np.array(self.surfaces) - common)[partition.run]
        return self.with_known_starts(local, partition)[0]

    def with_known_starts(
        self, states: Values, partition: Partition
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Local parameters with known start states inserted, and means and precisions of their priors."""
        states, layout = np.array(states), self.free.layout
        length, speed = self.units.length, self.units.length / self.units.time
        precision = np.empty(states.shape)
        precision[:, : layout.state] = np.repeat((VAGUE * np.array([length, speed])) ** -2, layout.state // 2)
        precision[:, layout.state :] = self.priors.local_precision
        if self.starts is not None:
            for row in np.flatnonzero(partition.sample == 0):
                start = self.starts[partition.run[row]]
                states[row, : layout.state] = np.concatenate(
                    [np.ravel(start.position), np.ravel(start.velocity)]
                )
                precision[row, : layout.state] = (KNOWN_START * self.noise[0]) ** -2
        mean = states.copy()
        # Impacts and runs deviate by 0 on average; surfaces have an initial value in each run.
        for block, columns in layout.local_slices():
            if block.path != SURFACES:
                mean[:, columns] = 0.0
        return states, mean, precision

    def segments(self, partition: Partition, *, by_gap: bool) -> Segments:
        """The data of all segments, with contacts prescribed or determined by the gap."""
        chosen = [one.by_gap() if by_gap else one for one in self.prescriptions]
        return cut(self.recording, chosen, partition)


def natural_units(recording: Recording, impacts: Sequence[Impacts]) -> NaturalUnits:
    """Natural units from the range of positions, the root-mean-square speed and typical accelerations."""
    positions = np.concatenate([run.position for run in recording.runs])
    flat = positions.reshape(-1, recording.dimension)
    # Bodies that never move have no length or time of their own.
    length = float(np.max(0.5 * (np.nanmax(flat, axis=0) - np.nanmin(flat, axis=0)))) or 1.0
    speeds = [np.diff(run.position, axis=0) / np.diff(run.time)[:, None, None] for run in recording.runs]
    speed = float(np.sqrt(np.nanmean(np.concatenate([part.ravel() for part in speeds]) ** 2)))
    acceleration = float(np.median([found.acceleration for found in impacts]))
    return NaturalUnits(
        positions,
        _distances(recording, length),
        acceleration,
        length,
        length / max(speed, TINY * length / recording.step_size),
    )


def _distances(recording: Recording, length: float) -> np.ndarray:
    """Centre and half-width of the range of distances between bodies."""
    first, second = np.triu_indices(recording.bodies, 1)
    if not len(first):
        return np.full(2, length)
    distances = [
        np.linalg.norm(run.position[:, first] - run.position[:, second], axis=-1) for run in recording.runs
    ]
    low, high = (extreme([extreme(part) for part in distances]) for extreme in (np.nanmin, np.nanmax))
    return np.array([0.5 * (low + high), max(0.5 * (high - low), TINY * length)])


def _resolution(recording: Recording) -> np.ndarray:
    """A small fraction of the standard deviations of positions and of velocities."""
    position = np.concatenate([run.position.ravel() for run in recording.runs])
    velocity = [run.velocity.ravel() for run in recording.runs if run.velocity is not None]
    spreads = [np.nanstd(position), np.nanstd(np.concatenate(velocity)) if velocity else 1.0]
    return RESOLUTION * np.where(np.array(spreads) > 0, spreads, 1.0)


def _starting(
    template: Mechanism,
    shift: np.ndarray,
    restitution: np.ndarray,
    durations: np.ndarray,
    impacts: Sequence[Impacts],
    settings: Settings,
) -> Mechanism:
    """The mechanism with the initial values of its parameters."""
    flight = impacts[0].flight
    if flight is not None:
        # Without it flights would begin as straight lines, which may never meet a surface.
        forces = tuple(
            replace(force, acceleration=flight) if isinstance(force, UniformGravity) else force
            for force in template.forces
        )
        template = replace(template, forces=forces)
    changed = eqx.tree_at(lambda m: m.geometry.offset, template, np.asarray(template.geometry.offset) + shift)
    changed = eqx.tree_at(
        lambda m: m.restitution,
        changed,
        template.restitution.starting_from(
            restitution, _closing_speeds(impacts, template.scene, settings.share)
        ),
        is_leaf=lambda x: isinstance(x, AbstractRestitution),
    )
    if changed.duration is not None:
        changed = eqx.tree_at(lambda m: m.duration.value, changed, durations)
    if changed.friction is None or "friction" not in settings.learn:
        return changed
    return eqx.tree_at(lambda m: m.friction.value, changed, changed.friction.starting().value)


def _closing_speeds(impacts: Sequence[Impacts], scene: Scene, share: Share) -> list[np.ndarray]:
    """The closing speeds that each contact was hit at, with those of contacts that share its law."""
    speeds = [np.zeros(0)] * scene.contacts
    for _, group in groups_of(scene, share):
        rates = [found.before[:, j][found.chosen[:, j]] for found in impacts for j in group]
        closing = -np.concatenate(rates)
        for j in group:
            speeds[j] = closing[closing > 0]
    return speeds


def require_scene(recordings: Sequence[Recording], settings: Settings) -> Scene:
    """The scene that the recordings share; raises an error if there is none or touch readings are missing."""
    scene = recordings[0].scene
    if scene is None:
        raise InputError("This recording has no scene: read it with a system file, or use `with_scene`.")
    if settings.touch != "inferred" and not recordings[0].has_touch:
        raise InputError(
            f"Touch is {settings.touch} in the settings, but the recording has no touch readings; leave it "
            "out, and contacts are inferred from the motion."
        )
    return scene
