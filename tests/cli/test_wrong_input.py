"""Wrong input on the command line: one sentence on standard error, exit status 2, nothing left behind."""

import json
import re
import struct
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import carom
from carom.cli import COMMANDS, main
from carom.data import SystemFile, write_system_file
from carom.fits import save_model
from carom.fits.model_file import SCHEMA
from carom.mechanics import Scene, Wall
from carom.models import ResNet
from carom.systems import exact
from tests.data.test_bad_files import RECORDINGS, SYSTEM_FILES, contents

BALL = Scene(1, 1, (Wall(0, (1.0,)),))


def _refused(capsys, arguments: list[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def _one_sentence(error: str) -> None:
    assert error.startswith("carom: ")
    assert error.count("\n") == 1
    assert not re.search("Traceback|Exception|<class", error)


def _write(path: Path, content) -> None:
    if callable(content):
        content = content(path)
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.mark.parametrize("case", RECORDINGS, ids=lambda case: case.name)
def test_fit_refuses_wrong_recordings(case, tmp_path, capsys):
    if "\0" in case.file:
        pytest.skip("a file name with a null character cannot be an argument of a process")
    _write(tmp_path / case.file, case.content)
    columns, scene = case.options.get("columns"), case.options.get("scene", Scene(1, 1))
    if columns is not None and len(columns.position) != scene.coordinates:
        pytest.skip("a system file cannot name these columns: that is refused before the recording is read")
    if columns is not None and "columns" in case.options and scene is None:
        pytest.skip("needs a scene")
    missing = tuple(case.options.get("missing", ()))
    system = SystemFile(scene or Scene(1, 1), columns, case.options.get("step_size"), missing=missing)
    try:
        write_system_file(system, tmp_path / "good.toml")
    except carom.InputError:
        pytest.skip("a system file cannot say this: that is refused when it is written")
    before = contents(tmp_path)
    arguments = ["fit", str(tmp_path / case.file), "--system", str(tmp_path / "good.toml")]
    error = _refused(capsys, [*arguments, "--out", str(tmp_path / "run")])
    _one_sentence(error)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("case", SYSTEM_FILES, ids=lambda case: case.name)
def test_fit_refuses_wrong_system_files(case, tmp_path, capsys):
    (tmp_path / "good.csv").write_text("t,q1\n0,0\n0.1,1\n0.2,4\n0.3,9\n")
    _write(tmp_path / case.file, case.content)
    before = contents(tmp_path)
    arguments = ["fit", str(tmp_path / "good.csv"), "--system", str(tmp_path / case.file)]
    error = _refused(capsys, [*arguments, "--out", str(tmp_path / "run")])
    _one_sentence(error)
    for fragment in case.fragments:
        assert fragment in error
    assert contents(tmp_path) == before


def _header(**changes) -> dict:
    """The header of a good model with some keys changed, or removed by None."""
    scene = "[system]\nbodies = 1\ndimension = 1\n"
    good = {
        "schema": SCHEMA,
        "kind": "resnet",
        "options": {"hidden": 4},
        "step_size": 0.02,
        "scene": scene,
        "notes": {},
        "versions": {},
    }
    return {key: value for key, value in {**good, **changes}.items() if value is not None}


def _tensors(**changes) -> dict[str, np.ndarray]:
    shapes = {
        "increment.weights[0]": (4, 2),
        "increment.weights[1]": (2, 4),
        "increment.biases[0]": (4,),
        "increment.biases[1]": (2,),
    }
    good = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return {name: tensor for name, tensor in {**good, **changes}.items() if tensor is not None}


def _model(path: Path, header=None, tensors=None, key="carom") -> None:
    text = header if isinstance(header, str) else json.dumps(_header() if header is None else header)
    save_file(_tensors() if tensors is None else tensors, path, metadata={key: text})


def _bytes(content: bytes):
    return lambda path: path.write_bytes(content)


WRONG_MODELS = {
    "no file": (lambda path: None, "no such file"),
    "a folder": (lambda path: path.mkdir(), "not a fit directory"),
    "empty": (_bytes(b""), "empty"),
    "foreign text": (_bytes(b"weights = 1\n"), "not a whole Carom model"),
    "pickle": (
        _bytes(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94."),
        "not a whole Carom model",
    ),
    "huge header length": (_bytes(struct.pack("<Q", 2**60) + b"{}"), "not a whole Carom model"),
    "header not JSON": (_bytes(struct.pack("<Q", 4) + b"{{{{"), "not a whole Carom model"),
    "other safetensors": (lambda path: _model(path, key="pt"), "not a whole Carom model"),
    "metadata not JSON": (lambda path: _model(path, header="{"), "not a whole Carom model"),
    "metadata not an object": (lambda path: _model(path, header="[1]"), "not a whole Carom model"),
    "metadata nested deep": (lambda path: _model(path, header="[" * 100_000), "not a whole Carom model"),
    "key missing": (lambda path: _model(path, _header(options=None)), "no usable entry options"),
    "other schema": (lambda path: _model(path, _header(schema=99)), "another version of Carom"),
    "old schema": (lambda path: _model(path, _header(schema=2)), "another version of Carom"),
    "unknown model": (lambda path: _model(path, _header(kind="resnot")), "did you mean resnet?"),
    "model not a word": (lambda path: _model(path, _header(kind=[1])), "no usable entry kind"),
    "options not an object": (lambda path: _model(path, _header(options=[4])), "no usable entry options"),
    "unknown option": (lambda path: _model(path, _header(options={"width": 4})), "does not describe a model"),
    "hidden not a number": (lambda path: _model(path, _header(options={"hidden": "x"})), "does not describe"),
    "hidden huge": (lambda path: _model(path, _header(options={"hidden": 10**12})), "option is too large"),
    "hidden large": (lambda path: _model(path, _header(options={"hidden": 10**5})), "shape (100000, 2)"),
    "hidden negative": (lambda path: _model(path, _header(options={"hidden": -4})), "does not describe"),
    "step size zero": (lambda path: _model(path, _header(step_size=0)), "step_size"),
    "step size text": (lambda path: _model(path, _header(step_size="fast")), "no usable entry step_size"),
    "step size NaN": (lambda path: _model(path, _header(step_size=float("nan"))), "step_size"),
    "scene not text": (lambda path: _model(path, _header(scene=3)), "no usable entry scene"),
    "scene not TOML": (lambda path: _model(path, _header(scene="[[")), "not TOML"),
    "scene wrong": (
        lambda path: _model(path, _header(scene="[system]\nbodies = 0\ndimension = 1")),
        "bodies",
    ),
    "tensor missing": (
        lambda path: _model(path, tensors=_tensors(**{"increment.biases[0]": None})),
        "biases[0]",
    ),
    "tensor too many": (lambda path: _model(path, tensors=_tensors(extra=np.zeros(3, np.float32))), "extra"),
    "tensor of other shape": (
        lambda path: _model(path, tensors=_tensors(**{"increment.biases[0]": np.zeros(5, np.float32)})),
        "shape (4,)",
    ),
    "tensor of integers": (
        lambda path: _model(path, tensors=_tensors(**{"increment.biases[0]": np.zeros(4, np.int32)})),
        "floating point",
    ),
    "weights not finite": (
        lambda path: _model(
            path, tensors=_tensors(**{"increment.biases[0]": np.full(4, np.nan, np.float32)})
        ),
        "not finite",
    ),
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_forecast_refuses_wrong_models(name, tmp_path, capsys):
    make, fragment = WRONG_MODELS[name]
    path = tmp_path / "ball.safetensors"
    make(path)
    before = contents(tmp_path)
    out = tmp_path / "forecast.csv"
    error = _refused(capsys, ["forecast", str(path), "--start", "1,0", "--out", str(out)])
    _one_sentence(error)
    assert "ball" in error
    assert fragment in error
    assert contents(tmp_path) == before


@pytest.mark.parametrize("keep", [1, 7, 8, 9, 40, 200, -1])
def test_truncated_models_are_refused(keep, tmp_path, capsys):
    path = tmp_path / "ball.safetensors"
    save_model(ResNet(BALL, 0.02, hidden=4, key=jax.random.key(0)), path)
    path.write_bytes(path.read_bytes()[:keep])
    error = _refused(
        capsys, ["forecast", str(path), "--start", "1,0", "--out", str(tmp_path / "forecast.csv")]
    )
    _one_sentence(error)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ball.safetensors"]


OPTIONS = {
    "noise negative": (["simulate", "ball", "--noise", "-1"], "noise"),
    "noise not finite": (["simulate", "ball", "--noise", "nan"], "noise"),
    "no steps": (["simulate", "ball", "--steps", "0"], "between 1 and 10000000"),
    "too many steps": (["simulate", "ball", "--steps", "10000001"], "between 1 and 10000000"),
    "step size negative": (["simulate", "ball", "--step-size", "-0.1"], "step size"),
    "restitution above 1": (["simulate", "ball", "--restitution", "1.2"], "between 0 and 1"),
    "gravity negative": (["simulate", "pendulum", "--gravity", "-9"], "gravity"),
    "balls on a ball": (["simulate", "ball", "--balls", "3"], "no such parameter"),
    "one ball in a cradle": (["simulate", "cradle", "--balls", "1"], "at least 2"),
    "damped ball": (["simulate", "ball", "--damping", "0.1"], "no damping"),
    "start of wrong length": (["simulate", "ball", "--start", "1,2,3"], "2 are needed"),
    "start not numbers": (["simulate", "ball", "--start", "high,0"], "not a list of numbers"),
    "start not finite": (["simulate", "ball", "--start", "inf,0"], "finite"),
    "start too large for a state": (["simulate", "ball", "--start", "1e40,0"], "finite"),
    "start in the floor": (["simulate", "ball", "--start", "-1,0"], "--start -1,0: bodies overlap"),
    "second start wrong": (["simulate", "ball", "--start", "1,0", "--start", "-2,0"], "--start -2,0"),
    "balls in each other": (["simulate", "cradle", "--start", "0,0.5,0,0"], "overlap"),
    "motion not finite": (
        ["simulate", "pendulum", "--truth", "scheme", "--damping", "1e6", "--start", "1,1"],
        "leaves all bounds",
    ),
    "gravity huge": (["simulate", "cradle", "--gravity", "1e300"], "gravity"),
    "run too long": (["simulate", "pendulum", "--step-size", "1e308"], "would last"),
    "too many impacts": (["simulate", "ball", "--step-size", "1e5"], "impacts"),
    "balls without a table": (["simulate", "billiards", "--balls", "0"], "--balls must lie between 1 and 64"),
    "too full a table": (["simulate", "billiards", "--balls", "9", "--radius", "0.3"], "do not fit"),
    "a ball larger than the box": (["simulate", "box", "--radius", "2"], "must fit into the box"),
    "too many dimensions": (["simulate", "box", "--dimension", "4"], "between 1 and 3"),
    "size of another dimension": (["simulate", "box", "--size", "1,1", "--dimension", "3"], "3 are needed"),
    "size not positive": (["simulate", "box", "--size", "1,-1"], "--size"),
    "masses of other balls": (["simulate", "box", "--masses", "1,2", "--balls", "3"], "3 are needed"),
    "masses not numbers": (["simulate", "box", "--masses", "a,b"], "not a list of numbers"),
    "mass of zero": (["simulate", "box", "--masses", "1,0"], "positive"),
    "friction negative": (["simulate", "stairs", "--friction", "-1"], "--friction"),
    "rough cradle": (["simulate", "cradle", "--friction", "0.1"], "no such parameter"),
    "gravity on a table": (["simulate", "billiards", "--gravity", "1"], "no such parameter"),
    "no runs": (["simulate", "box", "--runs", "0"], "--runs"),
    "runs of a ball": (["simulate", "ball", "--runs", "2"], "--runs and --speed"),
    "speed negative": (["simulate", "box", "--speed", "-1"], "--speed"),
    "noise too large": (["simulate", "ball", "--noise", "1e308"], "leaves all bounds"),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_simulate_refuses_wrong_options(name, tmp_path, capsys, monkeypatch):
    arguments, fragment = OPTIONS[name]
    monkeypatch.setattr(exact, "MAX_IMPACTS", 1000)  # as many as there are would take seconds
    with warnings.catch_warnings(action="error"):  # a warning would be a second sentence
        error = _refused(capsys, [*arguments, "--out", str(tmp_path / "ball.csv")])
    _one_sentence(error)
    assert fragment in error
    assert not list(tmp_path.iterdir())


EVERY_COMMAND = {
    "simulate": ["simulate", "ball", "--out", "ball.csv"],
    "fit": ["fit", "ball.csv", "--out", "run"],
    "init": ["init", "ball.csv"],
    "forecast": ["forecast", "run", "--out", "forecast.csv"],
    "compare": ["compare", "ball.csv"],
    "report": ["report", "run"],
    "show": ["show", "ball.csv", "--out", "ball.png"],
    "reproduce": ["reproduce", "ball", "--out", "reproduction"],
    "demo": ["demo", "--out", "demo"],
    "sweep": ["sweep", "sweep.toml", "--out", "sweep"],
    "bench": ["bench", "--out", "speed.json"],
}


@pytest.mark.parametrize("seed", [-1, 2**32, 10**30])
@pytest.mark.parametrize("command", COMMANDS)
def test_seeds_that_are_no_key_are_refused(command, seed, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = _refused(capsys, [*EVERY_COMMAND[command], "--seed", str(seed)])
    _one_sentence(error)
    assert "--seed must" in error
    assert ("at least 0" if seed < 0 else "at most 4294967295") in error or "0 and 4294967295" in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        (["--first-seed", "-1"], "--first-seed"),
        (["--first-seed", str(2**32 - 3), "--runs", "5"], "last seed"),
        (["--runs", "0"], "--runs"),
        (["recipe", "--quick"], "--quick is not an option of the subject recipe"),
        (["grid", "--ablations"], "--ablations"),
        (["--data", "data"], "--data is not an option of the subject paper"),
        (["grid", "ball"], "no learner ball"),
        (["bodies", "ball"], "subject bodies is always run whole"),
    ],
)
def test_reproduce_refuses_wrong_options(options, fragment, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = _refused(capsys, ["reproduce", *options])
    _one_sentence(error)
    assert fragment in error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", ".", "..", "/"])
@pytest.mark.parametrize(
    "command",
    [
        ["fit", None, "--out", "run"],
        ["simulate", "ball", "--out", None],
        ["forecast", "run", "--out", None],
        ["init", None],
        ["compare", None],
        ["report", "run", "--out", None],
        ["show", None, "--out", "ball.png"],
    ],
)
def test_folders_are_no_files(command, name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    error = _refused(capsys, [name if word is None else word for word in command])
    _one_sentence(error)
    assert "this is a folder" in error
    assert not list(tmp_path.iterdir())


def test_a_missing_recording_is_told_before_its_system_file(tmp_path, capsys):
    recording = tmp_path / "nowhere.csv"
    error = _refused(capsys, ["fit", str(recording), "--out", str(tmp_path / "run")])
    _one_sentence(error)
    assert "nowhere.csv: there is no such file" in error
    recording.write_text("t,q1\n0,0\n0.1,1\n")
    error = _refused(capsys, ["fit", str(recording), "--out", str(tmp_path / "run")])
    _one_sentence(error)
    assert "no system file" in error


WRONG_STARTS = {
    "missing": None,
    "text": "1,0",
    "too short": [1.0],
    "too long": [1.0, 0.0, 0.0],
    "not numbers": ["1", "0"],
    "truth values": [True, False],
    "nested": [[1.0], [0.0]],
    "not finite": [float("nan"), 0.0],
    "infinite": [1.0, float("inf")],
    "huge": [10**400, 0],
    "an object": {"0": 1.0, "1": 0.0},
}


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_a_start_in_a_model_file_is_not_trusted(name, tmp_path, capsys):
    path, out = tmp_path / "ball.safetensors", tmp_path / "forecast.csv"
    notes = {} if WRONG_STARTS[name] is None else {"start": WRONG_STARTS[name]}
    _model(path, _header(notes=notes))
    error = _refused(capsys, ["forecast", str(path), "--out", str(out)])
    _one_sentence(error)
    assert "give --start" in error or "no usable entry notes, start" in error
    assert [entry.name for entry in tmp_path.iterdir()] == ["ball.safetensors"]


@pytest.mark.parametrize("start", [[1.0, 2.0], [1, 2]])
def test_a_start_in_a_model_file_is_used(start, tmp_path):
    path, out = tmp_path / "ball.safetensors", tmp_path / "forecast.csv"
    _model(path, _header(notes={"start": start}))
    main(["forecast", str(path), "--steps", "3", "--out", str(out)])
    assert [float(number) for number in out.read_text().splitlines()[1].split(",")] == [0, 0, 1, 2]


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["simulate", "balloon", "--out", "x.csv"], "balloon"),
        (["simulate", "ball"], "out"),
        (["fit", "ball.csv", "--out", "run", "--epochs", "many"], "epochs"),
        (["fit", "ball.csv", "--out", "run", "--modle", "resnet"], "modle"),
        (["fit", "ball.csv", "--out", "run", "--recipe", "cake"], "cake"),
        (["fit", "ball.csv", "--out", "run", "--touch", "felt"], "felt"),
        (["fit", "ball.csv", "--out", "run", "--potential", "far"], "far"),
        (["frecast"], "frecast"),
    ],
)
def test_wrong_words_are_named(arguments, fragment, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fragment in _refused(capsys, arguments)
    assert not list(tmp_path.iterdir())


PAPER = ["--recipe", "paper"]
SETTINGS = {
    "--horizon must be a number of at least 1": [*PAPER, "--horizon", "0"],
    "--stride must be a number of at least 1": [*PAPER, "--stride", "-3"],
    "--learning-rate must be a number greater than 0": [*PAPER, "--learning-rate", "0"],
    "--l2 must be a number of at least 0": [*PAPER, "--l2", "-1"],
    "needs at least": [*PAPER, "--horizon", "5000"],
    "--hidden must be a number of at least 1": ["--hidden", "0"],
    "at most 256": ["--hidden", "257"],
    "at most 100000": [*PAPER, "--hidden", "100001"],
    "--ensemble must be a number of at least 1": [*PAPER, "--ensemble", "0"],
    "--ensemble is for the recipe paper; add --recipe paper": ["--ensemble", "3"],
    "--share is for the recipe carom": [*PAPER, "--share", "kind"],
    "--around is for the recipe carom": [*PAPER, "--around", "1"],
    "--mask must lie between 0 and 10": ["--mask", "11"],
    "each must be a multiple": ["--horizons", "20", "30"],
    "--memory must be a finite number": [*PAPER, "--ensemble", "3", "--memory", "nan"],
    "--learn masses: a single body has no mass ratio": ["--learn", "masses"],
    "learn surfaces instead": ["--learn", "surfaces-per-run"],
    "--learn gap is called surfaces now": ["--learn", "gap"],
    "--learn grvity: there is no such parameter; choose among": ["--learn", "grvity"],
    "--scheme stormer_verlet is for the model vin": [*PAPER, "--scheme", "stormer_verlet"],
    "--touch must be 'observed', 'inferred' or 'imperfect', but it is 'none'": ["--touch", "none"],
    "--model is for the recipe paper": ["--model", "vin"],
    "--learn: the recipe paper takes this": [*PAPER, "--learn", "restitution"],
    "'observed' or 'none', but it is 'inferred'": [*PAPER, "--touch", "inferred"],
    "'observed' or 'none', but it is 'imperfect'": [*PAPER, "--touch", "imperfect"],
    "--sensor.missed must be a number of at most 1": ["--touch", "imperfect", "--sensor.missed", "1.5"],
    "--sensor.delay must be a number of at least 0": ["--touch", "imperfect", "--sensor.delay", "-1"],
    "add --touch imperfect": ["--touch", "inferred", "--sensor.false", "0.01"],
}


@pytest.mark.parametrize("fragment", SETTINGS)
def test_fit_refuses_wrong_settings(fragment, ball, capsys):
    before = contents(ball.parent)
    error = _refused(capsys, ["fit", str(ball), "--out", str(ball.parent / "run"), *SETTINGS[fragment]])
    _one_sentence(error)
    assert fragment in error
    assert contents(ball.parent) == before


def test_fit_refuses_what_does_not_fit_together(ball, capsys):
    out = str(ball.parent / "run")
    no_system = ball.with_name("other.csv")
    no_system.write_bytes(ball.read_bytes())
    assert "no system file" in _refused(capsys, ["fit", str(no_system), "--out", out])

    learning = ball.with_suffix(".toml")
    learning.write_text(learning.read_text().replace('"surfaces"', '"damping"'))
    assert "only the model cd-lagrange" in _refused(
        capsys, ["fit", str(ball), *PAPER, "--model", "resnet", "--out", out]
    )

    bare = ball.with_name("bare.csv")
    bare.write_text("t,q1\n" + "".join(f"{0.02 * n:.2f},{n * n}\n" for n in range(30)))
    bare.with_suffix(".toml").write_text(
        "[system]\nbodies = 1\ndimension = 1\n\n[[wall]]\nbody = 1\nnormal = [1.0]\n"
    )
    assert "velocity" in _refused(capsys, ["fit", str(bare), *PAPER, "--out", out])

    untouched = ball.with_name("untouched.csv")
    untouched.write_text("t,q1,v1\n" + "".join(f"{0.02 * n:.2f},{n * n},{n}\n" for n in range(30)))
    untouched.with_suffix(".toml").write_bytes(bare.with_suffix(".toml").read_bytes())
    assert "no touch channel" in _refused(capsys, ["fit", str(untouched), *PAPER, "--out", out])

    varying = ball.with_name("varying.csv")
    varying.write_text(
        "t,q1,v1\n" + "".join(f"{0.02 * n + 0.005 * (n % 3)},{n * n},{n}\n" for n in range(30))
    )
    holey = ball.with_name("holey.csv")
    holey.write_text("t,q1,v1\n" + "".join(f"{0.02 * n},{n * n},{'' if n == 7 else n}\n" for n in range(30)))
    for path in (varying, holey):
        path.with_suffix(".toml").write_text(
            '[system]\nbodies = 1\ndimension = 1\n\n[sampling]\nmissing = ["velocity"]\n'
        )
        error = _refused(capsys, ["fit", str(path), *PAPER, "--out", out])
        _one_sentence(error)
        assert ("the steps of this recording vary" in error) == (path is varying)
        assert ("this recording has missing values" in error) == (path is holey)

    before = contents(ball.parent)
    for touch in ("observed", "imperfect"):
        error = _refused(capsys, ["fit", str(untouched), "--touch", touch, "--out", out])
        _one_sentence(error)
        assert "no touch readings" in error
    assert contents(ball.parent) == before
    assert not (ball.parent / "run").exists()
