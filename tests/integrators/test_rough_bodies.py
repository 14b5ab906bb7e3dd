"""Bodies in the plane by the general steps: friction, rest, many contacts, and the order of convergence."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from scipy.integrate import solve_ivp

from carom.errors import InputError
from carom.integrators import cd_lagrange_step, constraint_exact_step, to_half_grid
from carom.mechanics import (
    ContactGeometry,
    InertiaMatrix,
    Masses,
    Pair,
    Wall,
    unilateral_impulse,
)
from carom.mechanics.friction import friction_impulses, frictional
from carom.systems import BallBox, Billiards
from carom.types import State
from tests.integrators.mechanical_problems import measured_order

MASSES = np.array([1.0, 2.5])
RADII = np.array([0.2, 0.3])
E, MU = 0.8, 0.25
GEOMETRY = ContactGeometry(
    2,
    2,
    (
        Wall(0, (0.0, 1.0), 0.2),
        Wall(0, (1.0, 0.0), 0.2),
        Wall(1, (0.0, 1.0), 0.3),
        Wall(1, (1.0, 0.0), 0.3),
        Pair(0, 1, 0.5),
    ),
)
START = np.array([[0.7, 1.2], [1.3, 0.8]]), np.array([[-0.6, -1.0], [-1.4, 0.3]])
DURATION = 1.2


def acceleration(q):
    """Of no uniform field: both bodies are drawn to the corner, the more the farther they are."""
    return -2.0 * q - np.array([0.0, 3.0]) - np.sin(3 * q)


def impact_reference():
    """Both bodies by DOP853 from impact to impact; the last state, and how many impacts there were."""

    def rate(_, y):
        return np.concatenate([y[4:], acceleration(y[:4].reshape(2, 2)).ravel()])

    def gaps(y):
        q = y[:4].reshape(2, 2)
        return np.append((q - RADII[:, None])[:, ::-1].ravel(), np.linalg.norm(q[0] - q[1]) - RADII.sum())

    def event(index):
        def gap(_, y):
            return gaps(y)[index]

        gap.terminal, gap.direction = True, -1
        return gap

    time, y, impacts = 0.0, np.concatenate([x.ravel() for x in START]), 0
    while True:
        solution = solve_ivp(
            rate, (time, DURATION), y, "DOP853", events=[event(j) for j in range(5)], rtol=1e-13, atol=1e-13
        )
        time, y = solution.t[-1], solution.y[:, -1]
        if solution.status == 0:
            return y, impacts
        impacts += 1
        (hit,) = (j for j in range(5) if len(solution.t_events[j]))
        q, v = y[:4].reshape(2, 2), y[4:].reshape(2, 2)
        if hit < 4:
            body, mass = hit // 2, MASSES[hit // 2]
            normal, relative = np.eye(2)[1 - hit % 2], v[hit // 2]
        else:
            normal = (q[0] - q[1]) / np.linalg.norm(q[0] - q[1])
            mass, relative = MASSES.prod() / MASSES.sum(), v[0] - v[1]
        closing = relative @ normal
        slip = relative - closing * normal
        push = -(1 + E) * closing * mass
        impulse = push * normal - min(MU * push / np.linalg.norm(slip), mass) * slip
        if hit < 4:
            v[body] += impulse / mass
        else:
            v += np.stack([impulse, -impulse]) / MASSES[:, None]
        y = np.concatenate([q.ravel(), v.ravel()])


def force(position):
    drawn = -2.0 * position - jnp.array([[0.0, 3.0]]) - jnp.sin(3 * position)
    return jnp.asarray(MASSES)[:, None] * drawn


@jax.jit
def constraint_exact(h, steps):
    def advance(_, state):
        return constraint_exact_step(
            state,
            h,
            inertia=Masses(jnp.asarray(MASSES)),
            force=force,
            geometry=GEOMETRY,
            restitution=jnp.full(5, E),
            friction=jnp.full(5, MU),
        )[0]

    return lax.fori_loop(0, steps, advance, State(*map(jnp.asarray, START)))


@jax.jit
def cd_lagrange(h, steps):
    inertia, signs = Masses(jnp.asarray(MASSES)), GEOMETRY.signs

    def impulse(jacobian, inertia, before, smooth, touching):
        return unilateral_impulse(
            jacobian, inertia, before, smooth, restitution=jnp.full(5, E), touching=touching
        )

    def brake(jacobian, velocity, impulse):
        contacts = frictional(jacobian, inertia, signs, friction=jnp.full(5, MU))
        push = friction_impulses(contacts, velocity, impulse)
        return velocity + inertia.solve(contacts.momentum(push))

    def forces(position, velocity):
        return force(position)

    def advance(_, state):
        return cd_lagrange_step(
            state,
            h,
            inertia=inertia,
            force=forces,
            geometry=GEOMETRY,
            detect=lambda position, velocity: GEOMETRY.gap(position) < 0,
            impulse=impulse,
            project=lambda position, touching: position,
            friction=brake,
        )[0]

    start = to_half_grid(State(*map(jnp.asarray, START)), h, inertia=inertia, force=forces)
    return lax.fori_loop(0, steps, advance, start).position


@pytest.mark.campaign
def test_orders_through_rough_impacts_in_the_plane():
    """Walls and a pair, e = 0.8, μ = 0.25. Measured: constraint-exact 2.0, CD-Lagrange about 1 (by luck)."""
    exact, impacts = impact_reference()
    assert impacts >= 4
    counts, errors = np.array([60, 120, 240, 480]), []
    for steps in counts:
        state = constraint_exact(DURATION / steps, steps)
        errors.append(np.abs(np.concatenate([state.position.ravel(), state.velocity.ravel()]) - exact).max())
    assert abs(measured_order(DURATION / counts, errors) - 2) < 0.15
    # Where an impact falls inside its step is a matter of luck, so that many steps make the order.
    counts = np.unique(np.geomspace(60, 2000, 24).astype(int))
    reached = [np.asarray(cd_lagrange(DURATION / steps, steps)).ravel() for steps in counts]
    scheme_errors = [np.abs(position - exact[:4]).max() for position in reached]
    assert abs(measured_order(DURATION / counts, scheme_errors) - 1) < 0.35


@pytest.mark.campaign
@pytest.mark.parametrize(
    "system",
    [Billiards(restitution=0.9, friction=0.2), BallBox(size=(1.0, 1.0), restitution=0.9, friction=0.2)],
)
def test_constraint_exact_step_is_the_event_driven_motion_in_a_uniform_field(system):
    """Two ways to the same motion, through five impacts or more: what differs is rounding that has grown."""
    start = system.random_start(seed=2)
    stepped = system.constraint_exact(start, steps=30, step_size=0.02)
    exact = system.exact(start, stepped.time)
    assert exact.contact.sum() >= 5
    np.testing.assert_allclose(stepped.position, exact.position, atol=1e-8)
    np.testing.assert_allclose(stepped.velocity, exact.velocity, atol=1e-6)
    np.testing.assert_array_equal(stepped.contact, exact.contact)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", [Billiards, BallBox])
def test_constraint_exact_step_keeps_the_energy_for_ten_thousand_steps(kind):
    """e = 1, μ = 0, a free table and uniform gravity: to 1e-9, and nothing overlaps by more."""
    system = kind(size=(1.0, 1.0), radii=(0.1, 0.15, 0.08), ball_masses=(1.0, 3.0, 0.5))
    motion = system.constraint_exact(system.random_start(seed=0), steps=10_000, step_size=0.01)
    energies = system.energies(motion)
    assert motion.contact.sum() > 500
    np.testing.assert_allclose(energies, energies[0], rtol=1e-9)
    with jax.enable_x64(True):
        gaps = jax.vmap(system.geometry.gap)(jnp.asarray(motion.position))
    assert float(gaps.min()) > -1e-9


@partial(jax.jit, static_argnames=("h", "slope"))
def slope_step(y, h, friction, slope):
    """(x, y, v_x, v_y) of a ball over a slope, one step later."""
    normal = (float(np.sin(slope)), float(np.cos(slope)))
    geometry = ContactGeometry(1, 2, (Wall(0, normal),))
    state, report = constraint_exact_step(
        State(y[:2][None], y[2:][None]),
        h,
        inertia=Masses(jnp.array([2.0])),
        force=lambda q: jnp.array([[0.0, -2.0 * 9.81]]),
        geometry=geometry,
        restitution=jnp.zeros(1),
        friction=jnp.full((1,), friction),
    )
    return jnp.concatenate([state.position[0], state.velocity[0]]), report


@pytest.mark.parametrize("friction", [0.2, 0.5])
def test_sliding_on_a_slope_to_a_halt_and_back(friction):
    """Uphill it slows with g (sin α + μ cos α), then it stays or comes back with g (sin α − μ cos α)."""
    slope = np.radians(20)
    up = np.array([-np.cos(slope), np.sin(slope)])
    y = jnp.asarray(np.concatenate([np.zeros(2), 2.0 * up]))
    for _ in range(10):
        y, _ = slope_step(y, 0.1, friction, slope)
    slowing = 9.81 * (np.sin(slope) + friction * np.cos(slope))
    pull = max(9.81 * (np.sin(slope) - friction * np.cos(slope)), 0.0)
    stop = 2.0 / slowing
    np.testing.assert_allclose(y[:2] @ up, 2.0**2 / (2 * slowing) - 0.5 * pull * (1 - stop) ** 2, atol=1e-12)
    np.testing.assert_allclose(y[2:] @ up, -pull * (1 - stop), atol=1e-12)


@pytest.mark.parametrize("mode", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.campaign)])
def test_derivative_of_a_slide_by_friction(mode):
    """Sliding on the level: x = v t − ½ μ g t², so ∂x/∂μ = −½ g t²; after the halt x = v²/(2 μ g)."""

    def slide(mu):
        def advance(y, _):
            after = slope_step(y, 0.1, mu, 0.0)[0]
            return after, after

        return lax.scan(advance, jnp.array([0.0, 0.0, 1.5, 0.0]), length=10)[1]

    derivative = mode(slide)(0.3)
    np.testing.assert_allclose(derivative[2], [-0.5 * 9.81 * 0.09, 0.0, -9.81 * 0.3, 0.0], atol=1e-11)
    np.testing.assert_allclose(derivative[9], [-(1.5**2) / (2 * 0.09 * 9.81), 0.0, 0.0, 0.0], atol=1e-11)


def test_friction_wants_masses():
    with pytest.raises(InputError, match="one mass per body"):
        constraint_exact_step(
            State(jnp.ones((1, 2)), jnp.zeros((1, 2))),
            0.1,
            inertia=InertiaMatrix(jnp.eye(2)),
            force=lambda q: 0 * q,
            geometry=ContactGeometry(1, 2, (Wall(0, (0.0, 1.0)),)),
            restitution=jnp.ones(1),
            friction=jnp.ones(1),
        )


def test_a_glancing_hit_within_one_step_is_seen():
    """The discs touch and would part again before the step ends."""
    discs = ContactGeometry(2, 2, (Pair(0, 1, 1.0),))
    state, report = constraint_exact_step(
        State(jnp.array([[-1.0, 0.9], [0.0, 0.0]]), jnp.array([[20.0, 0.0], [0.0, 0.0]])),
        0.1,
        inertia=Masses(jnp.ones(2)),
        force=lambda q: 0 * q,
        geometry=discs,
        restitution=jnp.ones(1),
    )
    assert report.contact[0]
    # They touch at x = −√(1 − 0.9²); the first keeps what lies across the normal.
    normal = np.array([-np.sqrt(1 - 0.81), 0.9])
    np.testing.assert_allclose(state.velocity[1], 20 * normal[0] * normal, atol=1e-12)
