"""`carom demo`: the bouncing ball in a minute."""

from pathlib import Path

from carom.cli.output import print_json, print_table, progress
from carom.errors import require_seed
from carom.evaluation.results import wide
from carom.reproduction.demo import demo_table, run_demo
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
        rows, words, figure = run_demo(out, seed=seed, progress=report)
    if json:
        found = wide(rows).select("model", "error", "on_time", "bounces", "seconds").to_dicts()
        print_json({"rows": found, "parameters": list(words), "figure": str(figure)})
        return
    table = demo_table(rows)
    print_table(table.caption, table.header, table.rows)
    print(f"Estimated without touch (true: restitution 1, surface 0.01): {' '.join(words)}")
    print(
        f"Error: root mean square over time of the state error against the noise-free motion. See {figure}."
    )
