"""Systems in public physics engines: independent truths for tests and benchmarks."""

from benchmarks.engines.common import Engine
from benchmarks.engines.trajectory import engine_trajectory

__all__ = ["Engine", "engine_trajectory"]
