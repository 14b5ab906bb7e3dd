"""
Two bodies that hit each other
==============================

Newton's cradle with both balls alike: restitution is estimated from how they part after each impact.
"""

import carom

truth = carom.systems.NewtonsCradle()
recording = carom.simulate(truth, steps=400, step_size=0.01, noise=0.01, seed=1)
fit = carom.fit(recording, settings=carom.Settings(learn=("restitution",)))
for parameter in fit.parameters:
    print(parameter.words)
print(fit.diagnostics.messages or "The model explains the recording.")
