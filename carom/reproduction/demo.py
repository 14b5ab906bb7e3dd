"""The demonstration: a bouncing ball without a touch sensor, beside the paper's recipe with one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from carom.data import Recording, simulate
from carom.digits import MISSING
from carom.estimation import Settings, fit_recording
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.evaluation.results import wide, write_results
from carom.evaluation.tables import Table, arrange, cell, median_text, tabulate
from carom.models import CDLagrangeNetwork, Forecast, forecast
from carom.plotting.style import DATA, figure_style, line
from carom.storage.atomic import atomic_write
from carom.systems import BouncingBall
from carom.training import TrainingSettings, train
from carom.types import Trajectory

STEPS, STEP_SIZE, NOISE = 519, 0.02, 0.2
SETTINGS = TrainingSettings(
    epochs=600, learning_rate=1e-2, schedule="cosine", l2=1e-4, reduction="sum", contact_inputs="observed"
)
CAROM = "recipe carom, start given, no touch, e and floor unknown"
PAPER, ORACLE = "recipe paper, with touch", "oracle"


@dataclass(frozen=True)
class DemoRow:
    """One line of the table: a model, its error on the recorded span, and its bounces on time of all."""

    model: str
    error: float
    on_time: int | None
    bounces: int | None
    seconds: float | None


def run_demo(
    folder: Path, *, seed: int = 0, progress: Callable[[str, float], None] | None = None
) -> tuple[list[DemoRow], tuple[str, ...], Path]:
    """Fit the paper's noisy ball by both recipes: the table, the parameters in words, the figure's path."""
    ball = BouncingBall(radius=0.01)
    truth = ball.exact(ball.start, np.arange(STEPS + 1) * STEP_SIZE)
    recording = simulate(ball, steps=STEPS, step_size=STEP_SIZE, noise=NOISE, seed=seed)
    report = progress or (lambda name, share: None)
    # Released from rest at a known height, from which forecasts are scored too; all else is estimated.
    settings = Settings(learn=("restitution", "surfaces"))
    latent = fit_recording(recording, settings, starts=[ball.start], seed=seed)
    report(CAROM, 1.0)
    # With a rate that decays, so that the result does not hang on the epoch at which training stops.
    untrained = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(seed))
    windowed = train(untrained, recording, SETTINGS, seed=seed, progress=lambda share: report(PAPER, share))
    start = jax.tree.map(lambda x: x.astype(jnp.float32), ball.start)
    forecasts = {CAROM: forecast(latent.model, start, STEPS), PAPER: forecast(windowed.model, start, STEPS)}
    seconds = {CAROM: latent.seconds, PAPER: windowed.seconds}
    rows = [
        DemoRow(name, paper_rmse(motion, truth), *_bounces(motion, truth), seconds[name])
        for name, motion in forecasts.items()
    ]
    # A narrow range is enough: these data determine g to about a hundredth.
    oracle = fit_oracle(ball, recording, bounds={"gravity": (9.6, 10.0)})
    best = oracle.system.exact(ball.start, truth.time)
    rows.append(DemoRow(f"{ORACLE}: true equations, g fitted", paper_rmse(best, truth), None, None, None))
    slopes = {CAROM: latent.model.slope, PAPER: windowed.model.potential.gradient}
    path = folder / "ball.png"
    _draw(path, truth, recording, forecasts, slopes)
    write_results(
        folder / "demo.json",
        [
            {"experiment": "demo", "model": row.model, "seed": seed, "metric": metric, "value": value}
            for row in rows
            for metric, value in vars(row).items()
            if metric != "model" and value is not None
        ],
        command="carom demo" + (f" --seed {seed}" if seed else ""),
    )
    return rows, tuple(parameter.words for parameter in latent.parameters), path


def demo_table(rows: pl.DataFrame) -> Table:
    """What the demonstration prints, from the results that it has stored."""
    # As stored, rows are sorted by the names of models, and the oracle comes first.
    fits = arrange(wide(rows), model=[CAROM, PAPER])
    return tabulate(
        fits,
        {"model": "model"},
        {"forecast error": cell("error", median_text), "bounces on time": _on_time},
        caption="",
    )


def _on_time(group: pl.DataFrame) -> str:
    on_time, bounces = group["on_time"][0], group["bounces"][0]
    return MISSING if bounces is None else f"{on_time:.0f} of {bounces:.0f}"


def _bounces(predicted: Forecast, truth: Trajectory) -> tuple[int, int]:
    """Bounces on time, and those in truth."""
    score = contact_score(np.asarray(predicted.contact[:, 0]) > 0.5, truth.contact[:, 0])
    return score.true_events - score.missed - score.mistimed, score.true_events


def _draw(
    path: Path,
    truth: Trajectory,
    recording: Recording,
    forecasts: dict[str, Forecast],
    slopes: dict[str, Callable],
) -> None:
    """Height over time, phase portrait, and the learned force of gravity."""
    data = recording.runs[0]
    curves = {"data": (data, {**DATA, "label": "data"}), "truth": (truth, line("truth"))}
    curves |= {name: (motion, _style(name)) for name, motion in forecasts.items()}
    with figure_style():
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        height, phase, slope = figure.subplots(1, 3)
        for motion, style in curves.values():
            position, velocity = (np.asarray(part)[:, 0, 0] for part in (motion.position, motion.velocity))
            height.plot(truth.time, position, **style)
            phase.plot(position, velocity, **style)
        title = "forecast from the first state"
        height.set(xlabel="time / s", ylabel="height / m", title=title, ylim=(-1.5, 12))
        phase.set(xlabel="height / m", ylabel="velocity / (m/s)", title="phase portrait")
        phase.set(xlim=(-1.5, 12), ylim=(-17, 17))
        # The range of the motion; elsewhere nothing was learned.
        heights = np.linspace(0, 10, 101)
        slope.plot(heights, np.full_like(heights, 9.81), **line("truth"))
        for name, gradient in slopes.items():
            learned = jax.vmap(gradient)(jnp.asarray(heights[:, None, None], "float32"))
            slope.plot(heights, np.asarray(learned)[:, 0, 0], **_style(name))
        slope.set(xlabel="height / m", ylabel="∂U/∂q / N", title="learned potential's slope", ylim=(8.5, 11))
        handles, labels = height.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format="png")


def _style(name: str) -> dict:
    """The two recipes in two of the palette's lines."""
    return {**line("CD-Lagrange" if name == CAROM else "ResNet"), "label": name}
