"""What to know about each experiment: why a number does not come out, and what was tried.

They stand on the page beside the tables. Where a remark quotes a number, it says which seeds gave it.
"""

_BALL = (
    "The ball's error is nearly a count: a bounce predicted one sample late costs about 3.8, whatever else "
    "is right. Constant Adam at 1e-2 leaves the learned force wandering across the value where a bounce "
    "slips, so that the stopping epoch decides; a longer horizon helps on the training span (see the "
    "ablation), the recipe with latent states cures it."
)
_TEXT = (
    "Under “text” the strength of ℓ² is not printed. With the published strength on an average over the "
    "horizon the penalty outweighs the data (seeds 0 to 19: median of CD-Lagrange 8.56 on the ball and 2.48"
    " on the pendulum); divided by the horizon, as it is here, it has the weight that it has beside the "
    "published sum. Six thousand updates at 1e-3 are still few: the force is not yet learned to the "
    "precision that bounces need."
)

REMARKS: dict[str, tuple[str, ...]] = {
    "pendulum": (
        "CD-Lagrange steps with the force at the start of a step where VIN averages two, so VIN is below it"
        " in most seeds, as in the paper. Under “published” the data are sampled at 4/199 s and the models "
        "step at 0.02 s: even the true potential then scores 0.080 (CD-Lagrange) and 0.070 (VIN).",
    ),
    "ball": (_BALL, _TEXT),
    "ball-table": (
        _BALL,
        _TEXT,
        "Means of the residual networks are carried by seeds that run away in free rollout; their medians "
        "are nearer to the paper, whose five runs may have met none. Nothing of theirs was tuned: layers, "
        "rate and epochs are the paper's or the published code's.",
    ),
    "inelastic-ball": (
        "The data are noise-free and the ball comes to rest near the end. Under “text” the models have seen"
        " few samples near the floor at low speed, and CD-Lagrange bounces on there.",
    ),
    "inelastic-ball-0.8": (
        "The paper's text says e = 0.8, its caption 0.7; both are run and compared with the same printed "
        "numbers.",
    ),
    "cradle": (
        "The published data exchange velocities one step after the gap has closed, with the gap tested "
        "before the step; the scheme tests it after. With the true equations that alone costs 0.45 to 0.5 "
        "wherever the contact network has not learned the other rule.",
    ),
    "cradle-table": (
        "ResNet's mean is carried by seeds that run away in free rollout; its median is the number to "
        "compare. Nothing was tuned: layers, rate and epochs are the published code's.",
    ),
    "damped-pendulum": (
        "This experiment is in the authors' code only, and its ℓ² is not known. With that of the pendulum "
        "(5e-3) the penalty outweighs the data and nothing is learned (seeds 0 to 19: median 1.48); that of"
        " the cradle, which has the same step, is used.",
    ),
    "ablation-l2": (
        "With touch given, ℓ² is not what keeps contacts out of the potential: without it the slope is "
        "rougher and the bounces are timed as well. Without touch the potential absorbs them either way.",
    ),
    "ablation-projection": (
        "No mode wins by more than its spread; the reference point, the paper's choice, is not better than "
        "none.",
    ),
    "ablation-horizon": (
        "ℓ² is scaled with the horizon, so that its weight beside the sum over the horizon stays the same.",
    ),
}
