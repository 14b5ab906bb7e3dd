"""The options of a fit as a sweep file has them: `--learning-rate 0.01` is `learning_rate = 0.01`."""

import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from carom.data.io.toml_table import TomlTable
from carom.estimation.detection.touch_sensor import TouchSensor
from carom.fits.options import FitOptions
from carom.storage.input_file import complaint
from carom.training import TrainingSettings

LARGEST = 10**9
_ELSEWHERE = ("settings", "sensor", "hold_out", "seed")
_PLACES = {
    "seed": "seeds go under [sweep], such as seeds = 3 for 0, 1 and 2",
    "seeds": "seeds go under [sweep], such as seeds = 3 for 0, 1 and 2",
    "hold_out": "write it under [sweep]; all fits are scored by the same share",
    "recording": "write it under [sweep]; several recordings are a list there",
    "system": "write it under [sweep]",
}

OPTIONS: dict[str, Any] = {
    **{name: kind for name, kind in get_type_hints(FitOptions).items() if name not in _ELSEWHERE},
    **{name: kind for name, kind in get_type_hints(TrainingSettings).items() if name != "touch"},
    **{f"sensor.{name}": kind for name, kind in get_type_hints(TouchSensor).items()},
}
"""The type of every option, taken from where the option is declared."""


def options_table(path: Path, title: str, values: Any) -> TomlTable:
    """A table whose keys are options; dashes will do for underscores, as on the command line."""
    if not isinstance(values, Mapping):
        return TomlTable(path, title, values, tuple(OPTIONS))
    inside = values.get("sensor")
    spread = {key: value for key, value in values.items() if key != "sensor"}
    if isinstance(inside, Mapping):
        spread |= {f"sensor.{key}": value for key, value in inside.items()}
    elif inside is not None:
        raise complaint(path, "write its parts, such as sensor.missed = 0.1", title, "sensor")
    flat: dict[str, Any] = {}
    for key, value in spread.items():
        name = key.replace("-", "_")
        if name in _PLACES:
            raise complaint(path, _PLACES[name], title, key)
        if name in flat:
            raise complaint(path, "the option is there twice; keep one", title, key)
        flat[name] = value
    return TomlTable(path, title, flat, tuple(OPTIONS))


def option_value(table: TomlTable, key: str, value: Any) -> Any:
    """A value of an option, checked; a whole number where there may be any becomes a float."""
    one = TomlTable(table.path, table.title, {key: value}, (key,))
    kind = OPTIONS[key]
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (part for part in get_args(kind) if part is not types.NoneType)
    if get_origin(kind) is Literal:
        return one.choice(key, choices=get_args(kind), default="")
    if get_origin(kind) is tuple:
        return one.words(key, choices=get_args(get_args(kind)[0]))
    if kind is int:
        return one.whole(key, minimum=0, maximum=LARGEST)
    assert kind is float
    return one.number(key, default=0.0)


def is_whole(key: str) -> bool:
    """Whether an option is a whole number."""
    return OPTIONS[key] in (int, int | None)


def is_number(key: str) -> bool:
    """Whether an option is a number, so that it may have a range."""
    return is_whole(key) or OPTIONS[key] in (float, float | None)


def fit_options(values: Mapping[str, Any], *, hold_out: float, seed: int) -> FitOptions:
    """Options from their values by key.

    Example:
        >>> fit_options({"recipe": "paper", "epochs": 5}, hold_out=0.2, seed=1).settings.epochs
        5
    """
    own = get_type_hints(TrainingSettings).keys() - {"touch"}
    settings, sensor, rest = {}, {}, {}
    for key, value in values.items():
        if key in own:
            settings[key] = value
        elif key.startswith("sensor."):
            sensor[key.removeprefix("sensor.")] = value
        else:
            rest[key] = value
    return FitOptions(
        **rest,
        settings=TrainingSettings(**settings),
        sensor=TouchSensor(**sensor),
        hold_out=hold_out,
        seed=seed,
    )
