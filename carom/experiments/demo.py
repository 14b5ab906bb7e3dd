"""The demonstration: a bouncing ball with a touch sensor, CD-Lagrange against a residual network."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from carom.atomic import atomic_write
from carom.data import Recording, simulate
from carom.evaluation import contact_score, fit_oracle, paper_rmse
from carom.experiments.style import DATA, figure_style, line
from carom.learning import Fit, WindowedSettings, fit_windowed
from carom.models import CDLagrangeNetwork, Forecast, ResNet, forecast
from carom.systems import BouncingBall
from carom.types import Trajectory

STEPS, STEP_SIZE, NOISE = 500, 0.02, 0.2
SETTINGS = WindowedSettings(
    epochs=600, learning_rate=1e-2, schedule="cosine", l2=1e-4, reduction="sum", contact_inputs="observed"
)


@dataclass(frozen=True)
class DemoRow:
    """One line of the table: a model, its error on the training span, and its bounces."""

    model: str
    error: float
    bounces: str
    seconds: float


def run_demo(
    folder: Path, *, seed: int = 0, progress: Callable[[str, float], None] | None = None
) -> tuple[list[DemoRow], Path]:
    """Train both models on the paper's noisy ball; returns the table and the figure's path."""
    ball = BouncingBall()
    truth = ball.scheme(ball.start, steps=STEPS, step_size=STEP_SIZE, velocity_grid="sample")
    recording = simulate(
        ball,
        steps=STEPS,
        step_size=STEP_SIZE,
        truth="scheme",
        velocity_grid="sample",
        noise=NOISE,
        seed=seed,
    )
    fits: dict[str, Fit] = {}
    for name, kind in (("CD-Lagrange", CDLagrangeNetwork), ("ResNet", ResNet)):
        model = kind.for_recording(recording, key=jax.random.key(seed))
        tell = None if progress is None else lambda share, name=name: progress(name, share)
        fits[name] = fit_windowed(model, recording, SETTINGS, seed=seed, progress=tell)
    forecasts = {name: forecast(fit.model, ball.start, STEPS) for name, fit in fits.items()}

    rows = [
        DemoRow(
            name, paper_rmse(forecasts[name], truth), _bounces(forecasts[name], truth), fits[name].seconds
        )
        for name in fits
    ]
    oracle = fit_oracle(ball, recording, bounds={"gravity": (9.0, 10.6)}, truth="scheme")
    best = oracle.system.scheme(ball.start, steps=STEPS, step_size=STEP_SIZE, velocity_grid="sample")
    rows.append(DemoRow("oracle: true equations, g fitted", paper_rmse(best, truth), "", float("nan")))

    path = folder / "ball.png"
    _draw(path, truth, recording, forecasts, fits["CD-Lagrange"].model)
    return rows, path


def _bounces(predicted: Forecast, truth: Trajectory) -> str:
    """Bounces on time of those in truth, for a model that has a contact signal."""
    if predicted.contact.shape[1] == 0:
        return "no contact signal"
    score = contact_score(np.asarray(predicted.contact[:, 0]) > 0.5, truth.contact[:, 0])
    return f"{score.true_events - score.missed - score.mistimed} of {score.true_events}"


def _draw(
    path: Path,
    truth: Trajectory,
    recording: Recording,
    forecasts: dict[str, Forecast],
    network: CDLagrangeNetwork,
) -> None:
    """Height over time, phase portrait, and the learned force of gravity."""
    data = recording.runs[0]
    assert data.velocity is not None
    matplotlib.use("Agg")
    with figure_style():
        figure = Figure(figsize=(10, 3.2), layout="constrained")
        height, phase, slope = figure.subplots(1, 3)
        height.plot(data.time, data.position[:, 0, 0], **DATA, label="data")
        height.plot(truth.time, truth.position[:, 0, 0], **line("truth"))
        phase.plot(data.position[:, 0, 0], data.velocity[:, 0, 0], **DATA)
        phase.plot(truth.position[:, 0, 0], truth.velocity[:, 0, 0], **line("truth"))
        for name, motion in forecasts.items():
            position, velocity = np.asarray(motion.position)[:, 0, 0], np.asarray(motion.velocity)[:, 0, 0]
            height.plot(truth.time, position, **line(name))
            phase.plot(position, velocity, **line(name))
        height.set(xlabel="time / s", ylabel="height / m", title="forecast from the first state")
        phase.set(xlabel="height / m", ylabel="velocity / (m/s)", title="phase portrait")
        height.set_ylim(-1.5, 12)
        phase.set(xlim=(-1.5, 12), ylim=(-17, 17))

        places = np.linspace(0, 10, 101)
        learned = jax.vmap(network.potential.gradient)(jax.numpy.asarray(places[:, None, None], "float32"))
        slope.plot(places, np.full_like(places, 9.81), **line("truth"))
        slope.plot(places, np.asarray(learned)[:, 0, 0], **line("CD-Lagrange"))
        slope.set(xlabel="height / m", ylabel="∂U/∂q / N", title="learned potential's slope", ylim=(8.5, 11))
        handles, labels = height.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format="png")
