"""`carom bench` from end to end, and what it refuses before it measures anything."""

import json

import pytest

from carom.cli import main
from tests.bench.stored_bench import STORED

CASE = "pendulum-stormer-verlet"


@pytest.mark.campaign
def test_one_case_against_a_stored_run(tmp_path, capsys):
    figures = {"training_steps_per_second": 1.0, "cold_training_compile_seconds": 1e6}
    stored = {**STORED, "rows": [{"case": CASE, "title": "pendulum", "figures": figures}]}
    before, out = tmp_path / "before.json", tmp_path / "now.json"
    before.write_text(json.dumps(stored))
    main(["bench", "--quick", "--only", "pendulum-s", "--out", str(out), "--against", str(before), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert json.loads(out.read_text()) == document
    assert (document["kind"], document["schema"], document["quick"]) == ("carom bench", 1, True)
    assert document["command"] == "carom bench --quick --only pendulum-s"
    assert document["machine"]["cores"] >= 1
    assert document["machine"]["device"]
    assert {"carom", "python", "jax", "jaxlib"} <= set(document["versions"])
    (row,) = document["rows"]
    assert row["case"] == CASE
    measured = row["figures"]
    assert set(measured) == set(STORED["rows"][0]["figures"])
    assert all(value >= 0 for value in measured.values())
    assert measured["cold_training_compile_seconds"] > 0
    assert measured["peak_memory_bytes"] > 1e7
    ratios = document["against"]["ratios"][CASE]
    assert ratios["training_steps_per_second"] == measured["training_steps_per_second"]
    assert ratios["cold_training_compile_seconds"] > 1
    assert any("a fast one then" in words for words in document["against"]["differences"])


def _refused(capsys, arguments: list[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err.strip()


def test_refusals_come_before_any_work(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "carom.cli.bench.run_bench", lambda *_, **__: pytest.fail("nothing was to be measured")
    )
    foreign = tmp_path / "results.json"
    foreign.write_text('{"training": []}')
    assert "is not what `carom bench` writes" in _refused(capsys, ["--against", str(foreign)])
    assert "There is no case cube" in _refused(capsys, ["--only", "cube"])
    assert "exists" in _refused(capsys, ["--out", str(foreign)])
