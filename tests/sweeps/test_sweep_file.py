"""Sweep files: one sentence names what is wrong and what would be right, before anything is started."""

import pytest

from carom.cli import main
from carom.errors import InputError
from carom.sweeps.run import plan_sweep
from carom.sweeps.sweep_file import read_sweep_file
from tests.data.test_bad_files import contents

GRID = """
[sweep]
recording = "ball.csv"
seeds = 2

[fit]
recipe = "paper"
epochs = 2

[grid]
hidden = [4, 6]
"""
WRONG = {
    "[[grid]] 1, hiden: there is no such key; did you mean hidden?": GRID.replace("hidden", "hiden"),
    "grids: there is no such table; did you mean grid?": GRID.replace("[grid]", "[grids]"),
    "recording: there is no such table": GRID.replace("[sweep]\n", ""),
    "[sweep], recording: this is missing": GRID.replace('recording = "ball.csv"\n', ""),
    "[sweep], recording: write a list, not 3": GRID.replace('"ball.csv"', "3"),
    "nothing.csv: there is no such file": GRID.replace("ball.csv", "nothing.csv"),
    "[sweep], seeds: a value is there twice": GRID.replace("seeds = 2", "seeds = [1, 1]"),
    "[sweep], seeds: write a number of seeds from 1 to 10000": GRID.replace("seeds = 2", "seeds = 0"),
    "[sweep], hold_out: write a number less than 1, not 1.5": GRID.replace("seeds = 2", "hold-out = 1.5"),
    "[fit]: seed goes under [sweep]": GRID.replace("epochs = 2", "seed = 2"),
    "fit hidden=4,seed=0: `epochs` must be a whole number, but it is 2.5": GRID.replace(
        "epochs = 2", "epochs = 2.5"
    ),
    "fit hidden=4,seed=0: `recipe` must be one of 'carom', 'paper'": GRID.replace('"paper"', '"papers"'),
    "[fit], sensor: there is no such key; did you mean sensor.false?": GRID.replace(
        "epochs = 2", "sensor = 0.1"
    ),
    "[fit], sensor.mised: there is no such key; did you mean sensor.missed?": GRID.replace(
        "epochs = 2", "sensor.mised = 0.1"
    ),
    "[[grid]] 1, hidden: the option stands under [fit] too": GRID.replace("epochs = 2", "hidden = 4"),
    "[[grid]] 1, hidden: write a list of values to try, not 4": GRID.replace("[4, 6]", "4"),
    "[[grid]] 1, hidden: a value is there twice": GRID.replace("[4, 6]", "[4, 4]"),
    "fit hidden=0,seed=0: `hidden` must be a number of at least 1": GRID.replace("[4, 6]", "[4, 0]"),
    "fit touch=inferred,seed=0: `touch` must be 'observed' or 'none'": GRID.replace(
        "hidden = [4, 6]", 'touch = ["observed", "inferred"]'
    ),
    "fit horizon=400,seed=0: ": GRID.replace("hidden = [4, 6]", "horizon = [4, 400]"),
    "`epochs` is for the recipe paper; add `recipe` paper": GRID.replace('"paper"', '"carom"'),
    "[grid]: the fit hidden=4,seed=0": GRID.replace("[grid]", "[[grid]]\nhidden = [4]\n[[grid]]"),
    "more than the 100000 allowed": GRID.replace("seeds = 2", "seeds = 10000").replace(
        "[4, 6]", f"{list(range(1, 30))}"
    ),
    "[[grid]] 2, hiden: there is no such key": GRID.replace(
        "[grid]", "[[grid]]\nhidden = [4]\n[[grid]]\nhiden = [6]"
    ),
    "[cluster], worker: there is no such key; did you mean workers?": GRID + "[cluster]\nworker = 2\n",
    "[cluster], scheduler: write an address": GRID + '[cluster]\nscheduler = "node1"\n',
    "[cluster]: an existing scheduler has workers": GRID
    + '[cluster]\nscheduler = "tcp://a:1"\nworkers = 2\n',
    "[cluster]: the key workers is missing": GRID + "[cluster.slurm]\n",
    "[cluster.slurm], queues: there is no such key; did you mean queue?": GRID
    + '[cluster]\nworkers = 1\n[cluster.slurm]\nqueues = "x"\n',
}


@pytest.mark.parametrize("fragment", WRONG)
def test_wrong_files_are_refused_before_anything_is_started(fragment, file, capsys):
    file.write_text(WRONG[fragment])
    before = contents(file.parent)
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(file), "--out", str(file.parent / "out")])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert fragment in error
    assert error.startswith("carom: ")
    assert len(error.splitlines()) == 1
    assert contents(file.parent) == before


@pytest.fixture
def file(file):
    file.write_text(GRID)
    return file


def test_fits_come_in_the_order_of_the_file(file):
    fits = plan_sweep(read_sweep_file(file))
    assert [(fit.varied["hidden"], fit.varied["seed"]) for fit in fits] == [
        (4, 0),
        (4, 1),
        (6, 0),
        (6, 1),
    ]
    assert len({fit.name for fit in fits}) == len({fit.fingerprint for fit in fits}) == 4
    assert all(fit.options.settings.epochs == 2 and fit.options.hold_out == 0.2 for fit in fits)


def test_dashes_are_as_good_as_underscores(file):
    file.write_text(GRID.replace("hidden", "learning_rate").replace("[4, 6]", "[1, 0.5]"))
    before = plan_sweep(read_sweep_file(file))
    file.write_text(file.read_text().replace("learning_rate", "learning-rate"))
    assert plan_sweep(read_sweep_file(file)) == before


def test_several_grids_are_one_after_the_other(file):
    text = GRID.replace('recipe = "paper"\nepochs = 2\n', "").replace("seeds = 2", "seeds = [7]")
    grids = '[[grid]]\nrecipe = ["carom"]\nlearn = [["surfaces"], ["restitution", "surfaces"]]\n'
    grids += '[[grid]]\nrecipe = ["paper"]\n'
    file.write_text(text[: text.index("[grid]")] + grids)
    fits = plan_sweep(read_sweep_file(file))
    assert [fit.options.learn for fit in fits] == [("surfaces",), ("restitution", "surfaces"), None]
    assert [fit.name.rpartition("-")[0] for fit in fits] == [
        "recipe=carom,learn=surfaces",
        "recipe=carom,learn=restitution+surfaces",
        "recipe=paper",
    ]


def test_another_recording_is_another_fit(file):
    before = {fit.fingerprint for fit in plan_sweep(read_sweep_file(file))}
    recording = file.with_name("ball.csv")
    recording.write_text(recording.read_text().replace("1.", "1.0", 1))
    assert before.isdisjoint(fit.fingerprint for fit in plan_sweep(read_sweep_file(file)))


def test_a_fit_that_is_impossible_for_one_recording_names_it(file):
    bare = file.with_name("bare.csv")
    bare.write_text("t,q1\n" + "".join(f"{0.02 * n:.2f},{n * n}\n" for n in range(30)))
    bare.with_suffix(".toml").write_text("[system]\nbodies = 1\ndimension = 1\n")
    file.write_text(GRID.replace('"ball.csv"', '["ball.csv", "bare.csv"]'))
    with pytest.raises(InputError, match=r"fit recording=bare\.csv,hidden=4,seed=0: .*velocity"):
        plan_sweep(read_sweep_file(file))


def test_fields_of_the_touch_sensor_vary(file):
    file.write_text(
        GRID[: GRID.index("[fit]")]
        + '[fit]\ntouch = "imperfect"\nsensor.delay = 0\n[grid]\nsensor.missed = [0.1, 0.2]\n'
    )
    fits = plan_sweep(read_sweep_file(file))
    assert [fit.options.settings.sensor.missed for fit in fits] == [0.1, 0.1, 0.2, 0.2]
    assert {fit.options.settings.sensor.delay for fit in fits} == {0}
    assert fits[0].name.startswith("sensor.missed=0.1,seed=0-")
