"""The paper's experiments as data: what is recorded, what is trained, and the number that was printed."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from carom.mechanics import Projection
from carom.reproduction.experiment_file import read_experiments
from carom.systems import AbstractBoxedBalls, AbstractSystem
from carom.training import TrainingSettings
from carom.types import State

Protocol = Literal["text", "text-pieces", "published"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
POINTS = 10
"""Points per trajectory of the text: a start state and nine targets."""
NO_TOUCH_KIND = "cd-lagrange-no-touch"
"""CD-Lagrange trained without the touch signal; other kinds are names of `carom.models.MODELS`."""

ContactRule = Literal["touch", "own signal", "identically 0", "none"]
"""What decides contacts in training: the recorded touch; the model's own soft signal, which scales impulses;
a contact function that is 0; or the model has no contacts."""


@dataclass(frozen=True)
class Hyperparameters:
    """Of one kind of model under one protocol.

    Arguments:
        training: settings but for epochs and ℓ², which depend on the experiment.
        l2_share: factor on the experiment's ℓ²; 0 where the potential is not penalised.
        contacts: what decides contacts in training.
        options: of the model's constructor.
    """

    training: TrainingSettings
    l2_share: float = 0.0
    contacts: ContactRule = "none"
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProtocolSettings:
    """What is recorded under a protocol, and the hyperparameters of every kind of model."""

    data: str
    models: dict[str, Hyperparameters]


def _with_training(table: dict[str, Any]) -> dict[str, Any]:
    """The models of a table of protocols.toml, each with the training of the protocol."""
    if "training" not in table:
        return table
    training = TrainingSettings(**table.pop("training"))
    models = {
        kind: Hyperparameters(
            replace(training, touch="none") if row.get("contacts") == "own signal" else training, **row
        )
        for kind, row in table["models"].items()
    }
    return table | {"models": models}


_SETTINGS = read_experiments(Path(__file__).with_name("protocols.toml"), ProtocolSettings, _with_training)
DATA = {protocol: _SETTINGS[protocol].data for protocol in PROTOCOLS}
HYPERPARAMETERS = {protocol: _SETTINGS[protocol].models for protocol in PROTOCOLS}


class PaperNumber(NamedTuple):
    """A printed error: of one run in a figure, or a mean over five with its standard error in a table."""

    value: float
    standard_error: float | None = None

    def __str__(self) -> str:
        """With the digits that the paper has.

        Example:
            >>> str(PaperNumber(1.9, 1.0)), str(PaperNumber(0.067))
            ('1.9 ± 1.0', '0.067')
        """
        decimals = max(len(f"{part:g}".partition(".")[2]) for part in self if part is not None)
        return " ± ".join(f"{part:.{decimals}f}" for part in self if part is not None)


class Trained(NamedTuple):
    """A model to train: its kind in `HYPERPARAMETERS`, its printed error, and what is special about it."""

    kind: str = "cd-lagrange"
    paper: PaperNumber | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """Of the constructor."""
    changes: dict[str, Any] = {}  # noqa: RUF012
    """Of the recipe's settings."""
    scene: dict[str, Any] = {}  # noqa: RUF012
    """Of the scene that the model is given."""
    data: dict[str, Any] = {}  # noqa: RUF012
    """Of the experiment's recordings: other values of its fields."""


OURS, NO_TOUCH, ORACLE = "CD-Lagrange", "CD-Lagrange (no touch)", "oracle"
"""Models by the names of tables and figures; the oracle is the true equations with gravity fitted."""
REPORTED_SEED = 300
"""The first seed of reported numbers. Seeds 0 to 19 and 200 to 219 were seen before the protocols were
complete, and settings were chosen on 100 to 119."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper, an ablation, or a claim of the paper that it shows no numbers for.

    Arguments:
        title: for headings.
        place: where it stands in the paper; else "ablation" or "claim".
        system: the truth.
        trained: models by the name they have in figures and tables.
        trajectories: number of ten-point trajectories of the text; ten times as many samples are recorded.
        published_samples: samples of the published recording.
        step_size: seconds between samples.
        noise: standard deviation on positions and velocities.
        epochs: of the text.
        published_epochs: of the published code.
        l2: strength of ℓ² on the potential's kernels, where the table of hyper-parameters has one.
        projection: what removes overlap between bodies, in the data and in the model.
        grid_stretch: factor on the sampling times that the published pendulums have by mistake.
        true_window_starts: whether windows start from states without noise; their targets have it.
        protocols: under which it is run.
    """

    title: str
    place: str
    system: AbstractSystem
    trained: dict[str, Trained]
    trajectories: int
    published_samples: int
    step_size: float = 0.02
    noise: float = 0.2
    epochs: int = 2000
    published_epochs: int = 3000
    l2: float = 5e-3
    projection: Projection = "none"
    grid_stretch: float = 1.0
    true_window_starts: bool = False
    protocols: tuple[Protocol, ...] = PROTOCOLS

    @property
    def label(self) -> str:
        """Title and place, for tables."""
        return f"{self.title} ({self.place})"

    @property
    def start(self) -> State:
        """Where the recorded run and the scored forecast begin."""
        system = self.system
        return system.random_start(0) if isinstance(system, AbstractBoxedBalls) else system.start

    @property
    def printed(self) -> bool:
        """Whether it belongs to the paper's own experiments, not to ablations and claims."""
        return self.place not in ("ablation", "claim")

    def samples(self, protocol: Protocol) -> int:
        """Samples of the motion that is scored."""
        return self.published_samples if protocol == "published" else POINTS * self.trajectories

    def settings(self, protocol: Protocol, name: str) -> TrainingSettings:
        """The recipe for one of the models."""
        trained = self.trained[name]
        row = HYPERPARAMETERS[protocol][trained.kind]
        epochs = self.published_epochs if protocol == "published" else self.epochs
        return replace(row.training, **{"epochs": epochs, "l2": row.l2_share * self.l2, **trained.changes})

    def options(self, protocol: Protocol, name: str) -> dict[str, Any]:
        """Constructor options for one of the models."""
        trained = self.trained[name]
        return HYPERPARAMETERS[protocol][trained.kind].options | trained.options


def _with_models(table: dict[str, Any]) -> dict[str, Any]:
    """The models of a table of experiments.toml, each with what `every` model of it has."""
    shared, models = table.pop("every", {}), table.pop("models", None)
    if models is None:
        return table
    return table | {"trained": {model: _trained(**(shared | special)) for model, special in models.items()}}


def _trained(paper: tuple[float, ...] | None = None, **special: Any) -> Trained:
    return Trained(paper=None if paper is None else PaperNumber(*paper), **special)


ALL = read_experiments(Path(__file__).with_suffix(".toml"), Experiment, _with_models)
"""The paper's experiments, then ablations and what the paper claims without numbers."""
EXPERIMENTS = {name: one for name, one in ALL.items() if one.printed}
