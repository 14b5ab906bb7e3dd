"""`carom demo`: the bouncing ball in a minute."""

from pathlib import Path

from carom.cli.console import Common, print_json, print_table, progress
from carom.evaluation.results import wide
from carom.reproduction.demo import demo_table, run_demo
from carom.storage.atomic import make_folder


def demo(*, out: Path = Path("demo"), common: Common) -> None:
    """Learn a bouncing ball from noisy data without touch, beside the paper's recipe with touch.

    Example: carom demo --out demo

    Args:
        out: Folder for the figure and the numbers (demo.json).
    """
    make_folder(out)
    with progress("training") as report:
        rows, words, figure = run_demo(out, seed=common.seed, progress=report)
    if common.json:
        found = wide(rows).select("model", "error", "on_time", "bounces", "seconds").to_dicts()
        print_json({"rows": found, "parameters": list(words), "figure": str(figure)})
        return
    table = demo_table(rows)
    print_table(table.caption, table.header, table.rows)
    print(f"Estimated without touch (true: restitution 1, surface 0.01): {' '.join(words)}")
    print(
        f"Error: root mean square over time of the state error against the noise-free motion. See {figure}."
    )
