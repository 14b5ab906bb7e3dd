"""A study by Optuna that does not depend on the order in which fits end.

Trials are suggested in batches, before any error of the batch is known, and reported back in their order.
Nothing of Optuna is stored: a study that is started again suggests the same trials from the same seed, and
finds their rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from carom.execution.cluster import optional_module
from carom.sweeps.sweep_file import Range, Study


@dataclass(frozen=True)
class Trial:
    """Values of the options that vary, and the mean held-out error of its fits; None where one has none."""

    number: int
    varied: dict[str, Any]
    value: float | None = None


class OptunaStudy:
    """Suggests trials and learns from their errors."""

    def __init__(self, study: Study):
        optuna = optional_module("optuna", purpose="A study", extra="cluster")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler if study.sampler == "tpe" else optuna.samplers.RandomSampler
        self._optuna = optuna
        self._study = optuna.create_study(sampler=sampler(seed=study.seed))
        self._settings, self._space = study, study.space
        self._distributions = {name: self._distribution(part) for name, part in self._space.items()}

    def batches(self) -> Iterator[list[Trial]]:
        """Trials that may run side by side; report all of them before the next batch."""
        for begin in range(0, self._settings.trials, self._settings.batch):
            count = min(self._settings.batch, self._settings.trials - begin)
            suggested = [self._study.ask(self._distributions) for _ in range(count)]
            yield [Trial(trial.number, self._values(trial.params)) for trial in suggested]

    def report(self, trial: Trial, errors: list[float | None]) -> Trial:
        """Report the held-out errors of a trial's fits."""
        known = [error for error in errors if error is not None]
        # A mean over fewer fits would favour trials whose hard cases failed.
        if len(known) < len(errors):
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            return trial
        value = fmean(known)
        self._study.tell(trial.number, value)
        return Trial(trial.number, trial.varied, value)

    def _distribution(self, part: Range | tuple[Any, ...]) -> Any:
        distributions = self._optuna.distributions
        if not isinstance(part, Range):
            # By number, as Optuna has no categories that are lists.
            return distributions.CategoricalDistribution(tuple(range(len(part))))
        if isinstance(part.low, int):
            return distributions.IntDistribution(part.low, int(part.high), log=part.log)
        return distributions.FloatDistribution(part.low, part.high, log=part.log)

    def _values(self, suggested: dict[str, Any]) -> dict[str, Any]:
        return {
            name: suggested[name] if isinstance(part, Range) else part[suggested[name]]
            for name, part in self._space.items()
        }
