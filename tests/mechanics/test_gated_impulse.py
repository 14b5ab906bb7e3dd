"""`restitution_impulse`, the form that a model's contact signal gates."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mechanics.random_mechanics import cholesky_factor, restitution_with_matrix, seeds


def random_problem(seed, contacts, coordinates):
    random = np.random.default_rng(seed)
    factor = cholesky_factor(random, coordinates)
    jacobian = random.normal(size=(contacts, 1, coordinates))
    before, smooth = random.normal(size=(2, 1, coordinates))
    restitution = random.uniform(size=contacts)
    return random, factor, jacobian, before, smooth, restitution


@settings(max_examples=40)
@given(seed=seeds, gate=st.floats(0, 1))
def test_a_soft_gate_scales_a_single_impulse(seed, gate):
    _, factor, jacobian, before, smooth, restitution = random_problem(seed, 1, 3)
    impulse = restitution_with_matrix(jacobian, factor, before, smooth, restitution, np.array([gate]))
    row = jacobian.ravel()
    whole = -row @ (restitution[0] * before + smooth)[0] / (row @ np.linalg.solve(factor @ factor.T, row))
    np.testing.assert_allclose(impulse, [gate * whole], rtol=1e-11, atol=1e-14)


@settings(max_examples=40)
@given(seed=seeds)
def test_decided_gates_solve_the_active_block_alone(seed):
    """λ_a = −(G_a M⁻¹ G_aᵀ)⁻¹ G_a (e V + V^S), and u⁺ = −e u⁻ at every active contact; any sign of λ."""
    random, factor, jacobian, before, smooth, restitution = random_problem(seed, 3, 4)
    active = random.uniform(size=3) < 0.6
    impulse = np.asarray(
        restitution_with_matrix(jacobian, factor, before, smooth, restitution, active.astype(float))
    )
    mass_matrix, rows = factor @ factor.T, jacobian[active, 0]
    assert (impulse[~active] == 0).all()
    after = smooth[0] + np.linalg.solve(mass_matrix, jacobian[:, 0].T @ impulse)
    np.testing.assert_allclose(rows @ after, -restitution[active] * (rows @ before[0]), atol=1e-9)

    compliance = rows @ np.linalg.solve(mass_matrix, rows.T)
    wanted = -(restitution[active] * (rows @ before[0]) + rows @ smooth[0])
    expected = np.linalg.solve(compliance, wanted)
    # Nearly parallel rows amplify rounding.
    tolerance = (
        1e-13 * np.linalg.cond(compliance) * (1 + np.abs(expected).max(initial=0)) if active.any() else 0
    )
    np.testing.assert_allclose(impulse[active], expected, atol=tolerance)


@settings(max_examples=40)
@given(seed=seeds)
def test_a_soft_gate_scales_what_a_contact_needs_beside_the_others(seed):
    """λ_j = c_j × the impulse that makes contact j alone obey the law when the others push as they do."""
    random, factor, jacobian, before, smooth, restitution = random_problem(seed, 3, 4)
    gates = random.uniform(size=3)
    impulse = np.asarray(restitution_with_matrix(jacobian, factor, before, smooth, restitution, gates))
    mass_matrix, rows = factor @ factor.T, jacobian[:, 0]
    for j, row in enumerate(rows):
        others = np.where(np.arange(3) == j, 0, impulse)
        velocity = smooth[0] + np.linalg.solve(mass_matrix, rows.T @ others)
        needed = -(restitution[j] * row @ before[0] + row @ velocity) / (
            row @ np.linalg.solve(mass_matrix, row)
        )
        np.testing.assert_allclose(impulse[j], gates[j] * needed, rtol=1e-8, atol=1e-10)
