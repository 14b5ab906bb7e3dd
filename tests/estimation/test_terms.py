"""What to learn is chosen by what the motion shows, in words that the settings accept."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import carom
from carom.data import Camera, Recording, Run, film_motions
from carom.errors import SettingsError
from carom.estimation.terms import choose_terms
from carom.mechanics import Pair, Scene, Wall
from carom.systems import Billiards, BouncingBall, Laboratory, NewtonsCradle
from carom.types import State

AUTO = carom.Settings(learn=("auto",))
QUICK = {"stepper": "constraint_exact", "horizons": ()}
"""Fits by one scheme and in one stage: fewer programs to compile."""


def filmed(system, starts, *, frames=180, rate=120, noise=5e-4) -> Recording:
    motions = [system.motion(start, np.arange(frames) / rate)[0] for start in starts]
    exact = Recording(tuple(Run(m.time, m.position, m.velocity) for m in motions), 1 / rate, system.scene())
    return film_motions(exact, Camera(frame_rate=rate, noise=noise), seed=0).recording


def drops(ball) -> Recording:
    starts = [State(jnp.full((1, 1), height), jnp.zeros((1, 1))) for height in np.linspace(0.3, 2.0, 8)]
    return filmed(ball, starts)


@pytest.fixture(scope="module")
def ball() -> Recording:
    return drops(Laboratory(BouncingBall(restitution=0.8)))


@pytest.fixture(scope="module")
def fit(ball):
    return carom.fit(ball, settings=replace(AUTO, **QUICK))


def test_a_ball_that_falls_needs_gravity_and_no_potential(fit):
    assert set(fit.settings.learn) == {"restitution", "scatter", "surfaces", "gravity"}
    assert fit.settings.potential == "none"


def test_what_is_named_beside_auto_is_kept(ball):
    named = carom.Settings(learn=("auto", "restitution-speed", "surfaces-per-run"), potential="joint")
    chosen = choose_terms(ball, named)
    assert set(chosen.learn) == {"restitution-speed", "surfaces-per-run", "scatter"}
    assert chosen.potential == "joint"
    with pytest.raises(SettingsError, match="exclude each other"):
        carom.Settings(learn=("restitution-linear", "restitution-speed"))


def test_restitution_that_falls_with_speed_is_seen():
    falling = drops(Laboratory(BouncingBall(restitution=0.9), restitution_loss=0.05))
    assert {"restitution-linear", "restitution-speed"} & {*choose_terms(falling, AUTO).learn}


def test_a_bent_force_needs_a_potential():
    cradle = Laboratory(NewtonsCradle(restitution=0.9))
    starts = [State(jnp.array([[angle], [-0.2]]), jnp.zeros((2, 1))) for angle in (0.4, 0.6, 0.8)]
    chosen = choose_terms(filmed(cradle, starts, frames=300, rate=100, noise=5e-3), AUTO)
    assert chosen.potential == "shared"
    assert "gravity" not in chosen.learn


def test_friction_of_a_table_is_seen():
    table = Billiards(size=(1.0, 0.6), radii=(0.04,), restitution=0.85, friction=0.2)
    starts = [table.random_start(seed) for seed in range(6)]
    starts = [State(start.position, jnp.array([[0.7, 0.5 + 0.1 * k]])) for k, start in enumerate(starts)]
    assert "friction" in choose_terms(filmed(Laboratory(table), starts, frames=300), AUTO).learn


@pytest.mark.parametrize(("mass", "wrong"), [(1.0, False), (1.2, True)])
def test_masses_that_do_not_conserve_momentum_are_learned(mass, wrong):
    track = Billiards(size=(40.0,), radii=(0.06, 0.06), ball_masses=(1.0, mass), restitution=0.8)
    starts = [
        State(jnp.array([[20.0], [19.6]]), jnp.array([[0.0], [speed]])) for speed in np.linspace(0.4, 0.9, 8)
    ]
    recording = filmed(Laboratory(track), starts)
    stated = replace(recording.scene, candidates=(Pair(0, 1, 0.12),), masses=(1.0, 1.0))
    assert ("masses" in choose_terms(replace(recording, scene=stated), AUTO).learn) is wrong


def test_a_push_in_some_runs_is_no_gravity():
    """The accelerations of flights are compared by their scatter from run to run."""
    time, generator = np.arange(120) / 120, np.random.default_rng(0)
    runs = []
    for push in generator.normal(0, 0.05, 12):
        wall = np.where(time < 0.5, 0.5 - time, 0.8 * (time - 0.5)) + 0.5 * push * time**2
        runs.append(Run(time, wall[:, None, None] + 1e-5 * generator.standard_normal((120, 1, 1))))
    recording = Recording(tuple(runs), 1 / 120, Scene(1, 1, (Wall(0, (1.0,)),)))
    assert "gravity" not in choose_terms(recording, AUTO).learn


def test_bodies_that_are_slowed_after_impacts_alone_have_no_drag():
    """As riders are whose soft bumpers still touch; drag would act before impacts too."""
    time, generator = np.arange(120) / 120, np.random.default_rng(0)
    runs = []
    for speed in generator.uniform(0.5, 2.0, 12):
        after = np.maximum(time - 0.5, 0)
        away = np.where(time < 0.5, speed * (0.5 - time), 0.8 * speed * after - 0.1 * (speed * after) ** 2)
        runs.append(Run(time, away[:, None, None] + 1e-5 * generator.standard_normal((120, 1, 1))))
    recording = Recording(tuple(runs), 1 / 120, Scene(1, 1, (Wall(0, (1.0,)),)))
    assert "drag" not in choose_terms(recording, replace(AUTO, potential="none")).learn


def test_markers_that_are_glued_on_anew_are_seen():
    """Two riders whose distance at contact differs from run to run by a millimetre or two."""
    track = Billiards(size=(40.0,), radii=(0.06, 0.06), restitution=0.8)
    starts = [
        State(jnp.array([[20.0], [19.6]]), jnp.array([[0.0], [speed]])) for speed in np.linspace(0.4, 0.9, 8)
    ]
    same = filmed(Laboratory(track), starts, noise=5e-5)
    shifts = np.random.default_rng(0).normal(0, 2e-3, len(same.runs))
    runs = tuple(
        Run(run.time, run.position + shift * np.array([[[1.0], [0.0]]]), None)
        for run, shift in zip(same.runs, shifts, strict=True)
    )
    assert "surfaces" in choose_terms(same, AUTO).learn
    assert "surfaces-per-run" in choose_terms(replace(same, runs=runs), AUTO).learn


def test_a_fit_learns_what_was_chosen(fit):
    found = {parameter.key: parameter for parameter in fit.parameters}
    for key, truth in (("gravity", -9.81), ("restitution", 0.8), ("surfaces", 0.0)):
        assert abs(found[key].value - truth) < 4 * found[key].standard_error


def _tilted_drops(tilt: float) -> Recording:
    """A ball that bounces along a floor from both sides, filmed by a camera that stands askew."""
    box = carom.systems.BallBox(size=(100.0, 20.0), radii=(0.02,), restitution=0.8, friction=0.0)
    starts = [
        State(jnp.array([[50.0 + x, 0.6]]), jnp.array([[speed, 0.0]]))
        for x, speed in ((-0.6, 0.5), (-0.2, 0.4), (0.1, -0.5), (0.5, -0.6), (0.0, 0.3), (0.3, -0.2))
    ]
    motions = [box.exact(start, np.arange(150) / 100) for start in starts]
    floor = replace(
        box.scene(), candidates=tuple(c for c in box.scene().candidates if c.normal == (0.0, 1.0))
    )
    runs = tuple(Run(m.time, np.asarray(m.position, float), np.asarray(m.velocity, float)) for m in motions)
    exact = Recording(runs, 0.01, floor)
    return film_motions(exact, Camera(frame_rate=100, noise=5e-4, tilt=tilt), seed=0).recording


def test_a_camera_that_stands_askew_is_seen():
    """The floor then slopes in its pictures; its direction and its height in the middle are found."""
    recording = _tilted_drops(1.0)
    chosen = choose_terms(recording, AUTO)
    assert "normals" in chosen.learn
    assert "normals" not in choose_terms(_tilted_drops(0.0), AUTO).learn
    fit = carom.fit(recording, settings=replace(chosen, **QUICK))
    found = {parameter.key: parameter for parameter in fit.parameters}
    slope, surface = found["normals"], found["surfaces"]
    assert abs(slope.value - -np.tan(np.radians(1.0))) < 4 * slope.standard_error < 0.004
    # The stated height is right in the middle, about which the pictures are turned.
    assert abs(surface.value - 0.02) < 0.005 + 4 * surface.standard_error


def test_contacts_that_last_are_told_from_scatter_of_the_surface():
    """Contacts of 4 ms, half a frame, in positions with noise; and none where impacts are instantaneous."""
    lasting = drops(Laboratory(BouncingBall(restitution=0.8), contact_time=0.004))
    chosen = choose_terms(lasting, AUTO)
    assert "duration" in chosen.learn
    found = {one.key: one for one in carom.fit(lasting, settings=replace(chosen, **QUICK)).parameters}
    duration, surface = found["duration"], found["surfaces"]
    assert abs(duration.value - 0.004) < 3 * duration.standard_error
    assert duration.standard_error < 2e-4
    assert abs(surface.value) < 3 * surface.standard_error
    assert (
        "duration"
        not in choose_terms(drops(Laboratory(BouncingBall(restitution=0.8), scatter=0.03)), AUTO).learn
    )
