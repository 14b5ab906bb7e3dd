"""Which model gets which hyper-parameter under which protocol: one table, for runs and documentation.

`published` is what the authors' code does. `text` is what the paper says: independent trajectories of ten
points. `text-pieces` has the recipe of the text, but its trajectories are pieces of one long run, as the data
of the authors' code are. What the text leaves open (batch, strength of ℓ², contact network, step and noise of
the cradle) is taken from the code.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from carom.training import TrainingSettings

Protocol = Literal["text", "text-pieces", "published"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
DATA: dict[Protocol, str] = {
    "text": "independent trajectories of 10 points, each from a start of its own",
    "text-pieces": "trajectories of 10 points, cut one after another from one run",
    "published": "one run in overlapping windows of 11 samples; the last window is not used",
}
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


_TEXT = TrainingSettings(
    horizon=POINTS - 1,
    stride=POINTS,
    batch_size=32,
    learning_rate=1e-3,
    schedule="constant",
    reduction="mean",
    contact_inputs="observed",
)
_PUBLISHED = replace(
    _TEXT, horizon=10, stride=1, learning_rate=1e-2, reduction="sum", contact_inputs="predicted"
)
# The strength of ℓ² goes with a sum over the horizon; this share keeps its weight beside an average.
_MEAN = 1 / (POINTS - 1)
_TANH, _SOFTPLUS = {"activation": "tanh"}, {"activation": "softplus"}
_AUTHORS = _SOFTPLUS | {"damping_form": "triangular", "project_predicted": True}
_BY_TEXT = {
    "cd-lagrange": Hyperparameters(_TEXT, _MEAN, "touch", _TANH),
    NO_TOUCH_KIND: Hyperparameters(replace(_TEXT, touch="none"), _MEAN, "own signal", _TANH),
    "vin": Hyperparameters(_TEXT, _MEAN, "none", _TANH),
    "resnet": Hyperparameters(_TEXT, options=_TANH),
    "contact-resnet": Hyperparameters(_TEXT, 0.0, "touch", _TANH),
}
HYPERPARAMETERS: dict[Protocol, dict[str, Hyperparameters]] = {
    "text": _BY_TEXT,
    "text-pieces": _BY_TEXT,
    "published": {
        "cd-lagrange": Hyperparameters(_PUBLISHED, 1.0, "touch", _AUTHORS),
        NO_TOUCH_KIND: Hyperparameters(_PUBLISHED, 1.0, "identically 0", _AUTHORS),
        "vin": Hyperparameters(_PUBLISHED, options=_SOFTPLUS),
        "resnet": Hyperparameters(_PUBLISHED, options=_SOFTPLUS),
        "contact-resnet": Hyperparameters(_PUBLISHED, 0.0, "touch", _SOFTPLUS),
    },
}


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

    kind: str
    paper: PaperNumber | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    """Of the constructor."""
    changes: dict[str, Any] = {}  # noqa: RUF012
    """Of the recipe's settings."""
    scene: dict[str, Any] = {}  # noqa: RUF012
    """Of the scene that the model is given."""
    data: dict[str, Any] = {}  # noqa: RUF012
    """Of the experiment's recordings: other values of its fields."""
