"""Statistics over seeds against numbers worked out by hand."""

import math

import pytest

from carom.reproduction.paper.experiments import PaperNumber
from carom.reproduction.paper.statistics import Share, median_index, orders, score, spread, without_touch


def summary(model: str, errors: list[float], *, paper: list | None, touch: str = "observed", **row) -> dict:
    return {
        "experiment": "ball",
        "title": "Ball",
        "place": "Figure 5",
        "model": model,
        "protocol": "text",
        "paper": paper,
        "settings": {"touch": touch},
        "rows": [
            {"seed": seed, "paper_rmse": error, "held_out_paper_rmse": [error, 2 * error, 9 * error], **row}
            for seed, error in enumerate(errors)
        ],
    }


def test_spread_of_four_numbers():
    # Squares about the mean 4: 9 + 4 + 1 + 16 = 30, variance 10, standard error √(10/4).
    found = spread([1.0, 2.0, 5.0, 8.0])
    assert (found.count, found.mean, found.median, found.diverged) == (4, 4.0, 3.5, 0)
    assert found.standard_error == pytest.approx(math.sqrt(2.5))


def test_one_number_has_no_standard_error():
    assert spread([3.0]).standard_error is None


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_diverged_seed_counts_as_infinite(wrong: float):
    found = spread([1.0, wrong, 2.0])
    assert (found.mean, found.standard_error, found.median, found.diverged) == (math.inf, None, 2.0, 1)
    assert median_index([1.0, wrong, 2.0]) == 2


def test_median_seed_of_an_even_number_is_the_lower_one():
    assert median_index([9.0, 1.0, 4.0, 3.0]) == 3


def test_score_of_a_figure_counts_seeds_at_or_below():
    found = score(summary("CD-Lagrange", [0.5, 1.0, 1.5, math.nan], paper=[1.0, None]))
    assert found.at_or_below == Share(2, 4)
    assert not found.in_table
    assert found.held_out == (1.0, 2.0, 3.0, math.inf)


def test_score_of_a_table_compares_the_mean_with_the_upper_end():
    assert score(summary("CD-Lagrange", [1.0, 2.0, 6.0], paper=[2.0, 1.0])).mean_within_bound
    assert not score(summary("CD-Lagrange", [1.0, 2.0, 6.1], paper=[2.0, 1.0])).mean_within_bound
    assert score(summary("CD-Lagrange", [1.0], paper=[2.0, 1.0])).paper == PaperNumber(2.0, 1.0)


def test_impacts_of_all_seeds_are_added():
    impacts = {"true_impacts": 3, "mistimed": 1, "missed": 0, "spurious": 2}
    row = impacts | {"highest_contact_probability": 0.7}
    found = score(summary("CD-Lagrange", [1.0, 2.0], paper=None, **row)).impacts
    assert found is not None
    assert (found.true, found.mistimed, found.missed, found.spurious) == (6, 2, 0, 4)
    assert score(summary("ResNet", [1.0], paper=None)).impacts is None


def test_order_is_counted_seed_by_seed():
    ours = score(summary("CD-Lagrange", [1.0, 2.0, 3.0], paper=[0.5, None]))
    baseline = score(summary("ResNet", [2.0, 1.0, 4.0], paper=[0.6, None]))
    blind = score(summary("CD-Lagrange (no touch)", [9.0, 9.0, 9.0], paper=[7.0, None], touch="none"))
    (order,) = orders([ours, baseline, blind])
    assert (order.below, order.printed_below, order.as_printed) == (Share(2, 3), True, True)
    ((_, other, worse),) = without_touch([ours, baseline, blind])
    assert (other.model, worse) == ("CD-Lagrange (no touch)", Share(3, 3))


def test_stored_held_out_median_is_taken_as_it_is():
    stored = summary("CD-Lagrange", [1.0], paper=None, held_out_median=0.25)
    assert score(stored).held_out == (0.25,)
