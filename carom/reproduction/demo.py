"""The demonstration: a bouncing ball without a touch sensor, beside the paper's recipe with one."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from matplotlib.figure import Figure

from carom.data import Run, simulate
from carom.digits import MISSING
from carom.estimation import Settings, fit_recording
from carom.evaluation import fit_oracle, paper_rmse
from carom.evaluation.results import tidy_rows, wide, write_results
from carom.evaluation.tables import Table, arrange, cell, median_text, tabulate
from carom.execution.executor import ProgressCallback
from carom.models import CDLagrangeNetwork, Forecast, forecast
from carom.plotting.style import DATA, figure_style, line
from carom.reproduction.scores import score_impacts, single
from carom.storage.atomic import atomic_write
from carom.systems import BouncingBall
from carom.training import TrainingSettings, train
from carom.types import Trajectory

STEPS, STEP_SIZE, NOISE = 519, 0.02, 0.2
SETTINGS = TrainingSettings(
    epochs=600, learning_rate=1e-2, schedule="cosine", l2=1e-4, reduction="sum", contact_inputs="observed"
)
CAROM = "recipe carom, start given, no touch, e and floor unknown"
PAPER, ORACLE = "recipe paper, with touch", "oracle: true equations, g fitted"


def run_demo(
    folder: Path, *, seed: int = 0, progress: ProgressCallback = lambda share: None
) -> tuple[pl.DataFrame, tuple[str, ...], Path]:
    """Fit the paper's noisy ball by both recipes: tidy rows, the parameters in words, the figure's path."""
    ball = BouncingBall(radius=0.01)
    truth = ball.exact(ball.start, np.arange(STEPS + 1) * STEP_SIZE)
    recording = simulate(ball, steps=STEPS, step_size=STEP_SIZE, noise=NOISE, seed=seed)
    # Released from rest at a known height, from which forecasts are scored too; all else is estimated.
    settings = Settings(learn=("restitution", "surfaces"))
    latent = fit_recording(recording, settings, starts=[ball.start], seed=seed)
    progress(0.5)
    # With a rate that decays, so that the result does not hang on the epoch at which training stops.
    untrained = CDLagrangeNetwork.for_recording(recording, key=jax.random.key(seed))
    trained = train(untrained, recording, SETTINGS, seed=seed, progress=lambda done: progress((1 + done) / 2))
    rows, forecasts = [], {}
    for name, fit in ((CAROM, latent), (PAPER, trained)):
        forecasts[name] = motion = forecast(fit.model, single(ball.start), STEPS)
        found = score_impacts(motion, truth.contact)
        metrics = {"error": paper_rmse(motion, truth), "bounces": found.true_events, "seconds": fit.seconds}
        metrics["on_time"] = found.true_events - found.missed - found.mistimed
        rows += tidy_rows({"experiment": "demo", "model": name, "seed": seed}, metrics)
    # A narrow range is enough: these data determine g to about a hundredth.
    oracle = fit_oracle(ball, recording, bounds={"gravity": (9.6, 10.0)})
    error = paper_rmse(oracle.system.exact(ball.start, truth.time), truth)
    rows += tidy_rows({"experiment": "demo", "model": ORACLE, "seed": seed}, {"error": error})
    path = folder / "ball.png"
    slopes = {CAROM: latent.model.slope, PAPER: trained.model.potential.gradient}
    _draw(path, truth, recording.runs[0], forecasts, slopes)
    command = "carom demo" + (f" --seed {seed}" if seed else "")
    results = write_results(folder / "demo.json", rows, command=command)
    return results.rows, tuple(parameter.words for parameter in latent.parameters), path


def demo_table(rows: pl.DataFrame) -> Table:
    """What the demonstration prints and the README shows."""
    # As stored, rows are sorted by the names of models, and the oracle comes first.
    fits = arrange(wide(rows), model=[CAROM, PAPER])
    return tabulate(
        fits,
        {"model": "model"},
        {"forecast error": cell("error", median_text), "bounces on time": _on_time},
        caption=f"A ball dropped from 10 m, four bounces, noise {NOISE} on positions and velocities.",
    )


def _on_time(group: pl.DataFrame) -> str:
    on_time, bounces = group["on_time"][0], group["bounces"][0]
    return MISSING if bounces is None else f"{on_time:.0f} of {bounces:.0f}"


def _draw(
    path: Path, truth: Trajectory, data: Run, forecasts: dict[str, Forecast], slopes: dict[str, Callable]
) -> None:
    """Height over time, phase portrait, and the learned force of gravity."""
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
