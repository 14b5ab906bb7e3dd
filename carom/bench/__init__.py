"""Speed, measured: the same work for every model and both recipes, each case in a process of its own."""

from carom.bench.comparison import compare, read_bench
from carom.bench.run import run_bench

__all__ = ["compare", "read_bench", "run_bench"]
