"""
A bouncing ball from one noisy drop
===================================

The recipe ``carom`` finds impacts, noise, floor and restitution in positions and velocities; no touch sensor
is used.
"""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import carom

truth = carom.systems.BouncingBall(restitution=0.9)
recording = carom.simulate(truth, steps=300, step_size=0.02, noise=0.1, seed=0)
fit = carom.fit(recording, learn=["restitution"])
for parameter in fit.parameters:
    print(parameter.words)

# %%
# The same ball, dropped from a height that was not recorded.

start = carom.State(jnp.full((1, 1), 6.0), jnp.zeros((1, 1)))
forecast = carom.forecast(fit.model, start, steps=300)
time = 0.02 * np.arange(301)
expected = truth.exact(start, time)

plt.plot(time, expected.position[:, 0, 0], color="0.6", linewidth=4, label="true motion")
plt.plot(time, forecast.position[:, 0, 0], color="C0", label="forecast")
plt.xlabel("time (s)")
plt.ylabel("height (m)")
plt.legend()
plt.show()
