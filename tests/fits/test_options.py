"""The one declaration of a fit's options, and what is made from it: arguments, defaults, error messages."""

from dataclasses import fields

import pytest

from carom.cli.fit import FitArguments
from carom.errors import SettingsError
from carom.fits.options import OPTIONS, FitOptions, PaperSettings, Settings


def test_every_setting_is_an_option_with_an_explanation():
    names = {part.name for kind in (Settings, PaperSettings, FitOptions) for part in fields(kind)}
    assert {*OPTIONS} == names - {"settings"} | {"recipe"}
    assert all(option.explanation.endswith(".") for option in OPTIONS.values())
    assert [part.name for part in fields(FitArguments)] == [*OPTIONS]


def test_options_without_values_are_the_defaults():
    assert FitOptions.from_values({}) == FitOptions()
    assert FitOptions.from_values(vars(FitArguments())) == FitOptions()
    paper = FitOptions.from_values(vars(FitArguments(recipe="paper")))
    assert paper == FitOptions(settings=PaperSettings())
    assert (FitOptions().recipe, paper.recipe) == ("carom", "paper")


def test_an_option_of_both_recipes_has_the_default_of_each():
    assert [OPTIONS[name].default for name in ("touch", "hidden")] == [None, None]
    assert "Default: 32; in the recipe paper 500." in OPTIONS["hidden"].explanation
    assert FitOptions.from_values({"hidden": 8, "touch": "observed"}).settings == Settings(
        hidden=8, touch="observed"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden": 257}, "`hidden` must be a number of at most 256, but it is 257."),
        (
            {"recipe": "paper", "learning_rate": 0.0},
            "`learning_rate` must be a number greater than 0, but it is 0.0.",
        ),
        (
            {"recipe": "paper", "mask": 3},
            "`mask` is for the recipe carom; add `recipe` carom or",
        ),
        ({"sensor.missed": 2.0}, "`sensor.missed` must be a number of at most 1, but it is 2.0."),
        ({"sensor.missed": 0.1}, "`sensor` is for an imperfect touch sensor; add `touch` imperfect."),
        ({"hold_out": 1.0}, "`hold_out` must be a number less than 1, but it is 1.0."),
        ({"recipe": "paper", "ensemble": 9, "seed": 2**32 - 3}, "the last of the `ensemble` would exceed"),
    ],
)
def test_errors_name_fields(values, message):
    with pytest.raises(SettingsError) as refusal:
        FitOptions.from_values(values)
    assert message in str(refusal.value)
