"""Weights of odd impacts, laws beyond their bounds, and segments around impacts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import carom
from carom.contact_laws import LinearRestitution
from carom.estimation.detection.impacts import find_impacts
from carom.estimation.solver.iteration import ODD, WIDER, _regularity
from carom.estimation.solver.segments import around_impacts


def test_a_deviation_has_the_precision_that_bayes_expects():
    deviation = np.linspace(-8, 8, 41)
    regular, odd = (1 - ODD) * norm.pdf(deviation), ODD * norm.pdf(deviation, scale=WIDER)
    expected = (regular + odd / WIDER**2) / (regular + odd)
    np.testing.assert_allclose(_regularity(jnp.asarray(deviation)), expected, rtol=1e-4)


def test_an_estimate_beyond_the_bounds_can_come_back():
    def coefficient(term):
        return LinearRestitution(jnp.stack([term, jnp.zeros(())])[None]).coefficient(jnp.array([-2.0]))[0]

    value, slope = jax.value_and_grad(coefficient)(jnp.array(1.3))
    assert (float(value), float(slope)) == (1.0, 1.0)


def test_segments_around_impacts_have_every_sample_once_and_impacts_in_their_middle():
    recording = carom.simulate(carom.systems.BouncingBall(), steps=299, step_size=0.02, noise=0.02)
    assert recording.scene is not None
    (detected,) = find_impacts(recording.runs, recording.scene)
    random = np.random.default_rng(0)
    for _ in range(100):
        chosen, steps = np.zeros((299, 1), bool), random.choice(299, 4, replace=False)
        chosen[steps] = True
        pieces = ((0, 120), (150, 300))
        found = around_impacts([replace(detected, chosen=chosen, pieces=pieces)], 40)
        covered = np.zeros(300, int)
        for start, size in zip(found.sample, found.size, strict=True):
            assert 0 < size <= 40
            covered[start : start + size] += 1
        inside = np.r_[0:120, 150:300]
        assert (covered[inside] == 1).all()
        assert covered.sum() == len(inside)
        alone = [k for k in steps if 170 <= k < 279 and np.sum(np.abs(steps - k) < 80) == 1]
        for step in alone:
            row = np.flatnonzero((found.sample <= step) & (step < found.sample + found.size))[0]
            assert abs(found.sample[row] + 20 - (step + 1)) <= 1
