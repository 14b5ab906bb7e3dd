"""Where a model lacks what acts on the bodies, fits stay with the motion around impacts, and say so."""

import carom
from carom.systems import BouncingBall, Laboratory
from tests.estimation.test_terms import drops

SETTINGS = carom.Settings(
    learn=("restitution", "surfaces", "gravity"),
    potential="none",
    stepper="constraint_exact",
    horizons=(20,),
)


def test_motions_that_air_slows_are_fitted_piece_by_piece():
    """Drag that is not learned: whole runs would bend restitution, short segments hardly do."""
    fit = carom.fit(drops(Laboratory(BouncingBall(restitution=0.8), drag=0.15)), settings=SETTINGS)
    restitution = next(one for one in fit.parameters if one.key == "restitution")
    assert abs(restitution.value - 0.8) < 0.03
    assert fit.diagnostics.messages[0].startswith("The model explains")
    assert not fit.failed
