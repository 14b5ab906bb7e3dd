"""What a fit is told, whoever asks for it: `carom fit` or a sweep."""

import math
from dataclasses import dataclass, field
from typing import Literal

from carom.data.io.system_file import Learn
from carom.errors import InputError, require_range, require_seed
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.estimation.parameters.sharing import Laws
from carom.estimation.parameters.unknowns import Learned
from carom.models.impact_network import Field
from carom.models.variational_integrator_network import Scheme
from carom.training import TrainingSettings

Recipe = Literal["carom", "paper"]
TouchOption = Literal["observed", "inferred", "imperfect", "none"]
ModelName = Literal["cd-lagrange", "vin", "resnet", "contact-resnet"]
Learnable = Literal[
    "restitution",
    "restitution-speed",
    "restitution-per-run",
    "gap",
    "gap-per-run",
    "masses",
    "masses-per-run",
    "damping",
    "friction",
    "radii",
    "normals",
]
LARGEST_ENSEMBLE = 10_000


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """The options of `carom fit`, where each is explained; complaints name them as they are typed there.

    Options that contradict each other are refused when they are put together; what depends on the recording
    is checked by `carom.fits.plan.plan_fit`.

    Example:
        >>> FitOptions(recipe="paper", hidden=8).units
        8
        >>> FitOptions(touch="none")
        Traceback (most recent call last):
        carom.errors.InputError: --touch none: the recipe carom has --touch inferred for that.
    """

    settings: TrainingSettings = field(default_factory=TrainingSettings)
    sensor: TouchSensor = field(default_factory=TouchSensor)
    recipe: Recipe = "carom"
    touch: TouchOption | None = None
    learn: tuple[Learnable, ...] | None = None
    laws: Laws = "each"
    field: Field = "shared"
    around: float | None = None
    blind: int = 0
    hold_out: float = 0.0
    model: ModelName = "cd-lagrange"
    scheme: Scheme = "velocity_verlet"
    hidden: int | None = None
    ensemble: int = 1
    memory: float | None = None
    seed: int = 0

    def __post_init__(self):
        require_seed(self.seed)
        require_range("--hidden", self.units, 1, 100_000)
        if self.sensor != TouchSensor() and self.touch != "imperfect":
            raise InputError(
                "--sensor: only an imperfect touch sensor has rates and a delay; add --touch imperfect."
            )
        if self.model != "vin" and self.scheme != "velocity_verlet":
            raise InputError(f"--scheme {self.scheme}: only the model vin has it; add --model vin.")
        if self.recipe == "carom":
            self._require_carom()
        else:
            self._require_paper()

    @property
    def units(self) -> int:
        """Units in the hidden layer."""
        return self.hidden if self.hidden is not None else 32 if self.recipe == "carom" else 500

    def _require_carom(self) -> None:
        if self.model != "cd-lagrange":
            raise InputError(f"--model {self.model} needs the paper's recipe; add --recipe paper.")
        if self.settings != TrainingSettings():
            raise InputError(
                "Options of the paper's recipe were given; add --recipe paper, or leave them out."
            )
        if self.touch == "none":
            raise InputError("--touch none: the recipe carom has --touch inferred for that.")
        require_range("--hidden", self.units, 1, 256)
        if self.ensemble != 1 or self.memory is not None:
            raise InputError(
                "--ensemble and --memory: the recipe carom has a band without; they are for --recipe paper."
            )

    def _require_paper(self) -> None:
        if self.touch in ("inferred", "imperfect"):
            raise InputError(f"--touch {self.touch}: the paper's recipe knows observed and none.")
        if self.field != "shared" or self.around is not None or self.blind or self.laws != "each":
            raise InputError("--field, --laws, --around and --blind: only the recipe carom has them.")
        if self.learn is not None:
            raise InputError("--learn: the paper's recipe takes this from the system file's table [learn].")
        require_range("--ensemble", self.ensemble, 1, LARGEST_ENSEMBLE)
        require_seed(self.seed + self.ensemble - 1)
        if self.memory is not None and not 0 < self.memory < math.inf:
            raise InputError(f"--memory must be a positive number of gigabytes, but it is {self.memory:g}.")


def learned_from(stated: Learn, chosen: tuple[str, ...] | None, laws: Laws = "each") -> Learned:
    """What to estimate: as it was chosen, else as in the system file."""
    if chosen is None:
        return Learned(
            restitution=stated.restitution,
            laws=laws,
            gap=stated.gap,
            masses=stated.masses,
            damping=stated.damping,
        )
    if "gap" in chosen and "radii" in chosen:
        raise InputError("--learn: gap and radii are two ways to say where surfaces are; choose one.")
    speed, constant = "restitution-speed" in chosen, "restitution" in chosen
    if speed and constant:
        raise InputError("--learn: restitution is constant or restitution-speed; choose one.")
    return Learned(
        restitution="speed" if speed else "constant" if constant else "fixed",
        laws=laws,
        gap="gap" in chosen or "radii" in chosen,
        surfaces="bodies" if "radii" in chosen else "each",
        normals="normals" in chosen,
        friction="friction" in chosen,
        masses="masses" in chosen,
        damping="damping" in chosen,
        gap_per_run="gap-per-run" in chosen,
        restitution_per_run="restitution-per-run" in chosen,
        masses_per_run="masses-per-run" in chosen,
    )
