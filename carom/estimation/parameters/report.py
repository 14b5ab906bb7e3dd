"""Estimated parameters with their errors, in numbers and in words."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from carom.digits import mean_and_error, to_error
from carom.estimation.parameters.free import FreeParameters
from carom.estimation.parameters.sharing import contact_name
from carom.mechanics import ParameterSpec, at

UNDETERMINED = 0.5
"""An error beyond this share of the prior's standard deviation: the data tell hardly anything."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Parameter:
    """One estimated parameter.

    Arguments:
        name: what it is, such as "restitution of body 1 at the wall".
        value: the estimate; None where the data do not determine it.
        standard_error: by Laplace's approximation, start states and weights integrated out.
        low, high: a 95 % interval; one-sided at a bound such as e = 1.
        words: the same in a sentence.
        unit: in terms of length and time.
        key: the name under which it is learned.
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
    parameters: FreeParameters,
    values: Float[np.ndarray, "shared"],
    errors: Float[np.ndarray, "shared"],
    gradient: Float[np.ndarray, "shared"],
    prior_errors: Float[np.ndarray, "shared"],
    impacts: np.ndarray,
    scatter: np.ndarray,
) -> tuple[Parameter, ...]:
    """All estimated parameters but the weights of networks.

    Arguments:
        values: the estimates.
        errors: their standard errors.
        gradient: of the cost at the estimate, zero unless a bound is active.
        prior_errors: standard deviations of their priors.
        impacts: number of impacts that were found at every contact.
        scatter: standard deviations from run to run of pooled parameters.
    """
    found, first = [], 0
    scene = parameters.template.scene
    for block, spec, sharing in zip(
        parameters.layout.shared, parameters.specs, parameters.sharings, strict=True
    ):
        rows = range(first, first + block.count)
        first += block.count
        if spec.network:
            continue
        stated = np.ravel(np.asarray(at(block.path)(parameters.template)[0], float))
        for number, row in enumerate(rows):
            contacts = sharing.contacts[number]
            seen = not contacts or any(j >= 0 and impacts[j] > 0 for j in contacts)
            one = (float(part[row]) for part in (values, errors, prior_errors, gradient))
            ratio = float(np.exp(stated[number + 1] - stated[0])) if spec.logarithm else None
            found.append(_estimate(spec, sharing.names[number], *one, seen=seen, ratio=ratio))
    for spec, block in zip(parameters.local_specs, parameters.layout.local, strict=True):
        if spec.pooled:
            for contact in range(block.count):
                name = f"{spec.name} {contact_name(scene, contact)}, scatter from run to run"
                found.append(_scatter(spec, name, float(scatter[contact]), int(impacts[contact])))
    return tuple(sorted(found, key=lambda p: _ORDER.get(p.key.split("-")[0], len(_ORDER))))


_ORDER = {
    key: place for place, key in enumerate(("friction", "restitution", "surfaces", "normals", "masses"))
}
"""What people look for first; the rest follows in the order of the parts."""


def undetermined(name: str, reason: str, *, unit: str = "", key: str = "") -> Parameter:
    """A parameter that the data leave open, and why."""
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
        reason = "its range" if bounded else "what was known before"
        return undetermined(name, f"its error is as large as {reason}", unit=spec.unit, key=spec.key)
    if ratio is not None:
        value = ratio * float(np.exp(value))
        error = value * error
    if bounded or value - 1.96 * error < spec.lower or value + 1.96 * error > spec.upper:
        return _cut_off(spec, name, value, error, gradient)
    low, high = value - 1.96 * error, value + 1.96 * error
    words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words, spec.unit, spec.key)


def _cut_off(spec: ParameterSpec, name: str, value: float, error: float, gradient: float) -> Parameter:
    """The normal distribution of an estimate, cut off at its bounds."""
    # On a bound the cost still slopes; where it would have led is the centre of the distribution that is cut.
    centre = value - gradient * error**2 if value in (spec.lower, spec.upper) else value
    below, above = (_NORMAL.cdf((bound - centre) / error) for bound in (spec.lower, spec.upper))

    def quantile(share: float) -> float:
        level = min(max(below + share * (above - below), 1e-12), 1 - 1e-12)
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
    """The standard deviation of what single impacts say; its error is that of a normal sample's."""
    if count < 3:
        return undetermined(name, "it takes three impacts", unit=spec.unit, key=spec.key)
    error = float(value / np.sqrt(2 * (count - 1)))
    low, high = max(0.0, value - 1.96 * error), value + 1.96 * error
    words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words, spec.unit, spec.key)
