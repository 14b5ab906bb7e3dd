"""Prescribed contacts: the same step where the prescription is true, its continuation where an impact slips
out.

Problems are built backwards from the instant of impact, under constant accelerations, so that every state is
known in closed form: parabolas either side of v⁺ = v⁻ − (1 + e) u M⁻¹Gᵀ/S.
"""

from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carom.integrators import BY_GAP, EXCLUDED, PRESCRIBED, constraint_exact_step
from carom.mechanics import ContactGeometry, Masses, Pair, Wall, chain
from carom.systems import NewtonsCradle
from carom.types import State
from tests.integrators.impact_problems import GRAVITY, central_difference

H = 0.1
RADII = 0.5  # of two discs, together
seeds = st.integers(0, 2**32 - 1)


class Problem(NamedTuple):
    """State just before an impact, the row of G there, and what moves the bodies."""

    geometry: ContactGeometry
    position: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray
    masses: np.ndarray
    row: np.ndarray
    restitution: float

    def start(self, instant):
        """The state that meets the surface `instant` seconds later."""
        q, v, a = self.position, self.velocity, self.acceleration
        return q - instant * v + 0.5 * instant**2 * a, v - instant * a

    def end(self, remaining):
        """The state `remaining` seconds after the impact, or before that time if negative."""
        q, v, a = self.position, self.velocity, self.acceleration
        rate, compliance = np.sum(self.row * v), np.sum(self.row**2 / self.masses[:, None])
        v = v - (1 + self.restitution) * rate / compliance * self.row / self.masses[:, None]
        return q + remaining * v + 0.5 * remaining**2 * a, v + remaining * a


def ball(random) -> Problem:
    floor = ContactGeometry(1, 1, (Wall(0, (1.0,)),))
    velocity = random.uniform(-5, -0.5, (1, 1))
    return Problem(
        floor,
        np.zeros((1, 1)),
        velocity,
        np.full((1, 1), -GRAVITY),
        random.uniform(0.3, 3, 1),
        np.ones((1, 1)),
        random.uniform(),
    )


def cradle(random) -> Problem:
    meeting, velocity = random.normal(), random.normal(size=(2, 1))
    velocity[1] = velocity[0] + random.uniform(0.5, 3)
    return Problem(
        ContactGeometry(2, 1, chain(2)),
        np.full((2, 1), meeting),
        velocity,
        random.normal(size=(2, 1)),
        random.uniform(0.3, 3, 2),
        np.array([[1.0], [-1.0]]),
        random.uniform(),
    )


def oblique(random) -> Problem:
    normal, along = np.array([0.6, 0.8]), np.array([0.8, -0.6])
    wall = ContactGeometry(1, 2, (Wall(0, (0.6, 0.8), offset=0.3),))
    velocity = random.uniform(-5, -0.5) * normal + random.normal() * along
    return Problem(
        wall,
        (0.3 * normal + random.normal() * along)[None],
        velocity[None],
        random.normal(size=(1, 2)),
        random.uniform(0.3, 3, 1),
        normal[None],
        random.uniform(),
    )


def discs(random) -> Problem:
    angle = random.uniform(0, 2 * np.pi)
    normal, along = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    middle, drift = random.normal(size=(2, 2))
    closing = random.uniform(-3, -0.5) * normal + random.uniform(-0.3, 0.3) * along
    return Problem(
        ContactGeometry(2, 2, (Pair(0, 1, RADII),)),
        np.stack([middle + 0.5 * RADII * normal, middle - 0.5 * RADII * normal]),
        np.stack([drift + 0.5 * closing, drift - 0.5 * closing]),
        random.normal(size=(2, 2)),
        random.uniform(0.3, 3, 2),
        np.stack([normal, -normal]),
        random.uniform(),
    )


PROBLEMS = {"ball": ball, "cradle": cradle, "oblique wall": oblique, "discs": discs}


@cache
def compiled(bodies: int, dimension: int, candidates: tuple):
    """The step under constant accelerations, one program per geometry."""
    geometry = ContactGeometry(bodies, dimension, candidates)

    @jax.jit
    def step(position, velocity, acceleration, masses, restitution, modes):
        return constraint_exact_step(
            State(position, velocity),
            H,
            inertia=Masses(masses),
            force=lambda q: masses[:, None] * acceleration,
            geometry=geometry,
            restitution=jnp.full((len(geometry),), restitution),
            modes=modes,
        )

    return step


def advance(problem: Problem, position, velocity, mode):
    """One step of the problem's bodies from another state."""
    arguments, geometry = (problem.acceleration, problem.masses, problem.restitution), problem.geometry
    step = compiled(geometry.bodies, geometry.dimension, geometry.candidates)
    return step(position, velocity, *arguments, jnp.full(len(geometry), mode))


def assert_state(state, position, velocity, **tolerance):
    np.testing.assert_allclose(state.position, position, **tolerance)
    np.testing.assert_allclose(state.velocity, velocity, **tolerance)


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=25)
@given(seed=seeds, share=st.floats(0.05, 0.95))
def test_a_true_prescription_changes_nothing(name, seed, share):
    problem = PROBLEMS[name](np.random.default_rng(seed))
    start, end = problem.start(share * H), problem.end((1 - share) * H)
    assume(problem.geometry.gap(jnp.asarray(end[0]))[0] > 1e-3)  # one impact only
    free, report = advance(problem, *start, BY_GAP)
    assert report.contact.all()
    np.testing.assert_array_equal(report.instant, [0.5])
    prescribed, report = advance(problem, *start, PRESCRIBED)
    assert report.contact.all()
    assert not report.exhausted
    assert_state(prescribed, free.position, free.velocity, rtol=1e-12, atol=1e-12)
    assert_state(prescribed, *end, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(report.instant, [share], atol=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=25)
@given(seed=seeds, share=st.floats(-0.4, 1.4))
def test_an_impact_outside_its_step(name, seed, share):
    """Back in time before the step or ahead of its end, the closed form is the same."""
    problem = PROBLEMS[name](np.random.default_rng(seed))
    # The path must have met no surface in another way: it closes from the start of the step to the impact.
    assume(np.sum(problem.row * problem.start(share * H)[1]) < -0.1)
    reached, report = advance(problem, *problem.start(share * H), PRESCRIBED)
    assert_state(reached, *problem.end((1 - share) * H), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(report.instant, [share], atol=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=20)
@given(seed=seeds, share=st.floats(0.7, 1.3))
def test_neighbouring_steps_share_an_impact(name, seed, share):
    """Under constant forces it does not matter which of two steps an impact is prescribed in."""
    problem = PROBLEMS[name](np.random.default_rng(seed))
    assume(np.sum(problem.row * problem.start(share * H)[1]) < -0.1)
    ends = []
    for pair in ((PRESCRIBED, EXCLUDED), (EXCLUDED, PRESCRIBED)):
        middle, _ = advance(problem, *problem.start(share * H), pair[0])
        ends.append(advance(problem, middle.position, middle.velocity, pair[1])[0])
    assert_state(ends[0], ends[1].position, ends[1].velocity, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", PROBLEMS)
@settings(max_examples=20)
@given(seed=seeds, share=st.floats(-0.5, 1.5))
def test_excluded_contacts_let_bodies_pass(name, seed, share):
    problem = PROBLEMS[name](np.random.default_rng(seed))
    q, v = problem.start(share * H)
    a = problem.acceleration
    reached, report = advance(problem, q, v, EXCLUDED)
    assert_state(reached, q + H * v + 0.5 * H**2 * a, v + H * a, rtol=1e-13, atol=1e-13)
    assert not report.contact.any()


def test_an_excluded_floor_does_not_carry():
    """A ball at rest on the floor falls through it where the modes says so, else it stays."""
    problem = ball(np.random.default_rng(0))
    start = (np.zeros((1, 1)), np.zeros((1, 1)))
    stays, report = advance(problem, *start, BY_GAP)
    assert_state(stays, [[0]], [[0]], atol=1e-15)
    assert report.contact.all()
    falls, report = advance(problem, *start, EXCLUDED)
    assert_state(falls, [[-0.5 * GRAVITY * H**2]], [[-GRAVITY * H]], rtol=1e-14)
    assert not report.contact.any()


@jax.jit
def bent(parameters, modes):
    """A step of two unlike balls under a nonlinear force.

    The parameters are q, v, e and the distance q₁ − q₂ at which the balls meet.
    """
    q, v, restitution = parameters[:2, None], parameters[2:4, None], parameters[4]
    shift = jnp.stack([parameters[5], jnp.zeros(())])[:, None]
    state, _ = constraint_exact_step(
        State(q - shift, v),
        H,
        inertia=Masses(jnp.array([1.0, 2.5])),
        force=lambda q: -8 * jnp.sin(q + shift),
        geometry=ContactGeometry(2, 1, chain(2)),
        restitution=jnp.full((1,), restitution),
        modes=modes,
    )
    return jnp.concatenate([(state.position + shift)[:, 0], state.velocity[:, 0]])


bent_derivative = jax.jit(jax.jacfwd(bent))


def bent_difference(parameters, modes, size=1e-6):
    """The derivative by central differences."""
    return central_difference(lambda p: bent(jnp.asarray(p), modes), parameters, size)


@pytest.mark.parametrize("boundary", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_jumps_at_the_ends_of_a_step(seed, boundary):
    """A surface that moves by a millionth either way takes the impact into the step or out of it."""
    random = np.random.default_rng(seed)
    prescribed, excluded, by_gap = (jnp.array([plan]) for plan in (PRESCRIBED, EXCLUDED, BY_GAP))
    q, v = random.normal(size=2), random.normal(size=2)
    v[1] = v[0] + random.uniform(2, 4)
    centre = np.concatenate([q, v, [random.uniform(0.2, 1), 0.0]])
    reached = centre if boundary == 0 else bent(jnp.asarray(centre), excluded)
    centre[5] = reached[0] - reached[1]  # the balls meet just where the step begins or ends
    move = 1e-6 * np.eye(6)[5]

    def either_side(function, modes):
        places = (jnp.asarray(centre + side * move) for side in (-1, 0, 1))
        return [np.asarray(function(place, modes)) for place in places]

    low, here, high = either_side(bent, prescribed)
    slopes = either_side(bent_derivative, prescribed)
    np.testing.assert_allclose(slopes[0], slopes[2], atol=1e-3)
    np.testing.assert_allclose(high - here, 1e-6 * slopes[1][:, 5], atol=1e-10)
    np.testing.assert_allclose(here - low, 1e-6 * slopes[1][:, 5], atol=1e-10)
    np.testing.assert_allclose(slopes[1], bent_difference(centre, prescribed), rtol=1e-5, atol=1e-6)
    if boundary == 1:  # the gap alone sees the impact on one side only
        low, _, high = either_side(bent, by_gap)
        assert np.abs(high - low).max() > 0.5


@settings(max_examples=25)
@given(seed=seeds)
def test_derivatives_where_an_impact_lies_outside(seed):
    """jacfwd against central differences, from well before the step to well after it."""
    random = np.random.default_rng(seed)
    share = random.uniform(-0.4, 1.4)
    speed = random.normal(size=2)
    speed[1] = speed[0] + random.uniform(1, 4)
    q = np.array([0.2, 0.2]) - share * H * speed
    parameters = np.concatenate([q, speed, [random.uniform(0.2, 1), 0.0]])
    prescribed = jnp.array([PRESCRIBED])
    found = bent_derivative(jnp.asarray(parameters), prescribed)
    np.testing.assert_allclose(found, bent_difference(parameters, prescribed), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("height", [0.7, 1.3, 4.0])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_instant_of_a_dropped_ball(height, offset):
    """It meets the floor after √(2 height/g), whichever of three steps the impact is prescribed in."""
    impact = np.sqrt(2 * height / GRAVITY) / H
    step = int(impact) + offset
    problem = ball(np.random.default_rng(0))
    since = step * H
    start = (np.full((1, 1), height - 0.5 * GRAVITY * since**2), np.full((1, 1), -GRAVITY * since))
    _, report = advance(problem, *start, PRESCRIBED)
    np.testing.assert_allclose(report.instant, [impact - step], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_cradle_under_its_own_schedule(seed):
    """Over many impacts: the contacts that the gap decided, given as a modes, make the same motion."""
    random = np.random.default_rng(seed)
    system = NewtonsCradle(balls=2, restitution=random.uniform(0.7, 1), mass=random.uniform(0.5, 2))
    angle = np.sort(random.uniform(-0.5, 0.5, (2, 1)), axis=0)[::-1]
    start = State(jnp.asarray(angle.copy()), jnp.asarray(random.normal(size=(2, 1))))
    mechanism = system.mechanism(0.01)

    @jax.jit
    def motion(modes):
        def step(state, plan):
            state, report = constraint_exact_step(
                state,
                0.01,
                inertia=mechanism.inertia(),
                force=mechanism.conservative_force,
                geometry=system.geometry,
                restitution=jnp.full((1,), system.restitution),
                modes=plan,
            )
            return state, (state, report.contact)

        return jax.lax.scan(step, start, modes)[1]

    free, contact = motion(jnp.full((400, 1), BY_GAP))
    assert 2 <= contact.sum() <= 8
    prescribed, made = motion(jnp.where(contact, PRESCRIBED, EXCLUDED))
    np.testing.assert_array_equal(made, contact)
    assert_state(prescribed, free.position, free.velocity, atol=1e-9)


NOTHING = np.zeros((3, 1))
ROW = Problem(ContactGeometry(3, 1, chain(3)), NOTHING, NOTHING, NOTHING, np.ones(3), NOTHING, 1.0)


def test_an_impact_that_follows_from_another():
    """Three equal balls, e = 1: the first hits the second, which hits the third in the same step."""
    reached, report = advance(
        ROW, np.array([[0.1], [0.0], [-0.05]]), np.array([[-3.0], [0], [0]]), PRESCRIBED
    )
    assert_state(reached, [[0], [-0.05], [-0.2]], [[0], [0], [-3]], atol=1e-14)
    np.testing.assert_allclose(report.instant, [1 / 3, 1 / 2], rtol=1e-12)


def test_an_impact_passes_through_balls_that_touch():
    """The same with the second and the third ball side by side, as in a cradle."""
    reached, _ = advance(ROW, np.array([[0.1], [0.0], [0.0]]), np.array([[-3.0], [0], [0]]), PRESCRIBED)
    assert_state(reached, [[0], [0], [-0.2]], [[0], [0], [-3]], atol=1e-14)


TWO_FLOORS = ContactGeometry(2, 1, (Wall(0, (1.0,)), Wall(1, (1.0,))))


@pytest.mark.parametrize(
    "shares",
    [
        (0.2, 0.7),
        (-0.1, 0.5),
        (0.4, 1.2),
        (0.98, 1.03),
    ],
)
def test_two_bodies_do_not_disturb_each_other(shares):
    """Each over its own floor, with impacts at its own share of the step."""
    shares, speed = np.array(shares)[:, None], np.array([[-2.0], [-3.0]])
    problem = Problem(
        TWO_FLOORS, np.zeros((2, 1)), speed, np.zeros((2, 1)), np.ones(2), np.zeros((2, 1)), 0.5
    )
    reached, report = advance(problem, -shares * H * speed, speed, PRESCRIBED)
    assert_state(reached, -0.5 * speed * (1 - shares) * H, -0.5 * speed, atol=1e-13)
    np.testing.assert_allclose(report.instant, shares[:, 0], atol=1e-12)
