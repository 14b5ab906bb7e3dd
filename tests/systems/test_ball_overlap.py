"""Balls in a box never overlap, however many impacts a step has; what cannot be computed is refused."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest

from carom.errors import InputError
from carom.systems import BallBox, Billiards
from carom.types import State

SIZES = 6 * (2,) + 8 * (6,) + 5 * (16,) + (40,)
"""Numbers of balls, as often as they are tried: each is compiled anew, and a heap of many takes seconds."""
TIMES = np.arange(7.0)
"""Samples, in steps; one number of them, so that scenes share programs."""


@dataclass(frozen=True)
class RandomScene:
    """Balls of any masses and radii, from elastic to plastic, smooth or rough, on a table or in a field."""

    system: BallBox | Billiards
    start: State
    step_size: float


def random_scene(number: int, sizes: tuple[int, ...] = SIZES) -> RandomScene:
    random = np.random.default_rng(number)
    bodies, size = int(random.choice(sizes)), (1.0, float(random.uniform(0.5, 2)))
    radii = random.uniform(0.6, 1.4, bodies)
    radii *= np.sqrt(random.uniform(0.02, 0.3) * size[1] / np.pi / np.sum(radii**2))
    options = {
        "size": size,
        "radii": tuple(radii.tolist()),
        "ball_masses": tuple(random.uniform(0.2, 5, bodies).tolist()),
        # The ends of the range are cases of their own.
        "restitution": float(random.choice([0.0, 1.0, *random.uniform(size=2)])),
        "friction": float(random.choice([0.0, random.uniform()])),
    }
    if random.integers(2):
        system = BallBox(gravity=float(random.uniform(1, 10)), **options)
    else:
        system = Billiards(**options)
    start = system.random_start(seed=number, speed=float(random.uniform(0, 2)))
    return RandomScene(system, start, float(np.exp(random.uniform(np.log(0.02), np.log(2)))))


def overlap(system: BallBox | Billiards, position: np.ndarray) -> float:
    """The deepest overlap of balls and walls over all samples, relative to the box."""
    position, radii = np.asarray(position), np.asarray(system.radii)
    distance = np.linalg.norm(position[:, :, None] - position[:, None], axis=-1)
    apart = distance - radii[:, None] - radii + np.where(np.eye(len(radii)), np.inf, 0)
    walls = np.minimum(position, np.asarray(system.size) - position) - radii[:, None]
    return max(0.0, -min(apart.min(), walls.min())) / max(system.size)


def worst_and_refused(numbers, sizes=SIZES) -> tuple[float, int]:
    """The deepest overlap in random scenes, and how many were refused."""
    worst, refused = 0.0, 0
    for number in numbers:
        scene = random_scene(number, sizes)
        try:
            motion = scene.system.exact(scene.start, scene.step_size * TIMES)
        except InputError:
            refused += 1
        else:
            worst = max(worst, overlap(scene.system, motion.position))
    return worst, refused


def test_random_scenes_do_not_overlap():
    worst, refused = worst_and_refused(range(40), sizes=(6,))
    assert worst < 1e-9
    assert refused <= 1


@pytest.mark.campaign
def test_two_thousand_random_scenes_do_not_overlap():
    worst, refused = worst_and_refused(range(2000))
    assert worst < 1e-9
    assert refused <= 20


@pytest.mark.parametrize("seed", [2, 7, 14])
def test_a_ball_that_falls_fast_does_not_pass_one_that_rests(seed):
    """Long steps without rebound: within one, a ball falls through several diameters of one on the floor."""
    box = BallBox(radii=(0.1,) * 6, restitution=0.0)
    motion = box.exact(box.random_start(seed=seed), 0.5 * TIMES)
    assert overlap(box, motion.position) < 1e-12


def test_too_many_impacts_are_refused():
    box = BallBox(radii=(0.1,) * 6, restitution=1.0)
    start = box.random_start(seed=0)
    fast = State(start.position, jnp.asarray(1e5 * start.velocity))
    with pytest.raises(InputError, match=r"Between t = 0 s and 2 s .* choose a smaller step size"):
        box.exact(fast, 2 * TIMES)
