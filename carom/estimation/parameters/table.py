"""Physical parameters with their errors, in numbers and in words."""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from carom.digits import mean_and_error, to_error
from carom.estimation.parameters.sharing import (
    contact_name,
    direction_name,
    law_name,
    law_of,
    plane_name,
    surface_map,
    surface_names,
    tilt_map,
)
from carom.estimation.parameters.unknowns import Learned, Shared
from carom.mechanics import Pair, Scene

_NORMAL = NormalDist()


@dataclass(frozen=True)
class Parameter:
    """One physical parameter.

    Arguments:
        name: what it is, such as "restitution of contact 1".
        value: the estimate; None where the data do not determine it.
        standard_error: by Laplace's approximation, start states and weights integrated out.
        low, high: a 95 % interval; one-sided at a bound such as e = 1.
        words: the same in a sentence.
    """

    name: str
    value: float | None
    standard_error: float | None
    low: float | None
    high: float | None
    words: str

    @property
    def determined(self) -> bool:
        return self.value is not None


def describe_parameters(
    scene: Scene,
    learned: Learned,
    fitted: Shared,
    spread: Shared,
    pull: Shared,
    prior_spread: Shared,
    impacts: np.ndarray,
    scatter: np.ndarray,
) -> tuple[Parameter, ...]:
    """All estimated parameters.

    Arguments:
        fitted: the estimates.
        spread: their standard errors.
        pull: the gradient of the cost at the estimate, zero unless a bound is active.
        prior_spread: standard deviations of their priors.
        impacts: number of impacts that were found at every contact.
        scatter: how widely restitutions scatter from run to run, where that was estimated.
    """
    found = []
    obeyed = law_of(scene, learned.laws)
    for number in range(len(np.unique(obeyed)) if learned.restitution != "fixed" or learned.friction else 0):
        members = np.flatnonzero(obeyed == number)
        place, seen = law_name(scene, learned.laws, members), bool(impacts[members].any())
        if learned.friction:
            found.append(
                _at_least_zero(
                    f"friction {place}",
                    *(float(part.friction[number]) for part in (fitted, spread, prior_spread)),
                    seen=seen,
                )
            )
        if learned.restitution == "constant":
            found.append(
                _bounded(
                    f"restitution {place}",
                    *(float(part.restitution[number, 0]) for part in (fitted, spread, pull)),
                    seen=seen,
                )
            )
        elif learned.restitution == "speed":
            found += [
                _free(
                    f"restitution {place}, {term}",
                    *(float(part.restitution[number, k]) for part in (fitted, spread, prior_spread)),
                    seen=seen,
                )
                for k, term in enumerate(
                    ("at 1 unit of speed", "per e-fold of speed", "curvature in log speed")
                )
            ]
    for j in range(scene.contacts):
        place = contact_name(scene, j)
        if learned.restitution_per_run:
            found.append(
                _scatter(f"restitution {place}, scatter from run to run", scatter[j], int(impacts[j]))
            )
    names = surface_names(scene, learned.surfaces) if learned.gap else []
    made = surface_map(scene, learned.surfaces)
    for k, name in enumerate(names):
        offset = scene.candidates[k].offset if learned.surfaces == "each" else 0.0
        found.append(
            _free(
                name,
                *(float(part.shift[k]) for part in (fitted, spread, prior_spread)),
                seen=bool(impacts[made[:, k] > 0].any()),
                offset=offset,
            )
        )
    if learned.normals:
        tilts = tilt_map(scene)
        each = scene.dimension - 1
        for k, tilt in enumerate(tilts):
            along = tilt[np.abs(tilt).any(axis=1)][0]
            found.append(
                _free(
                    f"tilt of {plane_name(scene, k // each)} towards {direction_name(along)}",
                    *(float(part.tilt[k]) for part in (fitted, spread, prior_spread)),
                    seen=bool(impacts[np.abs(tilt).any(axis=1)].any()),
                )
            )
    for k in range(1, scene.bodies if learned.masses else 1):
        logarithm, error = float(fitted.log_mass[k - 1]), float(spread.log_mass[k - 1])
        ratio = scene.masses[k] / scene.masses[0] * np.exp(logarithm)
        # Only impacts between bodies, or a joint potential, tell masses apart.
        met = any(impacts[j] and k in c.bodies for j, c in enumerate(scene.candidates) if isinstance(c, Pair))
        found.append(
            _free(
                f"mass of body {k + 1} over that of body 1",
                float(ratio),
                float(ratio * error),
                float(ratio * prior_spread.log_mass[k - 1]),
                seen=met,
            )
        )
    for k in range(scene.bodies if learned.damping else 0):
        found.append(
            _free(
                f"damping rate of body {k + 1}",
                *(float(part.damping[k]) for part in (fitted, spread, prior_spread)),
                seen=True,
            )
        )
    return tuple(found)


def undetermined(name: str, reason: str) -> Parameter:
    """A parameter that the data leave open, and why."""
    return Parameter(name, None, None, None, None, f"{name}: not determined by these data ({reason}).")


def _free(
    name: str, value: float, error: float, prior: float, *, seen: bool, offset: float = 0.0
) -> Parameter:
    if not seen:
        return undetermined(name, "no such impact was seen")
    if not np.isfinite(error) or error > 0.5 * prior:
        return undetermined(name, "its error is as large as what was known before")
    value = value + offset
    low, high = value - 1.96 * error, value + 1.96 * error
    return Parameter(name, value, error, low, high, f"{name}: {mean_and_error(value, error)}.")


def _at_least_zero(name: str, value: float, error: float, prior: float, *, seen: bool) -> Parameter:
    """A friction: as `_free`, but the interval ends at 0 where none explains the data as well."""
    found = _free(name, value, error, prior, seen=seen)
    if found.low is None or found.low > 0:
        return found
    high = value + 1.645 * error
    most = f"{to_error(value, error)}, at most {to_error(high, error)} (95 %)"
    return Parameter(name, value, error, 0.0, high, f"{name}: {most}.")


def _scatter(name: str, value: float, count: int) -> Parameter:
    """The standard deviation of what single impacts say; its error is that of a normal sample's."""
    if count < 3:
        return undetermined(name, "it takes three impacts")
    error = float(value / np.sqrt(2 * (count - 1)))
    low, high = max(0.0, value - 1.96 * error), value + 1.96 * error
    return Parameter(name, float(value), error, low, high, f"{name}: {mean_and_error(value, error)}.")


def _bounded(name: str, value: float, error: float, pull: float, *, seen: bool) -> Parameter:
    """A restitution: the normal distribution of the fit, cut off at 0 and 1."""
    if not seen:
        return undetermined(name, "no such impact was seen")
    if not np.isfinite(error) or error > 0.3:
        return undetermined(name, "its error is as large as its range")
    # On a bound the cost still slopes; where it would have led is the centre of the distribution that is cut.
    centre = value - pull * error**2 if value in (0.0, 1.0) else value
    below, above = (_NORMAL.cdf((bound - centre) / error) for bound in (0.0, 1.0))

    def quantile(share: float) -> float:
        level = min(max(below + share * (above - below), 1e-12), 1 - 1e-12)
        return float(np.clip(centre + error * _NORMAL.inv_cdf(level), 0.0, 1.0))

    if centre + 1.96 * error > 1:
        low, high = quantile(0.05), 1.0
        words = f"{name}: {to_error(value, error)}, at least {to_error(low, error)} (95 %)."
    elif centre - 1.96 * error < 0:
        low, high = 0.0, quantile(0.95)
        words = f"{name}: {to_error(value, error)}, at most {to_error(high, error)} (95 %)."
    else:
        low, high = quantile(0.025), quantile(0.975)
        words = f"{name}: {mean_and_error(value, error)}."
    return Parameter(name, value, error, low, high, words)
