"""One impact with restitution and friction: the laws of Newton and Coulomb, momentum and energy."""

import jax
import numpy as np
from hypothesis import given, settings

from carom.mechanics import impact_impulse
from tests.mechanics.random_mechanics import dimensions, restitution_of, seeds, unit_vector

IMPACTS = 5


@jax.jit
def impulses(normal, relative, compliance, e, mu):
    rough = impact_impulse(normal, relative, compliance, restitution=e, friction=mu)
    transposed = impact_impulse(normal.T, relative.T, compliance, restitution=e, friction=mu, axis=0)
    smooth = impact_impulse(normal, relative, compliance, restitution=e)
    return rough, transposed.T, smooth


@settings(max_examples=60)
@given(seed=seeds, dimension=dimensions)
def test_newtons_and_coulombs_laws_hold_and_no_energy_is_gained(seed, dimension):
    random = np.random.default_rng(seed)
    normal = np.stack([unit_vector(random, dimension) for _ in range(IMPACTS)])
    masses = random.uniform(0.1, 10, (IMPACTS, 2))
    e = np.array([restitution_of(random) for _ in range(IMPACTS)])
    mu = random.choice([0.0, 0.3, 10.0], IMPACTS)
    before = random.normal(size=(2, IMPACTS, dimension))
    relative = before[0] - before[1]
    rough, transposed, smooth = (
        np.asarray(x) for x in impulses(normal, relative, np.sum(1 / masses, axis=1), e, mu)
    )
    after = before + np.stack([rough, -rough]) / masses.T[..., None]
    rate, rate_after = (np.sum(normal * w, axis=1) for w in (relative, after[0] - after[1]))
    closing = rate < 0

    np.testing.assert_allclose(transposed, rough, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(rate_after, np.where(closing, -e * rate, 0), atol=1e-12)
    push = np.sum(normal * rough, axis=1)
    np.testing.assert_allclose(smooth, push[:, None] * normal, atol=1e-12)
    slip, slip_after = (
        w - u[:, None] * normal for w, u in ((relative, rate), (after[0] - after[1], rate_after))
    )
    size = np.linalg.norm(rough - smooth, axis=1)
    assert (size <= mu * np.maximum(push, 0) + 1e-12).all()
    # Slip keeps its direction; where friction is below its limit, nothing is left of it.
    assert (np.sum(slip * slip_after, axis=1) >= -1e-12).all()
    sticks = size < mu * np.maximum(push, 0) * (1 - 1e-9) - 1e-12
    np.testing.assert_allclose(slip_after[sticks], 0, atol=1e-12)
    kinetic = [np.sum(masses.T[..., None] * v**2, axis=(0, 2)) for v in (before, after)]
    assert (kinetic[1] <= kinetic[0] + 1e-12 * (1 + kinetic[0])).all()
