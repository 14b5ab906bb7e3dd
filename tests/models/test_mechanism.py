"""Mechanisms: exact where their potential is, and what they keep of mechanics whatever it is."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from carom.contact_laws import (
    ConstantRestitution,
    CoulombFriction,
    SpeedDependentRestitution,
    SplineRestitution,
)
from carom.fits import load_model, save_model
from carom.forces import LinearDamping, QuadraticDrag, UniformGravity
from carom.integrators import AbstractStepper, CDLagrange, ConstraintExact
from carom.mechanics import Pair, Scene, Wall, chain, kinetic_energy, parameters_of, part_named
from carom.models import Mechanism, forecast, rollout
from carom.models.mechanism import learned_potentials
from carom.systems import BouncingBall
from carom.types import State
from tests.campaign import shortened

FLOOR = Scene(1, 1, (Wall(0, (1.0,)),))
BOX = Scene(2, 1, (Wall(0, (-1.0,), -1.0), Wall(1, (1.0,), -1.0), Pair(0, 1, 0.1)), masses=(1.0, 2.5))
DISCS = Scene(3, 2, (Pair(0, 1, 0.3), Pair(0, 2, 0.3), Pair(1, 2, 0.3)))


def _state(position, velocity):
    return State(jnp.asarray(position, float), jnp.asarray(velocity, float))


def _network(scene, step_size=0.02, *, seed=0, strength=3.0, potential="shared", hidden=16, **parts):
    """A mechanism with a strong random potential and biases that are not zero."""
    forces = []
    for number, force in enumerate(learned_potentials(scene, potential, hidden)):
        first, second = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
        network = force.network.glorot(first)
        bias = jax.random.normal(second, network.bias.shape)
        changed = eqx.tree_at(
            lambda n: (n.bias, n.output), network, (bias, strength * np.sqrt(hidden) * network.output)
        )
        forces.append(eqx.tree_at(lambda f: f.network, force, changed))
    return Mechanism.of(scene, step_size, forces=[*forces, *parts.pop("forces", ())], **parts)


def _with_gravity(scene, step_size, gravity, **parts):
    up = np.zeros(scene.dimension)
    up[-1] = -gravity
    return Mechanism.of(scene, step_size, forces=[UniformGravity(jnp.asarray(up))], **parts)


def test_nothing_acts_between_impacts_where_there_is_no_field():
    """Whatever the weights are: straight lines, and an exchange of velocities at the instant of contact."""
    model = _network(Scene(2, 1, (Pair(0, 1, 0.1),)), potential="none")
    found = forecast(model, _state([[0.5], [0.0]], [[-0.3], [0.7]]), 50)
    time = np.arange(51) * 0.02
    before, since = np.minimum(time, 0.4), np.maximum(time - 0.4, 0)
    np.testing.assert_allclose(found.position[:, 0, 0], 0.5 - 0.3 * before + 0.7 * since, atol=1e-12)
    np.testing.assert_allclose(found.position[:, 1, 0], 0.7 * before - 0.3 * since, atol=1e-12)


@pytest.mark.parametrize("restitution", [1.0, 0.8])
def test_ball_is_exact(restitution):
    """The constraint-exact step follows the parabolas through every impact."""
    system = BouncingBall(restitution=restitution, mass=2.0)
    model = _with_gravity(system.scene(), 0.02, 9.81)
    start = _state([[10.0]], [[0.0]])
    exact = system.exact(start, np.arange(401) * 0.02)
    found = forecast(model, start, 400)
    np.testing.assert_allclose(found.position, exact.position, atol=1e-10)
    np.testing.assert_allclose(found.velocity, exact.velocity, atol=1e-10)
    np.testing.assert_array_equal(found.contact > 0.5, exact.contact)


@pytest.mark.parametrize("grid", ["half", "sample"])
def test_ball_by_the_scheme(grid):
    """With the stepper CDLagrange it is the CD-Lagrange step of the system."""
    system = BouncingBall(restitution=0.8)
    scene = system.scene(velocity_grid=grid)
    model = _with_gravity(scene, 0.02, 9.81, stepper=CDLagrange.for_scene(scene))
    start = _state([[10.0]], [[0.0]])
    expected = system.scheme(start, steps=400, step_size=0.02, velocity_grid=grid)
    found = forecast(model, start, 400)
    np.testing.assert_allclose(found.position, expected.position, atol=1e-9)
    np.testing.assert_allclose(found.velocity, expected.velocity, atol=1e-9)
    np.testing.assert_array_equal(found.contact > 0.5, expected.contact)


def test_a_shifted_floor_is_a_shifted_ball():
    model = _with_gravity(FLOOR, 0.02, 9.81)
    raised = eqx.tree_at(lambda m: m.geometry.offset, model, jnp.array([0.7]))
    low, high = (forecast(m, _state([[q]], [[0.0]]), 200) for m, q in ((model, 1.0), (raised, 1.7)))
    np.testing.assert_allclose(high.position, low.position + 0.7, atol=1e-11)
    np.testing.assert_array_equal(high.contact, low.contact)


@pytest.mark.parametrize(
    ("scene", "potential", "seed"),
    shortened([(BOX, "shared", 0), (BOX, "joint", 1), (FLOOR, "joint", 2)], [(BOX, "joint", 1)]),
)
def test_energy_is_kept_to_second_order_through_impacts(scene, potential, seed):
    """e = 1 and a random potential: halving the step quarters the greatest error of the energy."""
    random = np.random.default_rng(seed)
    position = [[0.5], [-0.4]] if scene is BOX else [[0.4]]
    start = _state(position, random.uniform(1, 2, (scene.bodies, 1)) * (-1) ** random.integers(2))
    errors = []
    for step_size in (0.02, 0.01):
        model = _network(scene, step_size, seed=seed, potential=potential)
        if scene is FLOOR:  # a potential that brings the ball back
            model = eqx.tree_at(lambda m: m.forces[0].network, model, _well(model.forces[0].network))
        motion = forecast(model, start, round(4 / step_size))

        def energy(q, v, model=model):
            return kinetic_energy(model.inertia(), v) + model.potential_energy(q)

        energies = np.asarray(jax.vmap(energy)(motion.position, motion.velocity))
        assert np.sum(motion.contact > 0.5) >= 4
        errors.append(np.abs(energies - energies[0]).max())
    assert errors[0] < 0.01 * np.abs(energies[0])
    assert np.log2(errors[0] / errors[1]) > 1.6


def _well(network):
    """Two softplus units of opposite slope beside the random ones: U grows on both sides."""
    return eqx.tree_at(
        lambda p: (p.weight, p.bias, p.output),
        network,
        (
            network.weight.at[:2, 0].set(jnp.array([2.0, -2.0])),
            network.bias.at[:2].set(-1.0),
            network.output.at[:2].set(10.0 * np.sqrt(len(network.bias))),
        ),
    )


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 0, 1)], ids=str)
def test_equal_bodies_may_be_relabelled(order):
    """Three equal discs in one field: another numbering gives the same motion, impacts included."""
    model = _network(DISCS, strength=0.5)
    order = np.array(order)
    position = np.array([[0.0, 0.0], [0.5, 0.1], [-0.2, 0.6]])
    velocity = np.array([[0.5, 0.2], [-1.5, 0.0], [0.3, -1.2]])
    one = forecast(model, _state(position, velocity), 100)
    other = forecast(model, _state(position[order], velocity[order]), 100)
    assert np.sum(one.contact > 0.5) >= 1
    np.testing.assert_allclose(other.position, one.position[:, order], atol=1e-9)
    np.testing.assert_allclose(other.velocity, one.velocity[:, order], atol=1e-9)
    # A pair of new numbers is the pair of the bodies that had them.
    pairs = [{c.first, c.second} for c in DISCS.candidates]
    renamed = [pairs.index({int(order[first]), int(order[second])}) for first, second in map(sorted, pairs)]
    np.testing.assert_array_equal(other.contact, one.contact[:, np.array(renamed)])


def test_in_one_field_all_bodies_fall_alike():
    """U = Σ m φ: an acceleration does not depend on the mass, nor the motion on a common factor."""
    model = _network(BOX)
    q, v = np.array([[0.3], [0.3]]), np.zeros((2, 1))
    force = model.force(jnp.asarray(q), jnp.asarray(v))
    np.testing.assert_allclose(force[1] / force[0], [2.5], rtol=1e-12)
    heavier = eqx.tree_at(lambda m: m.bodies.log_mass, model, model.bodies.log_mass + np.log(7.0))
    start = _state([[0.5], [-0.4]], [[-2.0], [1.0]])
    np.testing.assert_allclose(
        forecast(heavier, start, 200).position, forecast(model, start, 200).position, atol=1e-9
    )


@pytest.mark.parametrize("stepper", ["constraint_exact", "cd_lagrange"])
@pytest.mark.parametrize("speed", [0.2, 1.0, 3.0, 20.0])
def test_restitution_that_depends_on_speed(stepper, speed):
    """e = c₀ + c₁ log u, for a ball without forces; kept between 0 and 1."""
    scene = replace(FLOOR, velocity_grid="sample")
    law = np.array([0.6, -0.1])
    for coefficients, expected in (
        (law, law @ [1, np.log(speed)]),
        (law + np.array([5, 0]), 1.0),
        (law - np.array([5, 0]), 0.0),
    ):
        restitution = SpeedDependentRestitution(jnp.asarray(coefficients)[None])
        scheme = ConstraintExact() if stepper == "constraint_exact" else CDLagrange.for_scene(scene)
        model = _with_gravity(scene, 0.02, 0.0, restitution=restitution, stepper=scheme)
        motion = forecast(model, _state([[0.3 * speed * 0.02]], [[-speed]]), 1)
        np.testing.assert_allclose(motion.velocity[-1, 0, 0], expected * speed, rtol=1e-12, atol=1e-15)
        assert motion.contact[-1, 0] > 0.5
        np.testing.assert_allclose(
            model.restitution_at(jnp.array([-speed])), [expected], rtol=1e-12, atol=1e-15
        )


def test_restitution_is_constant_beyond_the_speeds_it_was_learned_from():
    """And continuous there; within them it is as without limits, and so is its slope."""
    terms, speeds = jnp.array([[0.6, -0.15]]), jnp.array([[0.2, 1.5]])
    law, plain = SpeedDependentRestitution(terms, speeds), SpeedDependentRestitution(terms)

    def at(law, speed):
        return law.coefficient(jnp.array([-speed]))[0]

    for beyond, end in ((0.01, 0.2), (0.1999999, 0.2), (1.5000001, 1.5), (30.0, 1.5)):
        np.testing.assert_allclose(at(law, beyond), at(plain, end), rtol=1e-12)
        assert jax.grad(lambda speed: at(law, speed))(beyond) == 0
    np.testing.assert_allclose(at(law, 0.7), at(plain, 0.7), rtol=1e-12)
    slopes = [jax.grad(lambda speed, law=law: at(law, speed))(0.7) for law in (law, plain)]
    assert slopes[0] == slopes[1] != 0
    assert [spec.key for _, spec in parameters_of(law)] == ["restitution-speed"]


@pytest.mark.parametrize("seed", range(5))
def test_a_spline_is_the_natural_cubic_spline(seed, float64):
    """Of SciPy, through the same three points, with straight tails."""
    generator = np.random.default_rng(seed)
    knots, values = np.cumsum(generator.uniform(0.1, 1.5, 3)) - 2, generator.uniform(0.3, 0.7, 3)
    law = SplineRestitution(jnp.zeros((1, 3)), knots=jnp.asarray(knots)[None])
    terms = np.linalg.solve(law.basis(jnp.exp(jnp.asarray(knots))), values)
    x = np.linspace(knots[0] - 1, knots[2] + 1, 50)
    spline, within = CubicSpline(knots, values, bc_type="natural"), np.clip(x, knots[0], knots[2])
    expected = spline(within) + (x - within) * spline(within, 1)
    np.testing.assert_allclose(law.basis(jnp.exp(jnp.asarray(x))) @ terms, expected, atol=1e-11)


def test_each_contact_has_its_own_law():
    """A ball between two walls that lose unlike shares of its speed."""
    scene = Scene(1, 1, (Wall(0, (1.0,)), Wall(0, (-1.0,), -1.0)))
    model = _with_gravity(scene, 0.02, 0.0, restitution=ConstantRestitution(jnp.array([0.9, 0.5])))
    motion = forecast(model, _state([[0.5]], [[-4.0]]), 60)
    speeds = 4 * np.array([1, 0.9, 0.45])
    times = np.cumsum([0.5 / 4, 1 / 3.6])
    passed = np.searchsorted(times, np.arange(61) * 0.02)[: int(0.9 / 0.02)]
    expected = np.array([-1, 1, -1]) * speeds
    np.testing.assert_allclose(motion.velocity[: len(passed), 0, 0], expected[passed], rtol=1e-12)


def test_damping_alone():
    """v = v₀ exp(−γt) to rounding, whatever the mass."""
    scene = Scene(2, 1, chain(2), masses=(1.0, 3.0))
    model = Mechanism.of(scene, 0.05, forces=[LinearDamping(jnp.array([0.8, 0.1]))])
    motion = forecast(model, _state([[5.0], [-5.0]], [[1.0], [-2.0]]), 60)
    decay = np.exp(-np.outer(np.arange(61) * 0.05, [0.8, 0.1]))
    np.testing.assert_allclose(motion.velocity[..., 0], decay * [1.0, -2.0], rtol=1e-12)
    covered = (1 - decay[-1]) / [0.8, 0.1] * [1.0, -2.0]
    np.testing.assert_allclose(motion.position[-1, :, 0], np.array([5, -5]) + covered, rtol=1e-3)


@pytest.mark.parametrize(
    ("scene", "scheme"),
    [(BOX, "constraint_exact"), (DISCS, "constraint_exact"), (BOX, "cd_lagrange")],
    ids=["box", "discs", "box by cd-lagrange"],
)
def test_a_rollout_with_its_own_contacts_is_the_forecast(scene, scheme):
    """Contacts that the gap decides, given as prescribed, change nothing."""
    model = _network(scene, strength=0.5, stepper=part_named(AbstractStepper, scheme).for_scene(scene))
    position = [[0.5], [-0.4]] if scene is BOX else [[0.0, 0.0], [0.5, 0.1], [-0.2, 0.6]]
    velocity = [[-2.0], [1.0]] if scene is BOX else [[0.5, 0.2], [-1.5, 0.0], [0.3, -1.2]]
    free = forecast(model, _state(position, velocity), 100)
    contact = free.contact[1:] > 0.5
    assert contact.sum() >= 1
    prescribed = rollout(model, _state(position, velocity), contact)
    np.testing.assert_allclose(prescribed.position, free.position, atol=1e-9)
    np.testing.assert_allclose(prescribed.velocity, free.velocity, atol=1e-8)


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"potential": "joint", "forces": [QuadraticDrag(np.zeros(2)), UniformGravity(np.zeros(1))]},
        {
            "stepper": CDLagrange.for_scene(BOX, detection="departure"),
            "restitution": SpeedDependentRestitution(
                np.full((BOX.contacts, 2), 0.1), np.tile([0.2, 1.0], (BOX.contacts, 1))
            ),
            "friction": CoulombFriction.for_scene(BOX),
        },
    ],
    ids=["plain", "joint with forces", "cd-lagrange with laws"],
)
def test_saved_and_loaded(parts, tmp_path):
    """Every array, learned ones moved from where they start; the forecast is the same to the bit."""
    model = _network(BOX, **parts)
    random = np.random.default_rng(0)
    model = jax.tree.map(
        lambda x: x + (0.01 * random.uniform(size=x.shape)).astype(x.dtype) if eqx.is_array(x) else x, model
    )
    # Normals stay of length 1.
    model = eqx.tree_at(lambda m: m.geometry.normal, model, jnp.asarray(BOX.geometry.normal))
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert eqx.tree_equal(model, loaded)
    start = _state([[0.5], [-0.4]], [[-2.0], [1.0]])
    expected, found = forecast(model, start, 100), forecast(loaded, start, 100)
    assert np.sum(expected.contact > 0.5) >= 1
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


CLOSE = {
    "balls": (Scene(2, 1, (Pair(0, 1, 0.1),)), [[0.18], [0.0]], [[-2.0], [1.0]]),
    "discs": (Scene(2, 2, (Pair(0, 1, 0.3),)), [[0.0, 0.0], [0.36, 0.1]], [[0.5, 0.2], [-1.5, 0.0]]),
}
"""Two bodies that meet within the step, their surfaces 0.05 farther out than the scene says."""


def _step_by_parameters(scene, position, velocity):
    """The end of a step as a function of all that is learned of contacts, masses and damping; and a point."""
    law = SpeedDependentRestitution(jnp.zeros((scene.contacts, 2)))
    model = _network(scene, restitution=law, forces=[LinearDamping(np.zeros(scene.bodies))])
    values = [np.asarray(scene.geometry.offset) + 0.05, np.full((scene.contacts, 2), [0.7, 0.1])]
    values += [np.linspace(0, 1, scene.bodies), np.linspace(0.5, 1, scene.bodies)]
    ends = np.cumsum([value.size for value in values])[:-1]

    def end(vector):
        parts = [part.reshape(v.shape) for part, v in zip(jnp.split(vector, ends), values, strict=True)]
        moved = eqx.tree_at(
            lambda m: (m.geometry.offset, m.restitution.terms, m.bodies.log_mass, m.forces[1].rate),
            model,
            parts,
        )
        state, _ = moved.advance(_state(position, velocity))
        return jnp.concatenate([state.position.ravel(), state.velocity.ravel()])

    return end, np.concatenate([value.ravel() for value in values])


@pytest.mark.parametrize("name", CLOSE)
def test_derivative_by_what_is_learned_of_contacts(name):
    """Surfaces, restitution laws, masses and damping, through an impact, against central differences."""
    end, centre = _step_by_parameters(*CLOSE[name])
    found = np.asarray(jax.jit(jax.jacfwd(end))(jnp.asarray(centre)))
    sides = (centre[None] + sign * 1e-6 * np.eye(len(centre)) for sign in (1, -1))
    ahead, behind = map(jax.jit(jax.vmap(end)), map(jnp.asarray, sides))
    np.testing.assert_allclose(found, np.asarray(ahead - behind).T / 2e-6, rtol=1e-5, atol=1e-6)
    assert np.abs(found[:, 0]).max() > 0.1  # the surface matters, so it was struck


@pytest.mark.parametrize("name", ["balls", "discs"])
def test_derivative_in_reverse(name):
    """As training by gradient descent needs it."""
    end, centre = _step_by_parameters(*CLOSE[name])
    along = np.random.default_rng(0).normal(size=len(centre))
    backwards = jax.jit(jax.grad(lambda x: jnp.sum(jnp.sin(end(x)))))(jnp.asarray(centre))
    forwards = jax.jit(lambda x, d: jax.jvp(lambda x: jnp.sum(jnp.sin(end(x))), (x,), (d,))[1])(
        jnp.asarray(centre), jnp.asarray(along)
    )
    np.testing.assert_allclose(backwards @ along, forwards, rtol=1e-9)
