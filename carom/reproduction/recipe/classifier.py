"""The paper's contact classifier against a learned gap: which of the two times impacts right, all else equal.

Balls are dropped from random states, one bounce each, and fitted by the recipe `carom` with touch observed.
The gap is that of the fit. The classifier is trained on the states that the fit found, nearly free of noise,
and on the recorded touch. In forecasts from other starts each decides which steps touch, in one and the same
fitted model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Key

from carom.data import Recording, simulate
from carom.estimation import LatentFit, LatentSettings, fit_latent_many
from carom.evaluation import contact_score, paper_rmse
from carom.execution.tasks import Piece, Result, run_pieces, unfinished
from carom.execution.workers import Tell
from carom.integrators import consecutive, prepend
from carom.integrators import rollout as repeat
from carom.models import ImpactNetwork, forecast_many
from carom.models.base import Forecast
from carom.models.contact_signal import CandidateContact
from carom.storage.fingerprint import fingerprint
from carom.systems import BouncingBall
from carom.types import State

BOUNCES = (1, 2, 3, 5, 10, 20)
HEIGHTS = (1.0, 3.0)
"""From where balls are dropped, in metres."""
HELD_OUT = {"as recorded": HEIGHTS, "higher": (4.0, 6.0)}
"""From where they are dropped in forecasts; the second makes impacts faster than any recorded."""
HELD_OUT_STARTS, HELD_OUT_STEPS = 40, 150
HIDDEN = (100, 100)
"""The paper's contact network."""
STEPS, BATCH, RATE = 2000, 256, 1e-2
"""Of the classifier's training by Adam, whose rate falls to zero along a cosine."""
BALL = BouncingBall(radius=0.01)
Truth = Literal["exact", "scheme"]


@dataclass(frozen=True)
class Case:
    """What is recorded of every seed: some drops of a ball, with one bounce each.

    Arguments:
        truth: event-exact motion, fitted with the constraint-exact step; or that of the CD-Lagrange step,
            fitted with the same.
        bounces: number of drops.
    """

    truth: Truth
    bounces: int
    steps: int = 60
    step_size: float = 0.02
    noise: float = 0.05

    def motions(self, starts: Sequence[State], *, steps: int, noise: float = 0.0, seed: int = 0) -> Recording:
        """One run per start."""
        grid = "half" if self.truth == "exact" else "sample"
        return simulate(
            BALL, steps=steps, step_size=self.step_size, starts=starts, truth=self.truth, velocity_grid=grid,
            noise=noise, seed=seed,
        )  # fmt: skip

    def record(self, seed: int) -> Recording:
        """The recording of one seed; more bounces are those of fewer and others."""
        starts = drops(np.random.default_rng([seed, 0]), BOUNCES[-1], HEIGHTS)[: self.bounces]
        return self.motions(starts, steps=self.steps, noise=self.noise, seed=seed)

    @property
    def settings(self) -> LatentSettings:
        scheme = "constraint_exact" if self.truth == "exact" else "cd_lagrange"
        # A ball in plain gravity needs no large network, and both deciders have the same one.
        return LatentSettings(touch="observed", scheme=scheme, hidden=16, starts=2)


CASES = tuple(Case(truth, bounces) for truth in ("exact", "scheme") for bounces in BOUNCES)


def drops(generator: np.random.Generator, count: int, heights: tuple[float, float]) -> list[State]:
    """Start states at random heights and speeds; from 1 to 3 m a ball bounces just once within 1.2 s."""
    positions, speeds = generator.uniform(*heights, count), generator.uniform(-1, 1, count)
    return [State(jnp.full((1, 1), q), jnp.full((1, 1), v)) for q, v in zip(positions, speeds, strict=True)]


def run_cases(
    cases: Sequence[Case],
    seeds: Sequence[int],
    folder: Path,
    *,
    workers: int = 1,
    progress: Tell | None = None,
) -> list[Result]:
    """The scores of every case, all its seeds together; a killed run continues in its folder."""
    pieces = [_piece(case, tuple(seeds), folder) for case in cases]
    return run_pieces(pieces, workers=workers, progress=progress)


def _piece(case: Case, seeds: tuple[int, ...], folder: Path) -> Piece:
    path = folder / f"{case.truth}.bounces-{case.bounces}.json"
    training = (HIDDEN, STEPS, BATCH, RATE)
    held_out = (HELD_OUT, HELD_OUT_STARTS, HELD_OUT_STEPS)
    mark = fingerprint(case, case.settings, seeds, training, held_out)
    return Piece(path, mark, partial(_run_case, case, seeds, unfinished(path)), case.bounces + 5)


def _run_case(case: Case, seeds: tuple[int, ...], checkpoints: Path, tell: Tell) -> Result:
    recordings = [case.record(seed) for seed in seeds]
    fits = fit_latent_many(recordings, case.settings, seeds=seeds, checkpoints=checkpoints)
    tell(0.6)
    classifiers = train_classifiers(fits, recordings, seeds)
    tell(0.9)
    lines: list[dict[str, Any]] = [{"seed": seed} for seed in seeds]
    for name, heights in HELD_OUT.items():
        starts = drops(np.random.default_rng(2021), HELD_OUT_STARTS, heights)
        truth = case.motions(starts, steps=HELD_OUT_STEPS)
        together = jax.tree.map(lambda *parts: jnp.stack(parts), *starts)
        for line, fit, classifier in zip(lines, fits, classifiers, strict=True):
            by_gap = forecast_many(fit.model, together, HELD_OUT_STEPS)
            by_classifier = forecast_by_classifier(fit.model, classifier, together, HELD_OUT_STEPS)
            line[name] = {"gap": _score(by_gap, truth), "classifier": _score(by_classifier, truth)}
    return {"truth": case.truth, "bounces": case.bounces, "noise": case.noise, "rows": lines}


def train_classifiers(
    fits: Sequence[LatentFit], recordings: Sequence[Recording], seeds: Sequence[int]
) -> list[CandidateContact]:
    """The classifier of every fit, from its states and the recorded touch, by cross-entropy."""
    examples = []
    for fit, recording in zip(fits, recordings, strict=True):
        position, velocity = (
            jnp.asarray(np.concatenate([getattr(m, part)[:-1] for m in fit.motions]), jnp.float32)
            for part in ("position", "velocity")
        )
        states = jax.vmap(fit.model.enter)(State(position, velocity))
        touch = np.concatenate([run.touch[1:] for run in recording.runs if run.touch is not None])
        examples.append((states, jax.vmap(fit.model.drift)(states), jnp.asarray(touch)))
    geometry = fits[0].model.scene.geometry
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    signals = eqx.filter_vmap(lambda key: CandidateContact(geometry, hidden=HIDDEN, key=key))(keys)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *examples)
    trained = eqx.filter_jit(eqx.filter_vmap(_trained))(signals, stacked, keys)
    return [
        jax.tree.map(lambda leaf, i=i: leaf[i] if eqx.is_array(leaf) else leaf, trained)
        for i in range(len(fits))
    ]


def _trained(signal: CandidateContact, examples, key: Key[Array, ""]) -> CandidateContact:
    """One classifier after minibatch Adam."""
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, STEPS))
    parameters, fixed = eqx.partition(signal, eqx.is_inexact_array)
    count = len(examples[2])

    def loss(parameters, states, arrivals, touch):
        network = eqx.combine(parameters, fixed)
        return jnp.mean(jax.vmap(network.cross_entropy)(jax.vmap(network.logits)(states, arrivals), touch))

    def step(carry, key):
        parameters, optimiser_state = carry
        index = jax.random.randint(key, (min(BATCH, count),), 0, count)
        gradient = jax.grad(loss)(parameters, *jax.tree.map(lambda x: x[index], examples))
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = optimiser.update(gradient, optimiser_state)
        return (eqx.apply_updates(parameters, updates), optimiser_state), None

    carry = (parameters, optimiser.init(parameters))
    (parameters, _), _ = jax.lax.scan(step, carry, jax.random.split(key, STEPS))
    return eqx.combine(parameters, fixed)


@eqx.filter_jit
def forecast_by_classifier(
    model: ImpactNetwork, signal: CandidateContact, starts: State, steps: int
) -> Forecast:
    """As `forecast_many`, but a step touches where the classifier says so."""

    def one(start: State) -> Forecast:
        def step(state: State, _) -> tuple[State, Bool[Array, "contacts"]]:
            contact = signal.logits(state, model.drift(state)) > 0
            return model.step(state, contact), contact

        states, contact = repeat(step, model.enter(start), steps=steps)
        after = jax.vmap(model.leave)(*consecutive(states), contact)
        motion = prepend(start, after)
        touched = jnp.concatenate([jnp.zeros_like(contact[:1]), contact]).astype(motion.position.dtype)
        return Forecast(motion.position, motion.velocity, touched)

    return jax.vmap(one)(starts)


def _score(predicted: Forecast, truth: Recording) -> dict[str, Any]:
    """Impacts of all starts together, starts with every impact on time, and the median error."""
    counts = {"impacts": 0, "mistimed": 0, "missed": 0, "spurious": 0, "on_time": 0}
    errors = []
    for index, run in enumerate(truth.runs):
        assert run.touch is not None
        one = jax.tree.map(lambda x, i=index: x[i], predicted)
        score = contact_score(np.asarray(one.contact[:, 0]) > 0.5, run.touch[:, 0])
        wrong = score.mistimed + score.missed + score.spurious
        found = (score.true_events, score.mistimed, score.missed, score.spurious, int(wrong == 0))
        counts = {name: count + more for (name, count), more in zip(counts.items(), found, strict=True)}
        errors.append(paper_rmse(one, run))
    return {**counts, "starts": len(errors), "median_error": float(np.median(errors))}
