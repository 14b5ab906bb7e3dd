"""A study of fits by Optuna, the same whether fits are made one by one or beside each other.

Trials are chosen some at a time, before any of these is known, and told back in their order: which worker
ends first changes nothing. Nothing of Optuna's is kept on disk: a study that is started again chooses the
same trials from the same seed, and finds their rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from carom.errors import InputError
from carom.sweeps.sweep_file import Range, Study


@dataclass(frozen=True)
class Trial:
    """A choice of what varies, and the mean of its fits' held-out errors; None where one has none."""

    number: int
    varied: dict[str, Any]
    value: float | None = None


class RunningStudy:
    """Chooses trials and learns from them."""

    def __init__(self, study: Study):
        try:
            import optuna
        except ImportError:
            raise InputError(
                "A study needs the package optuna; install it with: pip install 'carom[cluster]'."
            ) from None
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        kind = optuna.samplers.TPESampler if study.sampler == "tpe" else optuna.samplers.RandomSampler
        self._optuna = optuna
        self._study = optuna.create_study(sampler=kind(seed=study.seed))
        self._told = study
        self._spaces = {key: self._space(choice) for key, choice in study.ranges.items()}

    def batches(self) -> Iterator[list[Trial]]:
        """Trials that may be made beside each other; tell of all of them before asking for more."""
        for begin in range(0, self._told.trials, self._told.together):
            count = min(self._told.together, self._told.trials - begin)
            asked = [self._study.ask(self._spaces) for _ in range(count)]
            yield [Trial(trial.number, self._values(trial.params)) for trial in asked]

    def tell(self, trial: Trial, errors: list[float | None]) -> Trial:
        """Tell of a trial's held-out errors."""
        known = [error for error in errors if error is not None]
        if len(known) < len(errors):
            self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
            return trial
        value = fmean(known)
        self._study.tell(trial.number, value)
        return Trial(trial.number, trial.varied, value)

    def _space(self, choice: Range | tuple[Any, ...]) -> Any:
        distributions = self._optuna.distributions
        if not isinstance(choice, Range):
            return distributions.CategoricalDistribution(tuple(range(len(choice))))  # any value has a number
        if choice.whole:
            return distributions.IntDistribution(int(choice.low), int(choice.high), log=choice.log)
        return distributions.FloatDistribution(choice.low, choice.high, log=choice.log)

    def _values(self, parameters: dict[str, Any]) -> dict[str, Any]:
        ranges = self._told.ranges
        return {
            key: parameters[key] if isinstance(choice, Range) else choice[parameters[key]]
            for key, choice in ranges.items()
        }
