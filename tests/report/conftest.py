"""Pages of small fits, by the command line."""

import numpy as np
import pytest

from carom.cli import main


@pytest.fixture(scope="session")
def fitted_page(tmp_path_factory):
    """A ball from positions with a name that tries to hurt, fitted by the recipe carom."""
    folder = tmp_path_factory.mktemp("page")
    recording = folder / "<b>ball.csv"
    time = 0.0051 * np.arange(510)
    impact = np.sqrt(2 * 2 / 9.81)
    rebound = 0.8 * 9.81 * impact
    since = time - impact
    height = np.where(since < 0, 2 - 0.5 * 9.81 * time**2, rebound * since - 0.5 * 9.81 * since**2)
    height = height[time < impact + 1.9 * rebound / 9.81]
    height += 0.002 * np.random.default_rng(0).standard_normal(len(height))
    rows = [f"{t:.4f},{h:.6f}" for t, h in zip(time, height, strict=False)]
    recording.write_text("\n".join(["t,height <script>$alert(1)$</script>", *rows]) + "\n")
    main(["init", str(recording)])
    # A small network from one start, in two stages: few programs to compile.
    small = ["--hidden", "8", "--starts", "1", "--horizons", "100"]
    main(["fit", str(recording), *small, "--hold-out", "0.2", "--out", str(folder / "run")])
    main(["report", str(folder / "run")])
    return folder / "run" / "report.html"


@pytest.fixture(scope="session")
def trained_page(tmp_path_factory):
    """A cradle by the paper's recipe, an ensemble of two."""
    folder = tmp_path_factory.mktemp("page")
    recording = folder / "cradle.csv"
    main(["simulate", "cradle", "--steps", "120", "--noise", "0.01", "--out", str(recording)])
    quick = ["--recipe", "paper", "--epochs", "4", "--hidden", "8", "--ensemble", "2", "--hold-out", "0.2"]
    main(["fit", str(recording), *quick, "--out", str(folder / "run")])
    main(["report", str(folder / "run"), "--out", str(folder / "page.html")])
    return folder / "page.html"
