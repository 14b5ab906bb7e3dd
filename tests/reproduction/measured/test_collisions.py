"""Collisions by regression lines and as a model predicts them, against closed forms."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from carom.contact_laws import ConstantRestitution, SpeedDependentRestitution
from carom.models import Mechanism, forecast
from carom.reproduction.measured.collisions import best_constant, measure_collision, predict_velocities
from carom.reproduction.measured.configuration import RIDERS
from carom.reproduction.measured.run import restitution_at
from carom.types import State
from tests.riders import Encounter

STEP, MASKED, SECONDS = 0.002, 15, 0.1


def flat_model(law: ConstantRestitution) -> Mechanism:
    """Free flight between impacts."""
    return Mechanism.of(RIDERS, STEP, restitution=law)


def collide(case: Encounter, *, noise: float = 0.0, seed: int = 0):
    time = np.arange(0, 0.6, STEP)
    run = case.run(time, 0.25, noise, np.random.default_rng(seed))
    collision = measure_collision(run, RIDERS, seconds=SECONDS, masked=MASKED)
    assert collision is not None
    return collision


CASES = [
    Encounter(0.2, 0.9, 0.5, drift=0.1),
    Encounter(0.7, 0.5, 1.0),
    Encounter(1.5, 0.3, 2.5, drift=-0.3, duration=0.02),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"e {case.restitution}")
def test_straight_lines(case):
    collision = collide(case, noise=1e-6)
    np.testing.assert_allclose(collision.closing_speed, case.closing_speed, rtol=1e-3)
    np.testing.assert_allclose(collision.restitution, case.restitution, rtol=1e-3)
    np.testing.assert_allclose(collision.mass_ratio, case.mass_ratio, rtol=2e-3)
    np.testing.assert_allclose(collision.instant, 0.25 + case.met, atol=1e-4)


def test_no_collision_no_lines():
    time = np.arange(0, 0.4, STEP)
    apart = Encounter(0.2, 0.5, 1.0).run(time, 5.0, 1e-5, np.random.default_rng(0))
    assert measure_collision(apart, RIDERS, seconds=SECONDS, masked=MASKED) is None


def test_a_model_with_the_true_law_predicts_what_was_measured():
    collisions = [collide(case, noise=1e-6) for case in CASES]
    ratios = np.array([case.mass_ratio for case in CASES])
    after = predict_velocities(collisions, ratios, np.array([case.restitution for case in CASES]))
    for found, collision, case in zip(after, collisions, CASES, strict=True):
        np.testing.assert_allclose(found, collision.after, atol=2e-3 * case.closing_speed)
    # Newton's law and momentum, for one e in all.
    after = predict_velocities(collisions, ratios, 0.4)
    before = np.array([c.before for c in collisions])
    np.testing.assert_allclose(after[:, 0] - after[:, 1], -0.4 * (before[:, 0] - before[:, 1]), rtol=1e-12)
    weights = np.stack([np.ones(3), ratios], axis=1)
    np.testing.assert_allclose((weights * after).sum(1), (weights * before).sum(1), atol=1e-12)


def test_a_prediction_is_the_motion_of_the_model():
    """By the constraint-exact step, in free flight to the impact and after it."""
    (collision,) = [collide(CASES[1])]
    law = ConstantRestitution(jnp.full(1, 0.6))
    model = eqx.tree_at(lambda m: m.bodies.log_mass, flat_model(law), jnp.array([0.0, np.log(0.8)]))
    start = State(jnp.array([[0.1], [0.0]]), jnp.asarray(collision.before, jnp.float32)[:, None])
    motion = forecast(model, start, 400)
    assert motion.contact.any()
    expected = predict_velocities([collision], np.array([0.8]), 0.6)
    np.testing.assert_allclose(motion.velocity[-1, :, 0], expected[0], rtol=1e-5)


def test_a_law_holds_within_the_speeds_it_was_learned_from():
    law = SpeedDependentRestitution(jnp.array([[0.7, -0.1]]), jnp.array([[0.2, 2.0]]))
    np.testing.assert_allclose(restitution_at(law, np.array([0.1, 1.0])), [0.7 - 0.1 * np.log(0.2), 0.7])


def test_the_best_constant_is_the_best():
    collisions = [collide(case, noise=1e-5) for case in CASES]
    ratios = np.array([case.mass_ratio for case in CASES])
    measured = np.array([c.after for c in collisions])

    def error(restitution):
        return np.mean((predict_velocities(collisions, ratios, restitution) - measured) ** 2)

    best = best_constant(collisions, ratios)
    assert error(best) < min(error(best - 0.02), error(best + 0.02))
    same = [collide(Encounter(u, 0.62, 1.7)) for u in (0.3, 0.9, 1.6)]
    np.testing.assert_allclose(best_constant(same, np.full(3, 1.7)), 0.62, atol=2e-3)
