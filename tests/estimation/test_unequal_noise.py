"""Runs that are recorded worse than the others count less."""

from dataclasses import replace

import numpy as np

import carom
from carom.data import Run
from carom.systems import BouncingBall, Laboratory
from tests.estimation.test_terms import QUICK, drops


def test_one_bad_run_decides_neither_noise_nor_parameters():
    """Six runs with a noise of 0.5 mm, and one of 20 mm, whose square would make that of all 8 mm."""
    recording, generator = drops(Laboratory(BouncingBall(restitution=0.8))), np.random.default_rng(0)
    settings = carom.Settings(learn=("restitution", "surfaces", "gravity"), potential="none", **QUICK)
    runs = recording.runs[:7]
    bad = Run(runs[3].time, runs[3].position + 0.02 * generator.standard_normal(runs[3].position.shape))
    fit = carom.fit(replace(recording, runs=(*runs[:3], bad, *runs[4:])), settings=settings)
    # The rounds end before the weights have converged.
    assert abs(fit.noise[0] / 5e-4 - 1) < 0.25
    assert any(message.startswith("One run counts less") for message in fit.diagnostics.messages)
    found = {one.key: one for one in fit.parameters}
    for key, true in (("restitution", 0.8), ("surfaces", 0.0), ("gravity", -9.81)):
        assert abs(found[key].value - true) < 4 * found[key].standard_error
    # As well known as without the bad run, where its noise in all seven would make errors 15 times as large.
    assert found["restitution"].standard_error < 3e-4
