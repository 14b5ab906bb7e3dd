"""Where the fits of a sweep are made, as its file says."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from carom.data.io.toml_table import TomlTable, as_written

MOST_WORKERS = 10_000
SLURM_KEYS = ("queue", "account", "memory", "walltime", "per_job", "directives", "prologue")
CLUSTER_KEYS = ("workers", "scheduler", "slurm")


@dataclass(frozen=True)
class Slurm:
    """Jobs that SLURM is asked for.

    Arguments:
        queue, account: as `sbatch` takes them; None for the site's own.
        memory: of one worker, such as "2GB".
        walltime: of a job, such as "02:00:00"; what it does not finish, the next one continues.
        per_job: workers in one job, each on one core.
        directives: more lines for the head of the job script, such as "--constraint=avx512".
        prologue: shell lines before the workers start, such as "module load python".
    """

    queue: str | None = None
    account: str | None = None
    memory: str = "2GB"
    walltime: str = "01:00:00"
    per_job: int = 1
    directives: tuple[str, ...] = ()
    prologue: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClusterOptions:
    """A local cluster by default, an existing scheduler, or jobs of SLURM.

    Arguments:
        workers: processes; None for one on every core. An existing scheduler has its own.
        scheduler: the address of one that runs already.
        slurm: jobs to ask for.
    """

    workers: int | None = None
    scheduler: str | None = None
    slurm: Slurm | None = field(default=None)


def read_cluster(path: Path, values: Any) -> ClusterOptions:
    """The table [cluster] of a sweep file."""
    table = TomlTable(path, "[cluster]", values, CLUSTER_KEYS)
    workers = table.whole("workers", maximum=MOST_WORKERS) if "workers" in table.values else None
    scheduler = table.text("scheduler") if "scheduler" in table.values else None
    slurm = _slurm(path, table.values["slurm"]) if "slurm" in table.values else None
    if scheduler is not None and "://" not in scheduler:
        raise table.wrong("scheduler", f'write an address such as "tcp://node1:8786", not "{scheduler}"')
    if scheduler is not None and (workers is not None or slurm is not None):
        raise table.wrong("scheduler", "an existing scheduler has workers of its own; leave out the rest")
    if slurm is not None and workers is None:
        raise table.wrong("workers", "the key is missing; say how many workers SLURM is asked for")
    return ClusterOptions(workers, scheduler, slurm)


def _slurm(path: Path, values: Any) -> Slurm:
    table = TomlTable(path, "[cluster.slurm]", values, SLURM_KEYS)
    given: dict[str, Any] = {
        key: table.text(key) for key in ("queue", "account", "memory", "walltime") if key in table.values
    }
    if "per_job" in table.values:
        given["per_job"] = table.whole("per_job", maximum=1000)
    for key in ("directives", "prologue"):
        lines = table.values.get(key, [])
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise table.wrong(key, f"write a list of lines in quotes, not {as_written(lines)}")
        given[key] = tuple(lines)
    return Slurm(**given)
