"""Stored runs of `carom bench`: compared, refused and shown."""

import numpy as np
import pytest

from carom.bench.cases import MODEL_CASES, NAMES
from carom.bench.run import compare, fit_table, model_table, read_bench, run_bench
from carom.errors import InputError, find_names
from tests.bench.stored_bench import STORED, stored_run


def test_ratios_say_how_many_times_better():
    slower = {
        case: {name: value * (0.5 if "per_" in name else 2.0) for name, value in figures.items()}
        for case, figures in STORED.items()
    }
    ratios, differences = compare(stored_run(), stored_run(figures=slower))
    assert set(ratios["experiment"]) == set(STORED)
    np.testing.assert_allclose(ratios["ratio"], 2.0)
    # What is neither a rate nor a cost is not better or worse.
    assert "epochs" not in ratios["metric"]
    assert differences == []


def test_differences_besides_time_are_named():
    other = stored_run(machine="an older one", command="carom bench --quick")
    other.header["versions"]["torch"] = "2.0"
    _, differences = compare(stored_run(), other)
    assert differences[0] == "machine: an older one then, a fast one, 2 cores, cpu: cpu now"
    assert differences[1] == "torch: 2.0 then, none now"
    assert "--quick" in differences[2]


def test_cases_in_one_run_alone_have_no_ratios():
    fewer = stored_run(figures={"fit-carom": STORED["fit-carom"]})
    assert set(compare(stored_run(), fewer)[0]["experiment"]) == {"fit-carom"}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "not JSON",
        "[1, 2]",
        '{"rows": []}',
        '{"rows": [{"experiment": "ball", "metric": "error", "value": "small"}], "command": "carom bench"}',
        '{"rows": [{"experiment": "ball", "metric": "error", "value": 1.0}], "command": "carom demo"}',
        '{"rows": 1, "command": "carom bench"}',
        '{"rows": [], "command": "carom bench", "versions": 1}',
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
    written, read = stored_run(path), read_bench(path)
    assert read.rows.equals(written.rows)
    assert read.header == written.header


def test_names_choose_by_their_beginning():
    assert find_names(("cradle", "fit-c"), NAMES, kind="case") == ["cradle-cd-lagrange", "fit-carom"]
    with pytest.raises(InputError, match="no case balls"):
        run_bench(("ball", "balls"))


def test_every_kind_of_model_is_measured():
    kinds = {(case.model, case.options.get("scheme")) for case in MODEL_CASES.values()}
    assert {model for model, _ in kinds} == {"cd-lagrange", "vin", "resnet", "contact-resnet", "mechanism"}
    assert ("vin", "stormer_verlet") in kinds


def test_tables_show_the_published_code_without_a_ratio():
    """A ratio holds only if both were measured in one session."""
    rows = stored_run().rows
    (model,) = model_table(rows).rows
    assert model[:3] == ("ball, CD-Lagrange", "1600", "160–200")
    assert model[5:] == ("5.0", "1.5", "400")
    by_carom, by_paper = fit_table(rows).rows
    assert by_carom[4] == by_paper[4] == "300"
    assert by_paper[0].endswith("3000 epochs")
    assert not any("×" in cell for row in (model, by_carom, by_paper) for cell in row)
