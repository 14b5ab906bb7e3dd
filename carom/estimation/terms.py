"""The choice of what to learn, by the textbook's regression on runs left out.

Regression tries the terms that the data may need, in milliseconds each, and keeps those by which runs that it
has not seen are predicted better. The estimator then learns the same terms, all at once and with the errors
of everything else taken into account.
"""

from collections.abc import Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from scipy.optimize import nnls

from carom.contact_laws import (
    AbstractRestitution,
    AbstractRestitutionBySpeed,
    ConstantRestitution,
    LinearRestitution,
    SpeedDependentRestitution,
    SplineRestitution,
)
from carom.data import Recording
from carom.errors import InputError
from carom.estimation.detection.velocity_jumps import measured_noise
from carom.estimation.parameters.free import PER_IMPACT
from carom.estimation.settings import AUTO, Settings
from carom.mechanics import Pair, Wall
from carom.textbook import Contacts, TextbookModel, fit_textbook

LAWS: tuple[type[AbstractRestitution], ...] = (
    ConstantRestitution,
    LinearRestitution,
    SpeedDependentRestitution,
    SplineRestitution,
)
CURVED, NOTABLE = 1.2, 0.005
"""A learned potential is proposed if flights of constant acceleration miss the positions by this multiple of
the noise and by this fraction of the range of motion."""
SIGNIFICANT = 3.0
"""Tangential velocity changes, and surfaces that differ from run to run, in standard errors."""
ENOUGH = 4
"""Runs with impacts from which on it can be told whether surfaces differ."""
SCATTERED = 8
"""Impacts from which on their scatter can be told from the noise."""
LEAST_DIFFERENCE = 0.01
"""Difference of e between contacts that matters, beyond its error."""
LEAST_SLOPE = 1e-3
"""Slope of a wall relative to the stated one that matters."""
LEAST_IMBALANCE = 0.01
"""Momentum gained by pairs, over the impulse, that matters."""
LEAST_DURATION = 0.4
"""Duration of a contact that matters, in steps."""
OTHER_BODIES = 0.05
"""Scatter of the distance at contact, relative to it, from which on bodies of other sizes meet."""
LEAST_SHIFT = 1e-3
"""Scatter of a surface from run to run that matters, relative to the range of motion."""


def choose_terms(recording: Recording, settings: Settings) -> Settings:
    """The settings with the terms that a recording needs in place of "auto".

    Terms that are named beside "auto" are kept. A potential is learned only where constant acceleration does
    not explain the motion between impacts.
    """
    named = [name for name in settings.learn if name != AUTO]
    try:
        model = fit_textbook(recording, mask=settings.mask or 0)
    except (InputError, np.linalg.LinAlgError):  # too little moves freely: the potential remains
        return _with(settings, named, ["restitution", "surfaces"], recording)
    named_potential = settings.potential != "shared"
    curved = settings.potential != "none" if named_potential else _curved(model, recording)
    # A law regressed on parabolas that do not fit means nothing: the simplest one, then.
    terms = ["restitution" if curved else _law(model)]
    if len(model.hits.run) >= SCATTERED:
        terms.append(PER_IMPACT)
    if _rough(model):
        terms.append("friction")
    if _unbalanced(model):
        terms.append("masses")
    tilted, duration, error = _places(model)
    if tilted:
        terms.append("normals")
    lasting = duration > max(LEAST_DURATION * recording.step_size, SIGNIFICANT * error)
    if _differ_by_run(model, recording, lasting=lasting):
        # Where paths meet then tells where surfaces are, not how long contacts last.
        terms.append("surfaces-per-run")
    else:
        terms += ["duration"] * lasting + ["surfaces"]
    if settings.share == "each" and _alike(model):
        settings = replace(settings, share="kind")
    if named_potential or curved:
        return _with(settings, named, terms, recording)
    # Whatever it does to forecasts, which impacts may spoil.
    slowed = model.variant.drag or model.slowing.value > SIGNIFICANT * model.slowing.error
    terms += ["gravity"] * bool(np.any(model.acceleration)) + ["drag"] * slowed
    return replace(_with(settings, named, terms, recording), potential="none")


def _with(settings: Settings, named: Sequence[str], terms: Sequence[str], recording: Recording) -> Settings:
    """Terms of contacts need contacts, and what the user names has precedence."""
    assert recording.scene is not None
    parts = {name.split("-")[0].replace("radii", "surfaces") for name in named}
    kept = [
        name
        for name in terms
        if name.split("-")[0] not in parts and (recording.scene.contacts or name in ("gravity", "drag"))
    ]
    return replace(settings, learn=(*kept, *named))


def _curved(model: TextbookModel, recording: Recording) -> bool:
    """Whether flights are no parabolas."""
    positions = np.concatenate([run.position for run in recording.runs])
    extent = np.nanpercentile(positions, 99) - np.nanpercentile(positions, 1)
    longest = max(len(run) for run in recording.runs)
    padded = np.full((longest, len(recording.runs), recording.bodies * recording.dimension), np.nan)
    for row, run in enumerate(recording.runs):
        padded[: len(run), row] = run.position.reshape(len(run), -1)
    noise = measured_noise(padded)[0]
    return bool(model.noise > CURVED * noise and model.noise > NOTABLE * extent)


def _law(model: TextbookModel) -> str:
    """The law by which ratios of the speeds after and before impacts that are left out are predicted best.

    Not that of the best forecasts, which are those of the fastest impacts. Every term costs what Akaike's
    criterion charges for it.
    """
    kinds, costs = Contacts(model.scene).kind[model.hits.contact], {law.name: 0.0 for law in LAWS}
    for kind in np.unique(kinds):
        own = kinds == kind
        speed, ratio = model.hits.closing[own], (model.hits.leaving / model.hits.closing)[own]
        if len(ratio) < SCATTERED:
            continue
        speed = speed / np.median(speed)  # so that units make no difference, by rounding either
        designs = {law.name: _design(law, speed) for law in LAWS}
        # Ratios scatter alike at all speeds, and by the error of velocities the more the slower bodies meet.
        off = ratio - designs[LAWS[-1].name] @ np.linalg.lstsq(designs[LAWS[-1].name], ratio)[0]
        most = 5 * 1.4826 * float(np.median(np.abs(off)))
        parts = np.stack([np.ones_like(speed), speed**-2.0], axis=1)
        variance = parts @ nnls(parts, np.minimum(np.abs(off), most) ** 2)[0] + (LEAST_DIFFERENCE / 3) ** 2
        weight = variance**-0.5
        for name, design in designs.items():
            hat = (design * weight[:, None]) @ np.linalg.pinv(design * weight[:, None])
            # Each by all others; odd impacts count as 5 standard deviations.
            left = (weight * ratio - hat @ (weight * ratio)) / np.maximum(1 - np.diagonal(hat), 0.01)
            costs[name] += np.sum(np.minimum(left**2, 25)) + 2 * design.shape[1]
    return min(costs, key=lambda law: costs[law])


def _design(law: type[AbstractRestitution], speed: np.ndarray) -> np.ndarray:
    """The functions of the speed of which a law is a linear combination, (impacts, terms)."""
    if not issubclass(law, AbstractRestitutionBySpeed):
        return np.ones((len(speed), 1))
    start = law.constant(np.array([0.5])).starting_from(np.array([0.5]), [speed])
    return np.asarray(start.basis(jnp.asarray(speed, jnp.float32)), float)


def _rough(model: TextbookModel) -> bool:
    """Whether impacts change tangential velocities: by what was regressed, or in the median over impacts."""
    for name, one in model.parameters.items():
        still = 0.0 if name.startswith("friction") else 1.0
        tangential = name.startswith(("friction", "tangential"))
        if tangential and abs(one.value - still) > SIGNIFICANT * max(one.error, 1e-300):
            return True
    before, after = model.hits.slip
    square = np.sum(before**2, axis=1)
    ratio = np.sum(before * after, axis=1)[square > 0] / square[square > 0]
    if len(ratio) < ENOUGH:
        return False
    middle = float(np.median(ratio))
    error = 1.2533 * 1.4826 * float(np.median(np.abs(ratio - middle))) / np.sqrt(len(ratio))
    return bool(abs(middle - 1) > max(SIGNIFICANT * error, LEAST_DIFFERENCE))


def _unbalanced(model: TextbookModel) -> bool:
    """Whether pairs gain momentum, as they do with masses that are not theirs."""
    for contact, candidate in enumerate(model.scene.candidates):
        gained = model.hits.gained[model.hits.contact == contact]
        if isinstance(candidate, Pair) and len(gained) >= ENOUGH:
            middle = float(np.median(gained))
            error = 1.2533 * 1.4826 * float(np.median(np.abs(gained - middle))) / np.sqrt(len(gained))
            if abs(middle) > max(SIGNIFICANT * error, LEAST_IMBALANCE):
                return True
    return False


def _places(model: TextbookModel) -> tuple[bool, float, float]:
    """Whether impacts at some wall lie on a slope; how long contacts last, with a standard error.

    Gaps at the instants where the paths before and after an impact meet are regressed on the place along the
    wall and on the closing speed: it, or the camera, may stand askew, and lasting contacts are the deeper the
    faster bodies meet (`carom.mechanics.lasting_contact`).
    """
    tilted, durations, weights = False, [], []
    for contact in np.unique(model.hits.contact):
        own = model.hits.contact == contact
        if own.sum() < SCATTERED:
            continue
        wall, closing = model.scene.candidates[contact], model.hits.closing[own]
        columns = [np.ones(own.sum()), closing]
        if isinstance(wall, Wall):
            place = model.hits.place[own]
            columns += list(
                np.linalg.svd(np.array(wall.normal)[None])[2][1:] @ (place - place.mean(axis=0)).T
            )
        design, gap = np.stack(columns, axis=1), model.hits.gap[own]
        freedom = len(gap) - design.shape[1]
        if freedom < 3 or np.linalg.matrix_rank(design) < design.shape[1]:
            continue
        value = np.linalg.lstsq(design, gap)[0]
        variance = np.linalg.inv(design.T @ design) * np.sum((gap - design @ value) ** 2) / freedom
        error = np.sqrt(np.diagonal(variance))
        # Normals of walls with edges cannot be learned.
        steep = np.abs(value[2:]) > np.maximum(LEAST_SLOPE, SIGNIFICANT * error[2:])
        tilted |= bool(steep.any()) and not model.scene.geometry.edged
        e = max(float(np.median(model.hits.leaving[own] / closing)), 0.05)
        durations.append(-value[1] * (1 + e) / e)
        weights.append((error[1] * (1 + e) / e) ** -2)
    if not durations:
        return tilted, 0.0, np.inf
    return tilted, float(np.average(durations, weights=weights)), float(np.sum(weights) ** -0.5)


def _alike(model: TextbookModel) -> bool:
    """Whether all walls, and all pairs, have the same restitution up to its error."""
    ratio = model.hits.leaving / model.hits.closing
    law, kinds = model.coefficient, Contacts(model.scene).kind
    left = ratio - law(model.hits.closing, kinds[model.hits.contact])
    for contact in np.unique(model.hits.contact):
        own = left[model.hits.contact == contact]
        if len(own) < ENOUGH:
            continue
        scatter = 1.4826 * float(np.median(np.abs(own - np.median(own))))
        if abs(np.median(own)) > SIGNIFICANT * 1.2533 * scatter / np.sqrt(len(own)) + LEAST_DIFFERENCE:
            return False
    return True


def _differ_by_run(model: TextbookModel, recording: Recording, *, lasting: bool) -> bool:
    """Whether the gaps of pairs at contact scatter from run to run, as when markers are glued on anew.

    Gaps of lasting contacts depend on the closing speed. In the plane and in space the distance of two bodies
    at contact is the sum of their radii: it differs only where others take their place, by much.
    """
    assert recording.scene is not None
    pairs = [j for j, contact in enumerate(recording.scene.candidates) if isinstance(contact, Pair)]
    extent = max(float(np.nanmax(np.ptp(run.position, axis=0))) for run in recording.runs)
    for contact in pairs:
        own = model.hits.contact == contact
        runs, gaps, closing = model.hits.run[own], model.hits.gap[own], model.hits.closing[own]
        if lasting and len(gaps) > 2:
            gaps = gaps - np.polyval(np.polyfit(closing, gaps, 1), closing)
        means = np.array([np.mean(gaps[runs == run]) for run in np.unique(runs)])
        if len(means) < ENOUGH:
            continue
        scatter = 1.4826 * float(np.median(np.abs(means - np.median(means))))
        distance = float(np.median(np.linalg.norm(model.hits.place[own], axis=1)))
        other = OTHER_BODIES * distance if recording.dimension > 1 else 0.0
        if scatter > max(LEAST_SHIFT * extent, SIGNIFICANT * model.noise, other):
            return True
    return False
