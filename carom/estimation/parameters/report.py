"""Estimated parameters with errors and intervals, as numbers and as sentences."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from carom.digits import mean_and_error, to_error
from carom.estimation.parameters.free import FreeParameters
from carom.mechanics import ParameterSpec, at

UNDETERMINED = 0.5
"""Ratio of the standard error to the prior's standard deviation above which the data are uninformative."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Parameter:
    """One estimated parameter.

    Arguments:
        name: such as "restitution of body 1 at the wall".
        value: the estimate; None if the data do not determine it.
        standard_error: by Laplace's approximation, start states and weights marginalised.
        low, high: a 95 % interval; one-sided at a bound such as e = 1.
        words: the same as a sentence.
        unit: in terms of length and time.
        key: the name of the parameter in `learn`.
    """

    name: str
    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    words: str
    unit: str = ""
    key: str = ""

    @property
    def determined(self) -> bool:
        return self.value is not None


def report_parameters(
    free: FreeParameters,
    values: Float[np.ndarray, "shared"],
    errors: Float[np.ndarray, "shared"],
    gradient: Float[np.ndarray, "shared"],
    prior_errors: Float[np.ndarray, "shared"],
    impacts: np.ndarray,
    scatter: np.ndarray,
) -> tuple[Parameter, ...]:
    """All estimated parameters except the weights of networks.

    Arguments:
        values: the estimates.
        errors: their standard errors.
        gradient: of the cost at the estimate, zero unless a bound is active.
        prior_errors: standard deviations of their priors.
        impacts: number of detected impacts of every contact.
        scatter: standard deviations of pooled parameters between impacts, then between runs.
    """
    found = []
    scene = free.template.scene
    for (block, rows), spec, sharing in zip(
        free.layout.shared_slices(), free.specs, free.sharings, strict=True
    ):
        if spec.network:
            continue
        stated = np.ravel(np.asarray(at(block.path)(free.template)[0], float))
        for number, row in enumerate(range(rows.start, rows.stop)):
            contacts = sharing.contacts[number]
            seen = not contacts or any(j >= 0 and impacts[j] > 0 for j in contacts)
            numbers = (float(part[row]) for part in (values, errors, prior_errors, gradient))
            ratio = float(np.exp(stated[number + 1] - stated[0])) if spec.logarithm else None
            found.append(_estimate(spec, sharing.names[number], *numbers, seen=seen, ratio=ratio))
    kinds = len(free.layout.impacts)
    of_runs = scatter[kinds:]
    for spec, value in zip(free.local_specs[:kinds], scatter[:kinds], strict=True):
        name = f"{spec.name}, scatter from impact to impact"
        found.append(_scatter(spec, name, float(value), int(impacts.sum())))
    for spec, block in zip(free.local_specs, free.layout.local, strict=True):
        if spec.pooled and spec.axis != "impact":
            for contact in range(block.count):
                name = f"{spec.name} {scene.contact_name(contact)}, scatter from run to run"
                found.append(_scatter(spec, name, float(of_runs[contact]), int(impacts[contact])))
    return tuple(sorted(found, key=lambda p: _ORDER.get(p.key.split("-")[0], len(_ORDER))))


_ORDER = {key: rank for rank, key in enumerate(("friction", "restitution", "surfaces", "normals", "masses"))}
"""The parameters that most users look for come first; the others follow in the order of the parts."""


def undetermined(name: str, reason: str, *, unit: str = "", key: str = "") -> Parameter:
    """A parameter that the data do not determine, with the reason."""
    words = f"{name}: not determined by these data ({reason})."
    return Parameter(name, None, None, None, None, words, unit, key)


def _estimate(
    spec: ParameterSpec,
    name: str,
    value: float,
    error: float,
    prior: float,
    gradient: float,
    *,
    seen: bool,
    ratio: float | None,
) -> Parameter:
    if not seen:
        return undetermined(name, "no such impact was seen", unit=spec.unit, key=spec.key)
    bounded = np.isfinite(spec.lower) and np.isfinite(spec.upper)
    limit = 0.3 * (spec.upper - spec.lower) if bounded else UNDETERMINED * prior
    if not np.isfinite(error) or error > limit:
        reason = "its range" if bounded else "that of its prior"
        return undetermined(name, f"its error is as large as {reason}", unit=spec.unit, key=spec.key)
    if ratio is not None:
        value = ratio * float(np.exp(value))
        error = value * error
    if bounded or value - 1.96 * error < spec.lower or value + 1.96 * error > spec.upper:
        return _truncated(spec, name, value, error, gradient)
    low, high = value - 1.96 * error, value + 1.96 * error
    words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words, spec.unit, spec.key)


def _truncated(spec: ParameterSpec, name: str, value: float, error: float, gradient: float) -> Parameter:
    """An estimate with a normal distribution truncated at its bounds."""
    # At an active bound the gradient of the cost is nonzero; the Newton step gives the unconstrained minimum,
    # which is the centre of the distribution before truncation.
    centre = value - gradient * error**2 if value in (spec.lower, spec.upper) else value
    below, above = (_NORMAL.cdf((bound - centre) / error) for bound in (spec.lower, spec.upper))

    def quantile(probability: float) -> float:
        level = min(max(below + probability * (above - below), 1e-12), 1 - 1e-12)
        return float(np.clip(centre + error * _NORMAL.inv_cdf(level), spec.lower, spec.upper))

    if centre + 1.96 * error > spec.upper:
        low, high = quantile(0.05), spec.upper
        words = f"{name}: {to_error(value, error)}, at least {to_error(low, error)} (95 %)."
    elif centre - 1.96 * error < spec.lower:
        low, high = spec.lower, quantile(0.95)
        words = f"{name}: {to_error(value, error)}, at most {to_error(high, error)} (95 %)."
    else:
        low, high = quantile(0.025), quantile(0.975)
        words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words, spec.unit, spec.key)


def _scatter(spec: ParameterSpec, name: str, value: float, count: int) -> Parameter:
    """The standard deviation between runs; its standard error is that of a normal sample."""
    if count < 3:
        return undetermined(name, "it takes three impacts", unit=spec.unit, key=spec.key)
    error = float(value / np.sqrt(2 * (count - 1)))
    low, high = max(0.0, value - 1.96 * error), value + 1.96 * error
    words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words, spec.unit, spec.key)
