"""Files of experiments (TOML), in which an experiment may be like another one."""

import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from carom import systems

Experiment = TypeVar("Experiment", bound=Any)


def read_experiments(
    path: Path,
    kind: type[Experiment],
    convert: Callable[[dict[str, Any]], dict[str, Any]] = lambda table: table,
) -> dict[str, Experiment]:
    """Experiments by name: tables with the fields of a dataclass, or with those that differ from one above.

    Arguments:
        path: the file.
        kind: the dataclass. Its field `system` is the name of a class of `carom.systems` with its arguments.
        convert: a table into fields, where it has others.
    """
    found: dict[str, Experiment] = {}
    for name, table in _with_tuples(tomllib.loads(path.read_text(encoding="utf-8"))).items():
        like, values = table.pop("like", None), convert(table)
        if "system" in values:
            ((system, arguments),) = values["system"].items()
            values["system"] = getattr(systems, system)(**arguments)
        found[name] = replace(found[like], **values) if like else kind(**values)
    return found


def _with_tuples(value: Any) -> Any:
    """Tables of a TOML file with tuples for its arrays."""
    if isinstance(value, dict):
        return {key: _with_tuples(part) for key, part in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
