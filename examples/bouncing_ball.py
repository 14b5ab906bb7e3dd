"""Learn a bouncing ball from one noisy drop, and forecast it from other heights.

Run: python examples/bouncing_ball.py
"""

import jax
import jax.numpy as jnp

import carom

truth = carom.systems.BouncingBall()
recording = carom.simulate(truth, steps=400, step_size=0.02, noise=0.1, truth="scheme", seed=0)

model = carom.models.CDLagrangeNetwork.for_recording(recording, key=jax.random.key(0))
fit = carom.fit(model, recording)

for height in (10.0, 8.0, 5.0):
    start = carom.State(jnp.full((1, 1), height), jnp.zeros((1, 1)))
    forecast = carom.forecast(fit.model, start, steps=400)
    expected = truth.scheme(start, steps=400, step_size=0.02)
    error = carom.evaluation.paper_rmse(forecast, expected)
    print(f"dropped from {height:4.1f} m: forecast error {error:.3f}")
