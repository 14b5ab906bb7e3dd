"""The contact classifier of the paper against a learned gap, all else equal: which times impacts right."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Key

from carom.data import Recording
from carom.estimation import Fit, fit_recordings
from carom.evaluation import paper_rmse
from carom.evaluation.results import tidy_rows
from carom.execution.executor import ProgressCallback
from carom.execution.tasks import Result, Task, checkpoint_directory
from carom.integrators import consecutive, prepend
from carom.integrators import rollout as repeat
from carom.models import Mechanism, forecast_many
from carom.models.base import Forecast
from carom.models.contact_signal import CandidateContact
from carom.reproduction.recipe import configuration as config
from carom.reproduction.recipe.configuration import Case
from carom.reproduction.scores import Metrics, score_impacts, stack_states
from carom.storage.fingerprint import fingerprint
from carom.types import State


def classifier_tasks(
    seeds: Sequence[int], folder: Path, *, cases: Sequence[Case] = config.CASES
) -> list[Task]:
    """All cases, all seeds of one together."""
    tasks = []
    for case in cases:
        path = folder / f"{case.truth}.bounces-{case.bounces}.json"
        numbers = [
            value for name, value in vars(config).items() if name.startswith(("CLASSIFIER", "HEIGHTS"))
        ]
        mark = fingerprint(case, case.settings, seeds, numbers)
        arguments = case, tuple(seeds), checkpoint_directory(path)
        tasks.append(Task(_run_case, arguments, case.bounces + 5, path, mark))
    return tasks


def _run_case(case: Case, seeds: tuple[int, ...], checkpoints: Path, report: ProgressCallback) -> Result:
    recordings = [case.record(seed) for seed in seeds]
    fits = fit_recordings(recordings, case.settings, seeds=seeds, checkpoints=checkpoints)
    # Rough shares of the time.
    report(0.6)
    classifiers = train_classifiers(fits, recordings, seeds)
    report(0.9)
    known = {"experiment": "classifier", "recipe": "carom", "truth": case.truth, "touch": "observed"}
    known |= {"noise": case.noise, "bounces": case.bounces}
    rows = []
    for name, heights in config.HEIGHTS.items():
        starts = config.drops(np.random.default_rng(2021), config.CLASSIFIER_STARTS, heights)
        truth = case.motions(starts, steps=config.CLASSIFIER_STEPS)
        stacked = stack_states(starts)
        for seed, fit, classifier in zip(seeds, fits, classifiers, strict=True):
            forecasts = {
                "gap": forecast_many(fit.model, stacked, config.CLASSIFIER_STEPS),
                "classifier": forecast_by_classifier(fit.model, classifier, stacked, config.CLASSIFIER_STEPS),
            }
            for model, predicted in forecasts.items():
                keys = known | {"model": model, "seed": seed, "heights": name}
                rows += tidy_rows(keys, _metrics(predicted, truth))
    return {"rows": rows}


def train_classifiers(
    fits: Sequence[Fit], recordings: Sequence[Recording], seeds: Sequence[int]
) -> list[CandidateContact]:
    """The classifier of every fit, from its states and the recorded touch, by cross-entropy."""
    examples = []
    for fit, recording in zip(fits, recordings, strict=True):
        position, velocity = (
            jnp.asarray(np.concatenate([getattr(m, part)[:-1] for m in fit.motions]), jnp.float32)
            for part in ("position", "velocity")
        )
        # On the grid of the model, as in a forecast.
        states = jax.vmap(fit.model.enter)(State(position, velocity))
        touch = np.concatenate([run.touch[1:] for run in recording.runs if run.touch is not None])
        examples.append((states, jax.vmap(fit.model.drift)(states), jnp.asarray(touch)))
    scene = fits[0].model.scene
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32))
    make = partial(CandidateContact, scene, hidden=config.CLASSIFIER_HIDDEN)
    signals = eqx.filter_vmap(lambda key: make(key=key))(keys)
    trained = eqx.filter_jit(eqx.filter_vmap(_trained))(signals, stack_states(examples), keys)
    arrays, fixed = eqx.partition(trained, eqx.is_array)
    return [eqx.combine(jax.tree.map(lambda leaf, i=i: leaf[i], arrays), fixed) for i in range(len(fits))]


def _trained(signal: CandidateContact, examples, key: Key[Array, ""]) -> CandidateContact:
    """One classifier after minibatch Adam."""
    # Decayed, unlike the paper's: the comparison is not about when training stops.
    optimiser = optax.adam(optax.cosine_decay_schedule(config.CLASSIFIER_RATE, config.CLASSIFIER_UPDATES))
    parameters, fixed = eqx.partition(signal, eqx.is_inexact_array)
    count = len(examples[2])

    def loss(parameters, states, arrivals, touch):
        network = eqx.combine(parameters, fixed)
        return jnp.mean(jax.vmap(network.cross_entropy)(jax.vmap(network.logits)(states, arrivals), touch))

    def step(carry, key):
        parameters, optimiser_state = carry
        index = jax.random.randint(key, (min(config.CLASSIFIER_BATCH, count),), 0, count)
        gradient = jax.grad(loss)(parameters, *jax.tree.map(lambda x: x[index], examples))
        with jax.numpy_dtype_promotion("standard"):  # Adam in Optax mixes integers and floats
            updates, optimiser_state = optimiser.update(gradient, optimiser_state)
        return (eqx.apply_updates(parameters, updates), optimiser_state), None

    carry = (parameters, optimiser.init(parameters))
    (parameters, _), _ = jax.lax.scan(step, carry, jax.random.split(key, config.CLASSIFIER_UPDATES))
    return eqx.combine(parameters, fixed)


@eqx.filter_jit
def forecast_by_classifier(model: Mechanism, signal: CandidateContact, starts: State, steps: int) -> Forecast:
    """As `forecast_many`, but with contact in the steps in which the classifier predicts it."""

    def one(start: State) -> Forecast:
        def step(state: State, _) -> tuple[State, Bool[Array, "contacts"]]:
            contact = signal.logits(state, model.drift(state)) > 0
            return model.step(state, contact), contact

        states, contact = repeat(step, model.enter(start), steps=steps)
        after = jax.vmap(model.leave)(*consecutive(states), contact)
        motion = prepend(start, after)
        # No step ends at the first sample.
        touched = jnp.concatenate([jnp.zeros_like(contact[:1]), contact]).astype(motion.position.dtype)
        return Forecast(motion.position, motion.velocity, touched)

    return jax.vmap(one)(starts)


def _metrics(predicted: Forecast, truth: Recording) -> Metrics:
    """Impacts of all starts together, starts with every impact on time, and the median error."""
    total: Counter[str] = Counter()
    errors = []
    for index, run in enumerate(truth.runs):
        assert run.touch is not None
        one = jax.tree.map(lambda x, i=index: x[i], predicted)
        found = score_impacts(one, run.touch).counts
        found["on_time"] = not (found["mistimed"] or found["missed"] or found["spurious"])
        total.update(found)
        errors.append(paper_rmse(one, run))
    return {**total, "forecasts": len(errors), "held_out_median": float(np.median(errors))}
