"""`carom demo`: the bouncing ball in a minute."""

from pathlib import Path

from carom.cli.output import print_json, print_table, progress
from carom.errors import InputError, require_seed
from carom.reproduction.demo import NOISE, run_demo


def demo(*, out: Path = Path("demo"), seed: int = 0, json: bool = False) -> None:
    """Learn a bouncing ball from noisy data without touch, beside the paper's recipe with touch.

    Example: carom demo --out demo

    Args:
        out: Folder for the figure.
        seed: Seed of noise, start weights and minibatches.
        json: Print one JSON object instead of a table.
    """
    require_seed(seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: the folder cannot be made ({error.strerror}); choose another.") from error
    with progress("training") as tell:
        shares: dict[str, float] = {}

        def both(name: str, share: float) -> None:
            shares[name] = share
            tell(sum(shares.values()) / 2)

        rows, words, figure = run_demo(out, seed=seed, progress=both)
    if json:
        print_json({"rows": [vars(row) for row in rows], "parameters": list(words), "figure": str(figure)})
        return
    print_table(
        f"A ball dropped from 10 m, four bounces, noise {NOISE} on every reading",
        ("model", "forecast error", "bounces on time", "seconds to train"),
        [
            (row.model, row.error, row.bounces, "" if row.seconds != row.seconds else f"{row.seconds:.1f}")
            for row in rows
        ],
    )
    print(f"Estimated without touch (true: restitution 1, surface 0.01): {' '.join(words)}")
    print(
        f"Error: root of the mean over time of the summed squared state error, without noise. See {figure}."
    )
