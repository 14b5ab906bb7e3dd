"""Learn contact dynamics from noisy recordings with physically structured networks, and forecast them.

Example:
    >>> import jax, carom
    >>> truth = carom.systems.BouncingBall(restitution=0.9)
    >>> recording = carom.simulate(truth, steps=60, step_size=0.02, noise=0.1, seed=0)
    >>> model = carom.models.CDLagrangeNetwork.for_recording(recording, hidden=32, key=jax.random.key(0))
    >>> fit = carom.fit(model, recording, carom.TrainingSettings(epochs=10))
    >>> carom.forecast(fit.model, recording.start, steps=100).position.shape
    (101, 1, 1)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from carom.version import __version__ as __version__

if TYPE_CHECKING:
    from carom.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Loading JAX takes a second or two, in which the command line must already handle Ctrl-C; importing the
    # package alone loads nothing and changes no setting of JAX, logging or the process.
    public = vars(import_module("carom.public"))
    if name == "__all__":
        return [public_name for public_name in public if not public_name.startswith("_")]
    if name.startswith("_") or name not in public:
        raise AttributeError(f"module 'carom' has no attribute {name!r}")
    return public[name]


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
