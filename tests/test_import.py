"""Importing the package changes nothing; its programs multiply in full precision all the same."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from carom import integrators
from carom.models import CDLagrangeNetwork, forecast
from carom.types import State
from tests.models.conftest import BALL

ROOT = Path(__file__).parents[1]
UNCHANGED = """
import logging, os, signal, sys, warnings
# Libraries have settings of their own, made when they are imported.
import equinox, jax, matplotlib.pyplot, numpy, optax, polars, safetensors
import scipy.integrate, scipy.special

def state():
    loggers = [logging.getLogger(name) for name in list(logging.Logger.manager.loggerDict)]
    return {
        "jax": dict(jax.config.values),
        "logging": {l.name: (l.level, list(l.handlers), l.disabled) for l in [logging.getLogger(), *loggers]},
        "signals": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "environment": dict(os.environ),
        "warnings": list(warnings.filters),
        "hooks": (sys.excepthook, sys.displayhook, sys.getrecursionlimit()),
        "numpy": numpy.geterr(),
    }

before = state()
import carom
carom.fit, carom.systems, carom.configure
import carom.cli.fit, carom.reproduction, carom.report
after = state()
for name, value in before.items():
    if name == "logging":  # loggers may be added, as every library does
        after[name] = {logger: after[name][logger] for logger in value}
    assert after[name] == value, name
"""


def test_importing_changes_no_setting():
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("JAX", "XLA"))}
    done = subprocess.run(
        [sys.executable, "-c", UNCHANGED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_importing_alone_loads_no_numerics():
    """Until a name is used: the command line handles Ctrl-C before the slow imports."""
    program = "import sys, carom, carom.cli; assert not {'jax', 'numpy', 'rich'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_schemes_are_public_with_what_they_take_and_return():
    public = list(vars(integrators).values())
    for function in filter(inspect.isfunction, public):
        for annotation in function.__annotations__.values():
            for kind in (annotation, *get_args(annotation)):
                own = inspect.isclass(kind) and kind.__module__.startswith("carom.integrators")
                assert not own or kind in public, f"{function.__name__}: {kind.__name__}"


@pytest.mark.parametrize("chosen", [None, "bfloat16"])
def test_forecasts_multiply_in_full_precision(chosen):
    model = CDLagrangeNetwork(BALL, 0.02, hidden=4, key=jax.random.key(0))
    start = State(jnp.ones((1, 1)), jnp.zeros((1, 1)))
    with jax.default_matmul_precision(chosen):
        text = eqx.filter_jit(forecast).lower(model, start, 5).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    wanted = "HIGHEST" if chosen is None else "DEFAULT"  # the user's own choice is kept
    assert products
    assert all(wanted in line for line in products)
