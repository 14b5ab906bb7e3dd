"""The options of a fit, for whoever requests one: `carom fit`, a sweep, or Python.

Each recipe declares its settings once, as a dataclass with bounds and explanations. `OPTIONS` is the union of
the two and of what every fit has; the command line and sweep files are made from it.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Interval, Lt

from carom.errors import MAXIMUM_SEED, SettingsError, require_choice
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.estimation.settings import Settings
from carom.models.variational_integrator_network import Scheme
from carom.training.settings import TrainingSettings
from carom.validation import declared_types, documented_fields, require_valid, valid_value

Recipe = Literal["carom", "paper"]
ModelName = Literal["cd-lagrange", "vin", "resnet", "contact-resnet"]


@dataclass(frozen=True, kw_only=True)
class PaperSettings(TrainingSettings):
    """The paper's recipe: a model, and how it is trained.

    Arguments:
        model: What is trained by the recipe paper.
        scheme: The integrator of the model vin; stormer_verlet needs positions alone.
        hidden: Units in the hidden layer.
        ensemble: Number of seeds that are trained, together and on all devices; the band of a forecast is
            what they span.
        memory: Gigabytes that an ensemble may take on one device, by default a quarter of what it has. An
            ensemble that needs more is trained in parts.
    """

    model: ModelName = "cd-lagrange"
    scheme: Scheme = "velocity_verlet"
    hidden: Annotated[int, Interval(ge=1, le=100_000)] = 500
    ensemble: Annotated[int, Interval(ge=1, le=10_000)] = 1
    memory: Annotated[float | None, Gt(0)] = None

    def __post_init__(self):
        require_valid(self)
        if self.model != "vin" and self.scheme != "velocity_verlet":
            raise SettingsError(f"`scheme` {self.scheme} is for the model vin; add `model` vin.")


RECIPES: dict[str, type[Settings] | type[PaperSettings]] = {"carom": Settings, "paper": PaperSettings}


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """A request for a fit. What depends on the recording is checked by `carom.fits.plan.plan_fit`.

    Arguments:
        settings: Those of the recipe, which is chosen by their class.
        learn: Physical parameters to estimate by the recipe carom, instead of those that the system file
            names: restitution, restitution-linear, restitution-speed, restitution-spline, friction, surfaces,
            radii, normals, masses, damping, drag, gravity, or auto for those that regression finds necessary;
            with -per-run at the end of a name every run has a value of its own.
        around: Seconds either side of each run's impact that the recipe carom uses, where every run has one;
            everything by default.
        hold_out: Fraction of the data that the fit does not see, to score its forecasts: whole runs where
            there are five or more, the end of each run otherwise.
        seed: Seed of the initial weights and of the order of minibatches.

    Example:
        >>> FitOptions.from_values({"recipe": "paper", "hidden": 8}).settings.hidden
        8
        >>> FitOptions.from_values({"epochs": 8})
        Traceback (most recent call last):
        carom.errors.SettingsError: `epochs` is for the recipe paper; add `recipe` paper or leave it out.
    """

    settings: Settings | PaperSettings = field(default_factory=Settings)
    learn: tuple[str, ...] | None = None
    around: Annotated[float | None, Gt(0)] = None
    hold_out: Annotated[float, Ge(0), Lt(1)] = 0.0
    seed: Annotated[int, Interval(ge=0, le=MAXIMUM_SEED)] = 0

    def __post_init__(self):
        require_valid(self)
        if isinstance(self.settings, PaperSettings):
            if self.learn is not None:
                raise SettingsError("`learn`: the recipe paper takes this from the system file's [learn].")
            if self.around is not None:
                raise SettingsError("`around` is for the recipe carom; leave it out.")
            if self.seed + self.settings.ensemble - 1 > MAXIMUM_SEED:
                raise SettingsError(
                    f"`seed` {self.seed}: the last of the `ensemble` would exceed {MAXIMUM_SEED}."
                )

    @property
    def recipe(self) -> Recipe:
        """The name of the recipe."""
        return "paper" if isinstance(self.settings, PaperSettings) else "carom"

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> "FitOptions":
        """Options from their values by name, as in `OPTIONS`; None stands for the recipe's default.

        "sensor.missed" is a field of the option sensor.
        """
        # Known first, as it decides what the other names mean.
        recipe = values.get("recipe", "carom")
        require_choice("`recipe`", recipe, Recipe)
        own = {part.name for part in fields(RECIPES[recipe])} - _COMMON
        given = {name: value for name, value in values.items() if name != "recipe" and value is not None}
        if rates := {name: given.pop(name) for name in [*given] if name.startswith("sensor.")}:
            given["sensor"] = TouchSensor(**{name.removeprefix("sensor."): x for name, x in rates.items()})
        settings = {name: valid_value(RECIPES[recipe], name, given.pop(name)) for name in own & given.keys()}
        for name in given.keys() - _COMMON:
            (other,) = OPTIONS[name].recipes
            # The command line passes every option, also those that nobody typed.
            if given.pop(name) != OPTIONS[name].default:
                raise SettingsError(
                    f"`{name}` is for the recipe {other}; add `recipe` {other} or leave it out."
                )
        return cls(settings=RECIPES[recipe](**settings), **given)


@dataclass(frozen=True)
class Option:
    """One option of a fit.

    Arguments:
        name: as in Python and in sweep files.
        type: its type, without bounds; None is an alternative where the default is None.
        default: None where it depends on the recipe.
        explanation: a sentence or two.
        recipes: the recipe that has it; empty where all have.
    """

    name: str
    type: Any
    default: Any
    explanation: str
    recipes: tuple[str, ...] = ()


_COMMON = {part.name for part in fields(FitOptions)} - {"settings"}


def _options() -> dict[str, Option]:
    found = {"recipe": Option("recipe", Recipe, "carom", "How the model is found.")}
    for recipes, declaration in (((), FitOptions), (("carom",), Settings), (("paper",), PaperSettings)):
        explanations = documented_fields(declaration)
        for part in fields(declaration):
            name, kind = part.name, declared_types(declaration)[part.name][0]
            if declaration is Settings and name in _COMMON:
                continue
            default = part.default if part.default is not MISSING else part.default_factory()  # pyright: ignore
            new = Option(name, kind, default, explanations[name], recipes)
            if (other := found.get(name)) is not None:
                # Both recipes have it, each with its own default.
                both = f"{other.explanation} Default: {other.default}; in the recipe paper {default}."
                kind = kind if kind == other.type else Literal[other.type, kind]
                new = Option(name, kind, None, both)
            found[name] = new
    del found["settings"]
    return found


OPTIONS = _options()
"""Every option of a fit by its name."""
