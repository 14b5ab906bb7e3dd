"""Stored runs of `carom bench`: compared, refused and shown."""

import copy
import json

import numpy as np
import pytest

from carom.bench.cases import MODEL_CASES, NAMES
from carom.bench.run import MAXIMUM_BYTES, compare, fit_table, model_table, read_bench, run_bench
from carom.errors import InputError, find_names
from tests.bench.stored_bench import STORED


def test_ratios_say_how_many_times_better():
    slower = copy.deepcopy(STORED)
    for row in slower["rows"]:
        for name in row["figures"]:
            row["figures"][name] *= 0.5 if "per_" in name else 2.0
    ratios = compare(STORED, slower)["ratios"]
    assert set(ratios) == {row["case"] for row in STORED["rows"]}
    for case in ratios.values():
        np.testing.assert_allclose(list(case.values()), 2.0)
    # What is neither a rate nor a cost is not better or worse.
    assert "epochs" not in ratios["fit-paper"]


def test_differences_besides_time_are_named():
    other = copy.deepcopy(STORED)
    assert compare(STORED, other)["differences"] == []
    other["machine"]["processor"] = "an older one"
    other["versions"]["torch"] = "2.0"
    other["quick"] = not other["quick"]
    found = compare(STORED, other)["differences"]
    assert found[0] == "processor: an older one then, a fast one now"
    assert found[1] == "torch: 2.0 then, none now"
    assert "--quick" in found[2]


def test_cases_in_one_run_alone_have_no_ratios():
    fewer = {**STORED, "rows": STORED["rows"][:1]}
    assert list(compare(STORED, fewer)["ratios"]) == [STORED["rows"][0]["case"]]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "[1, 2]",
        '{"rows": []}',
        '{"kind": "carom bench", "schema": 99}',
        json.dumps({**STORED, "rows": [{"case": "ball", "figures": {"error": "small"}}]}),
        json.dumps({**STORED, "machine": None}),
        "[" * 100_000,
    ],
)
def test_foreign_files_are_refused(content, tmp_path):
    path = tmp_path / "stored.json"
    path.write_text(content)
    with pytest.raises(InputError) as refusal:
        read_bench(path)
    assert str(refusal.value).startswith(f"{path}: ")
    assert str(refusal.value).count("\n") == 0


def test_a_stored_run_is_read(tmp_path):
    path = tmp_path / "stored.json"
    path.write_text(json.dumps(STORED))
    assert path.stat().st_size < MAXIMUM_BYTES
    assert read_bench(path) == STORED


def test_names_choose_by_their_beginning():
    assert find_names(("cradle", "fit-c"), NAMES, kind="case") == ["cradle-cd-lagrange", "fit-carom"]
    with pytest.raises(InputError, match="no case balls"):
        run_bench(("ball", "balls"))


def test_every_kind_of_model_is_measured():
    kinds = {(case.model, case.options.get("scheme")) for case in MODEL_CASES.values() if case.trained}
    assert {model for model, _ in kinds} == {"cd-lagrange", "vin", "resnet", "contact-resnet"}
    assert ("vin", "stormer_verlet") in kinds


def test_tables_show_the_published_code_without_a_ratio():
    """A ratio holds only if both were measured in one session."""
    (model,) = model_table(STORED).rows
    assert model[:3] == ("ball, CD-Lagrange", "1600", "160–200")
    by_carom, by_paper = fit_table(STORED).rows
    assert by_carom[4] == "300"
    assert by_paper[0].endswith("1500 epochs")
    assert by_paper[4] == "150"  # the published code's time for half its epochs
    assert not any("×" in cell for row in (model, by_carom, by_paper) for cell in row)
