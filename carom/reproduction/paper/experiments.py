"""The paper's experiments as data: what is recorded, what is trained, and the number that was printed.

Two protocols run every experiment. `text` is what the paper says: trajectories of ten points each, tanh, Adam
at 1e-3, losses averaged over the horizon, the contact signal trained on observed states. `published` is what
the authors' code does: one recording in overlapping windows, softplus, Adam at 1e-2, losses summed over the
horizon, the contact signal trained on predicted states. What the text leaves open (batch, strength of ℓ²,
shape of the contact network, the cradle's step and noise) is taken from the published code.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from carom.errors import InputError
from carom.mechanics import Projection
from carom.systems import AbstractSystem, BouncingBall, NewtonsCradle, Pendulum
from carom.training import TrainingSettings

Protocol = Literal["text", "published"]
PROTOCOLS: tuple[Protocol, ...] = ("text", "published")
OURS, NO_TOUCH, ORACLE = "CD-Lagrange", "CD-Lagrange (no touch)", "oracle"
"""Models by the names of tables and figures; the oracle is the true equations with gravity fitted."""
REPORTED_SEED = 200
"""The first seed of reported numbers. Tuning used 100 to 119; 0 to 19 were seen while the protocol `text` was
being completed, so they are no longer untouched."""
POINTS = 10
"""Points per trajectory of the text: a start state and nine targets."""


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
    """A model to train: its name in `carom.models.MODELS`, and what is special about it."""

    model: str
    paper: PaperNumber | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """Of the constructor."""
    changes: dict[str, Any] = {}  # noqa: RUF012
    """Of the recipe's settings."""
    scene: dict[str, Any] = {}  # noqa: RUF012
    """Of the scene that the model is given."""


@dataclass(frozen=True)
class Experiment:
    """One figure or table.

    Arguments:
        title: for headings.
        place: where it stands in the paper, or "ablation".
        system: the truth.
        step_size: seconds between samples.
        trajectories: number of ten-point trajectories of the text; ten times as many samples are recorded.
        published_samples: samples of the published recording.
        noise: standard deviation on positions and velocities.
        epochs: of the text.
        published_epochs: of the published code.
        l2: strength of ℓ² on the potential's kernels.
        trained: models by the name they have in figures and tables.
        projection: what removes overlap between bodies, in the data and in the model.
        grid_stretch: factor on the sampling times that the published pendulum has by mistake.
    """

    title: str
    place: str
    system: AbstractSystem
    step_size: float
    trajectories: int
    published_samples: int
    noise: float
    epochs: int
    published_epochs: int
    l2: float
    trained: dict[str, Trained]
    projection: Projection = "none"
    grid_stretch: float = 1.0

    @property
    def label(self) -> str:
        """Title and place, for tables."""
        return f"{self.title} ({self.place})"

    def samples(self, protocol: Protocol) -> int:
        """Samples of one recording."""
        return self.published_samples if protocol == "published" else POINTS * self.trajectories

    def settings(self, protocol: Protocol, name: str) -> TrainingSettings:
        """The recipe for one of the models."""
        common = TrainingSettings(batch_size=32, l2=self.l2, schedule="constant")
        if protocol == "text":
            chosen = replace(
                common,
                horizon=POINTS - 1,
                stride=POINTS,
                epochs=self.epochs,
                learning_rate=1e-3,
                reduction="mean",
                contact_inputs="observed",
                # The published strength goes with a sum over the horizon; this keeps its weight in the mean.
                l2=self.l2 / (POINTS - 1),
            )
        else:
            chosen = replace(
                common,
                horizon=10,
                stride=1,
                epochs=self.published_epochs,
                learning_rate=1e-2,
                reduction="sum",
                contact_inputs="predicted",
            )
        return replace(chosen, **self.trained[name].changes)

    def options(self, protocol: Protocol, name: str) -> dict[str, Any]:
        """Constructor options for one of the models."""
        trained = self.trained[name]
        if trained.model in ("cd-lagrange", "vin"):
            return {"activation": "tanh" if protocol == "text" else "softplus", **trained.options}
        return dict(trained.options)


def _cd_lagrange(paper: PaperNumber | None, **changes: Any) -> Trained:
    return Trained("cd-lagrange", paper, changes=changes)


def _baselines(resnet: PaperNumber, contact_resnet: PaperNumber) -> dict[str, Trained]:
    return {
        "ResNet": Trained("resnet", resnet),
        "ResNetContact": Trained("contact-resnet", contact_resnet),
    }


_BALL = Experiment(
    title="Bouncing ball",
    place="Figure 5",
    system=BouncingBall(radius=0.01),
    step_size=0.02,
    trajectories=52,
    published_samples=501,
    noise=0.2,
    epochs=2000,
    published_epochs=3000,
    l2=5e-3,
    trained={
        OURS: _cd_lagrange(PaperNumber(0.067)),
        NO_TOUCH: _cd_lagrange(PaperNumber(7.578), touch="none"),
        **_baselines(PaperNumber(6.778), PaperNumber(8.866)),
    },
)
_CRADLE = Experiment(
    title="Newton's cradle",
    place="Figures 7 and 9",
    system=NewtonsCradle(),
    step_size=0.01,
    trajectories=54,
    published_samples=541,
    noise=0.02,
    epochs=2000,
    published_epochs=2000,
    l2=5e-6,
    trained={
        OURS: _cd_lagrange(PaperNumber(0.406)),
        NO_TOUCH: _cd_lagrange(PaperNumber(0.907), touch="none"),
        **_baselines(PaperNumber(1.685), PaperNumber(1.034)),
    },
    projection="reference_point",
)
_INELASTIC = replace(_BALL, place="Figure 10", noise=0.0)
_INELASTIC_TRAINED = {
    OURS: _cd_lagrange(PaperNumber(2.076)),
    **_baselines(PaperNumber(8.291), PaperNumber(4.156)),
}

EXPERIMENTS: dict[str, Experiment] = {
    "pendulum": Experiment(
        title="Pendulum",
        place="Figure 3",
        system=Pendulum(),
        step_size=0.02,
        trajectories=20,
        published_samples=200,
        noise=0.2,
        epochs=3000,
        published_epochs=3000,
        l2=5e-3,
        trained={
            OURS: _cd_lagrange(PaperNumber(0.538)),
            "ResNet": Trained("resnet", PaperNumber(1.156)),
            "VIN": Trained("vin", PaperNumber(0.509)),
        },
        grid_stretch=200 / 199,
    ),
    "ball": _BALL,
    "ball-table": replace(
        _BALL,
        place="Table 1",
        trajectories=40,
        published_samples=401,
        trained={
            OURS: _cd_lagrange(PaperNumber(1.9, 1.0)),
            **_baselines(PaperNumber(6.6, 1.2), PaperNumber(4.8, 0.8)),
        },
    ),
    "inelastic-ball": replace(
        _INELASTIC,
        title="Inelastic ball, e = 0.7",
        system=BouncingBall(radius=0.01, restitution=0.7),
        trained=_INELASTIC_TRAINED,
    ),
    "inelastic-ball-0.8": replace(
        _INELASTIC,
        title="Inelastic ball, e = 0.8",
        system=BouncingBall(radius=0.01, restitution=0.8),
        trained=_INELASTIC_TRAINED,
    ),
    "cradle": _CRADLE,
    "cradle-table": replace(
        _CRADLE,
        place="Table 2",
        trajectories=50,
        published_samples=501,
        trained={
            OURS: _cd_lagrange(PaperNumber(0.4, 0.1)),
            **_baselines(PaperNumber(1.6, 0.1), PaperNumber(3.5, 1.3)),
        },
    ),
    "damped-pendulum": Experiment(
        title="Damped pendulum",
        place="the authors' code",
        system=Pendulum(damping=0.8),
        step_size=0.01,
        trajectories=50,
        published_samples=500,
        noise=0.035,
        epochs=3000,
        published_epochs=3000,
        # Not known; that of the cradle, which has the same step. At 5e-3 the penalty outweighs the data.
        l2=5e-6,
        trained={OURS: Trained("cd-lagrange", options={"learn_damping": True})},
    ),
}


HORIZONS = (1, 2, 5, 10, 20, 50)
ABLATIONS: dict[str, Experiment] = {
    # Does U absorb the contacts without ℓ²? The slope of the learned potential tells.
    "ablation-l2": replace(
        _BALL,
        title="ℓ² on and off",
        place="ablation",
        trained={
            "ℓ² 0.005": _cd_lagrange(None, l2=5e-3),
            "ℓ² off": _cd_lagrange(None, l2=0.0),
            "ℓ² 0.005, no touch": _cd_lagrange(None, l2=5e-3, touch="none"),
            "ℓ² off, no touch": _cd_lagrange(None, l2=0.0, touch="none"),
        },
    ),
    "ablation-projection": replace(
        _CRADLE,
        title="Projection in the learned cradle",
        place="ablation",
        trained={
            mode.replace("_", " "): Trained("cd-lagrange", scene={"projection": mode, "reference": reference})
            for mode, reference in (
                ("none", ()),
                ("inverse_mass", ()),
                ("reference_point", ((0.0,), (0.0,))),
            )
        },
    ),
    # The loss is a sum over the horizon; ℓ² grows with it, so that its weight relative to the data stays.
    "ablation-horizon": replace(
        _BALL,
        title="Horizon of the windows",
        place="ablation",
        trained={
            f"horizon {horizon}": _cd_lagrange(None, horizon=horizon, l2=_BALL.l2 * horizon / 10)
            for horizon in HORIZONS
        },
    ),
}
"""The paper's claims with one thing changed, run under the protocol `published`, whose windows overlap: the
trajectories of the text fix the horizon."""
ALL = EXPERIMENTS | ABLATIONS


def find_experiments(names: tuple[str, ...]) -> dict[str, Experiment]:
    """The experiments whose names begin with one of `names`; all where none is given."""
    chosen = {
        name: experiment
        for name, experiment in EXPERIMENTS.items()
        if not names or any(name.startswith(prefix) for prefix in names)
    }
    unknown = [prefix for prefix in names if not any(name.startswith(prefix) for name in EXPERIMENTS)]
    if unknown:
        raise InputError(f"There is no experiment {unknown[0]}; the names are {', '.join(EXPERIMENTS)}.")
    return chosen
