"""`carom demo`: the bouncing ball in a minute."""

from pathlib import Path

from carom.cli.output import print_json, print_table, progress
from carom.errors import require_seed
from carom.reproduction.demo import NOISE, run_demo
from carom.storage.atomic import make_folder


def demo(*, out: Path = Path("demo"), seed: int = 0, json: bool = False) -> None:
    """Learn a bouncing ball from noisy data without touch, beside the paper's recipe with touch.

    Example: carom demo --out demo

    Args:
        out: Folder for the figure and the numbers (demo.json).
        seed: Seed of noise, initial weights and minibatches.
        json: Print one JSON object instead of a table.
    """
    require_seed(seed)
    make_folder(out)
    with progress("training") as report:
        done: dict[str, float] = {}

        # The two recipes are trained one after the other and count half each.
        def both(name: str, fraction: float) -> None:
            done[name] = fraction
            report(sum(done.values()) / 2)

        rows, words, figure = run_demo(out, seed=seed, progress=both)
    if json:
        print_json({"rows": [vars(row) for row in rows], "parameters": list(words), "figure": str(figure)})
        return
    print_table(
        f"A ball dropped from 10 m, four bounces, noise {NOISE} on positions and velocities",
        ("model", "forecast error", "bounces on time", "seconds to train"),
        [
            (
                row.model,
                row.error,
                "" if row.bounces is None else f"{row.on_time} of {row.bounces}",
                "" if row.seconds is None else f"{row.seconds:.1f}",
            )
            for row in rows
        ],
    )
    print(f"Estimated without touch (true: restitution 1, surface 0.01): {' '.join(words)}")
    print(
        f"Error: root mean square over time of the state error against the noise-free motion. See {figure}."
    )
