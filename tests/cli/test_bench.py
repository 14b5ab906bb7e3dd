"""`carom bench` from end to end, and what it refuses before it measures anything."""

import json

import pytest

from carom.bench.run import read_bench
from carom.cli import main
from tests.bench.stored_bench import MODEL, stored_run

CASE = "pendulum-stormer-verlet"


@pytest.mark.campaign
def test_one_case_against_a_stored_run(tmp_path, capsys):
    before, out = tmp_path / "before.json", tmp_path / "now.json"
    stored_run(before, {CASE: {"training_steps_per_second": 1.0, "cold_compile_seconds": 1e6}})
    main(["bench", "--quick", "--only", "pendulum-s", "--out", str(out), "--against", str(before), "--json"])
    document = json.loads(capsys.readouterr().out)
    assert read_bench(out).header == {
        key: document[key] for key in document if key not in ("rows", "against")
    }
    assert document["command"] == "carom bench --quick --only pendulum-s"
    assert "cores" in document["machine"]
    assert {"carom", "python", "jax"} <= set(document["versions"])
    measured = {row["metric"]: row["value"] for row in document["rows"] if row["experiment"] == CASE}
    assert set(measured) == set(MODEL)
    assert len(document["rows"]) == len(MODEL)
    assert all(value >= 0 for value in measured.values())
    assert measured["cold_compile_seconds"] > 0
    assert measured["peak_memory_bytes"] > 1e7
    ratios = {row["metric"]: row["ratio"] for row in document["against"]["ratios"]}
    assert ratios["training_steps_per_second"] == measured["training_steps_per_second"]
    assert ratios["cold_compile_seconds"] > 1
    assert any("a fast one" in words for words in document["against"]["differences"])


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
    assert "is not a file of results" in _refused(capsys, ["--against", str(foreign)])
    assert "There is no case cube" in _refused(capsys, ["--only", "cube"])
    assert "exists" in _refused(capsys, ["--out", str(foreign)])
