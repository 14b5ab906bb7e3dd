"""Recordings that read well and make no sense: a fit says so, or fits them, and never breaks."""

from contextlib import suppress
from dataclasses import replace

import jax
import numpy as np
import pytest

import carom
from carom.errors import InputError
from carom.estimation import fit_recording
from carom.estimation.detection.scene_inference import guess_contacts
from carom.mechanics import Scene, Wall
from carom.models import CDLagrangeNetwork
from carom.training import train
from tests.hostile.odd_motions import odd_motion

BALL = Scene(1, 1, (Wall(0, (1.0,)),))


def fit(number: int) -> None:
    """Both looks at a recording: for contacts, and for everything."""
    recording = odd_motion(number, BALL)
    guess_contacts(recording)
    touch = "imperfect" if recording.has_touch and number % 2 else "inferred"
    learned = ("restitution", "surfaces")
    found = fit_recording(recording, carom.Settings(hidden=4, starts=2, touch=touch, learned=learned))
    if not found.failed:
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.model))
        assert np.isfinite(found.noise[0])


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("number", range(40))
def test_no_motion_breaks_a_fit(number):
    with suppress(InputError):
        fit(number)


def test_numbers_beyond_measure_are_refused():
    recording = carom.simulate(carom.systems.BouncingBall(), steps=40, step_size=0.02)
    run = recording.runs[0]
    huge = replace(recording, runs=(replace(run, position=run.position * 1e300),))
    model = CDLagrangeNetwork.for_recording(recording, hidden=4, key=jax.random.key(0))
    for read in (guess_contacts, fit_recording, lambda huge: train(model, huge)):
        with pytest.raises(InputError, match=r"value of 1e\+301, and nothing beyond 1e\+18 can be fitted"):
            read(huge)
