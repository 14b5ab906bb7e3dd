"""The error rates of an imperfect touch sensor, estimated in alternation with the impacts.

Given the impacts, a few counts are sufficient statistics: with R readings at T samples, and N_c impacts that
have c readings within the delay d,

    log p = R log f + (T − R) log(1 − f) + Σ_c N_c log( m + (1 − m) c / ((2d + 1) f) )

for a probability m of missing an impact and f of a false reading. Both have Jeffreys' prior, Beta(½, ½),
under which no rate is 0 or 1; their posterior, and that of the delay, is evaluated on a grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from jaxtyping import Bool, Float, Int

from carom.data import Run
from carom.estimation.detection.impacts import Impacts
from carom.estimation.detection.touch_sensor import TouchSensor, likelihood_ratio, readings_near
from carom.estimation.parameters.report import Parameter, undetermined
from carom.mechanics import Scene

DELAYS = (0, 1, 2, 3)
"""Possible delays, in samples."""
POINTS, PASSES = 121, 3
"""Grid points per rate, and number of refinements of the grid around the posterior."""
WIDEST = 14.0
"""Half-width of the first grid in log-odds of the rates."""


@dataclass(frozen=True, eq=False)
class Counts:
    """Sufficient statistics of the sensor rates, over all runs and bodies."""

    samples: int
    readings: int
    near: dict[int, Int[np.ndarray, "numbers"]]
    """For each delay, the numbers of impacts with 0, 1, 2 … readings within it."""

    @property
    def impacts(self) -> int:
        return int(next(iter(self.near.values())).sum())

    def __add__(self, other: "Counts") -> "Counts":
        near = {delay: numbers + other.near[delay] for delay, numbers in self.near.items()}
        return Counts(self.samples + other.samples, self.readings + other.readings, near)


@dataclass(frozen=True, eq=False)
class Rate:
    """The posterior of a rate: mean, standard deviation and 95 % interval."""

    mean: float
    deviation: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class SensorEstimate:
    """Estimated error rates of a sensor.

    Arguments:
        stated: the given rates; None for those that are estimated.
        sensor: given and estimated rates.
        missed, false: posteriors of the rates.
        delays: posterior probability of every delay.
        impacts: number of impacts behind the estimate.
    """

    stated: TouchSensor
    sensor: TouchSensor
    missed: Rate
    false: Rate
    delays: dict[int, float]
    impacts: int


def count_readings(
    run: Run, found: Impacts, scene: Scene, counted: Bool[np.ndarray, "samples"], delays: Sequence[int]
) -> Counts:
    """The counts of one run.

    Arguments:
        found: its impacts.
        counted: samples to use; while a body rests on a surface, readings are neither right nor false.
        delays: within which readings near impacts are counted.
    """
    assert run.touch is not None
    bodies = np.flatnonzero(scene.geometry.incidence.any(axis=0))
    none = {delay: np.zeros(2 * delay + 2, int) for delay in delays}
    total = Counts(0, 0, none)
    for body in bodies:
        reading, use = run.touch[1:, body], counted[1:]
        hit = found.chosen[:, scene.geometry.incidence[:, body]].any(axis=1) & use
        near = {
            delay: np.bincount(readings_near(reading, delay)[hit], minlength=2 * delay + 2)
            for delay in delays
        }
        total = total + Counts(int(use.sum()), int((reading & use).sum()), near)
    return total


def estimate_rates(stated: TouchSensor, counts: Sequence[Counts]) -> SensorEstimate:
    """The posterior of the rates that are not given.

    Arguments:
        stated: the given rates.
        counts: of every run, for every possible delay.
    """
    total = reduce(Counts.__add__, counts)
    spans = [(-WIDEST, WIDEST)] * 2
    axes, weight = _grid(stated, total, spans)
    for _ in range(PASSES):
        spans = [
            _refined(span, axis, marginal)
            for span, axis, marginal in zip(spans, axes, _marginals(weight), strict=True)
        ]
        axes, weight = _grid(stated, total, spans)
    missed, false = (_rate(axis, marginal) for axis, marginal in zip(axes, _marginals(weight), strict=True))
    delays = dict(zip(total.near, weight.sum(axis=(1, 2)).tolist(), strict=True))
    sensor = TouchSensor(
        missed.mean if stated.missed is None else stated.missed,
        false.mean if stated.false is None else stated.false,
        max(delays, key=lambda delay: delays[delay]),
    )
    return SensorEstimate(stated, sensor, missed, false, delays, total.impacts)


def _grid(
    stated: TouchSensor, counts: Counts, spans: Sequence[tuple[float, float]]
) -> tuple[list[Float[np.ndarray, "_"]], Float[np.ndarray, "delays missed false"]]:
    """Grid of log-odds of each rate, a single point if it is given, and the posterior on the grid."""
    axes = []
    for rate, span in zip((stated.missed, stated.false), spans, strict=True):
        given = 0.0 if rate is None else min(max(rate, 1e-9), 1 - 1e-9)
        axes.append(np.linspace(*span, POINTS) if rate is None else np.log([given / (1 - given)]))
    return axes, _posterior(counts, *axes, unknown=(stated.missed is None, stated.false is None))


def _marginals(weight: Float[np.ndarray, "delays missed false"]) -> tuple[np.ndarray, np.ndarray]:
    return weight.sum(axis=(0, 2)), weight.sum(axis=(0, 1))


def _refined(
    span: tuple[float, float], axis: Float[np.ndarray, "points"], marginal: Float[np.ndarray, "points"]
) -> tuple[float, float]:
    """The interval of eight standard deviations of the posterior about its mean."""
    centre = float(marginal @ axis)
    width = 8 * float(np.sqrt(marginal @ (axis - centre) ** 2))
    # A posterior narrower than the grid spacing looks like a point; the next grid then resolves that spacing.
    width = max(width, 2 * (span[1] - span[0]) / (POINTS - 1))
    return centre - width, centre + width


def _posterior(
    counts: Counts,
    missed_axis: Float[np.ndarray, "missed"],
    false_axis: Float[np.ndarray, "false"],
    *,
    unknown: tuple[bool, bool],
) -> Float[np.ndarray, "delays missed false"]:
    """Posterior probabilities on a grid of the log-odds of both rates."""
    # log p and log(1 − p); Jeffreys' density p^−½ (1 − p)^−½ times dp = p (1 − p) d(log-odds).
    logs = [(-np.logaddexp(0, -axis), -np.logaddexp(0, axis)) for axis in (missed_axis, false_axis)]
    priors = [0.5 * (yes + no) if free else 0 * yes for (yes, no), free in zip(logs, unknown, strict=True)]
    missed = np.exp(logs[0][0])[:, None]
    (log_false, log_true), false = logs[1], np.exp(logs[1][0])[None, :]
    readings = counts.readings * log_false + (counts.samples - counts.readings) * log_true
    common = priors[0][:, None] + (priors[1] + readings)[None, :]
    layers = []
    for delay, numbers in counts.near.items():
        ratios = [
            number * np.log(likelihood_ratio(c, missed, false, delay)) for c, number in enumerate(numbers)
        ]
        layers.append(common + sum(ratios))
    log_weight = np.stack(layers)
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


def _rate(axis: Float[np.ndarray, "points"], marginal: Float[np.ndarray, "points"]) -> Rate:
    below = np.cumsum(marginal) - 0.5 * marginal
    ends = np.interp([0.025, 0.975], below, axis)
    rate, (low, high) = (1 / (1 + np.exp(-log_odds)) for log_odds in (axis, ends))
    mean = float(marginal @ rate)
    return Rate(mean, float(np.sqrt(marginal @ (rate - mean) ** 2)), float(low), float(high))


def sensor_parameters(estimate: SensorEstimate) -> tuple[Parameter, ...]:
    """The estimated rates of a sensor as parameters of the report."""
    found = []
    names = ("fraction of impacts that the touch sensor missed", "fraction of samples with a false touch")
    for name, stated, rate in (
        (names[0], estimate.stated.missed, estimate.missed),
        (names[1], estimate.stated.false, estimate.false),
    ):
        if stated is not None:
            continue
        if name == names[0] and not estimate.impacts:
            found.append(undetermined(name, "no impact was seen"))
            continue
        interval = f"between {rate.low:.2g} and {rate.high:.2g} (95 %)"
        words = f"{name}: {rate.mean:.2g} ± {rate.deviation:.1g}, {interval}."
        found.append(Parameter(name, rate.mean, rate.deviation, rate.low, rate.high, words))
    if estimate.stated.delay is None:
        found.append(_delay_parameter(estimate))
    return tuple(found)


def _delay_parameter(estimate: SensorEstimate) -> Parameter:
    name, delay = "greatest shift of a touch reading, in samples", estimate.sensor.delay
    assert delay is not None
    probability = estimate.delays[delay]
    if probability < 0.5:
        return undetermined(name, f"no delay up to {max(estimate.delays)} has a probability above ½")
    error = float(np.sqrt(sum(p * (d - delay) ** 2 for d, p in estimate.delays.items())))
    likely = [d for d, p in estimate.delays.items() if p > 0.025]
    words = f"{name}: {delay} (probability {probability:.2g})."
    return Parameter(name, float(delay), error, float(min(likely)), float(max(likely)), words)
