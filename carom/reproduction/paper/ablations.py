"""The paper's claims as ablations: what changes when one thing is changed, over many seeds."""

from dataclasses import replace

from carom.reproduction.paper.experiments import EXPERIMENTS, Experiment, Trained

_BALL, _CRADLE = EXPERIMENTS["ball"], EXPERIMENTS["cradle"]
HORIZONS = (1, 2, 5, 10, 20, 50)

ABLATIONS: dict[str, Experiment] = {
    # Does U absorb the contacts without ℓ²? The slope of the learned potential tells.
    "ablation-l2": replace(
        _BALL,
        title="ℓ² on and off",
        trained={
            name: Trained("cd-lagrange", changes={"l2": l2, "touch": touch})
            for name, l2, touch in (
                ("ℓ² 0.005", 5e-3, "observed"),
                ("ℓ² off", 0.0, "observed"),
                ("ℓ² 0.005, no touch", 5e-3, "none"),
                ("ℓ² off, no touch", 0.0, "none"),
            )
        },
    ),
    "ablation-projection": replace(
        _CRADLE,
        title="Projection in the learned cradle",
        trained={
            mode.replace("_", " "): Trained(
                "cd-lagrange",
                scene={"projection": mode, "reference": reference},
            )
            for mode, reference in (
                ("none", ()),
                ("inverse_mass", ()),
                ("reference_point", ((0.0,), (0.0,))),
            )
        },
    ),
    # The loss is a sum over the horizon; ℓ² grows with it, so that its weight beside the data stays.
    "ablation-horizon": replace(
        _BALL,
        title="Horizon of the windows",
        trained={
            f"horizon {horizon}": Trained(
                "cd-lagrange", changes={"horizon": horizon, "l2": _BALL.l2 * horizon / 10}
            )
            for horizon in HORIZONS
        },
    ),
}
"""Run under the protocol `published`, whose windows overlap: the text's trajectories fix the horizon."""
