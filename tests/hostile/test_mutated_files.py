"""Damaged files of every format: an answer or one sentence, soon and in little memory."""

import pytest

from tests.hostile.formats import FORMATS
from tests.hostile.mutations import mutated
from tests.hostile.watched import Watched


def try_files(name: str, folder, numbers: range) -> Watched:
    """Read the mutated files of these numbers, one after another."""
    form = FORMATS[name]
    seeds = form.prepare(folder)
    path = folder / form.place
    watched = Watched()
    path.write_bytes(seeds[0])
    form.read(folder)  # what a first call loads is not counted
    for number in numbers:
        path.write_bytes(mutated(seeds, form.mutations, number))
        watched.try_file(lambda: form.read(folder), f"{name} {number}")
    return watched


@pytest.mark.parametrize("name", FORMATS)
def test_some_damaged_files(name, tmp_path, capfd):
    watched = try_files(name, tmp_path, range(150))
    assert not watched.faults, watched.faults[:5]
    assert watched.refused > 0 or name == "checkpoint"
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


@pytest.mark.campaign
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FORMATS)
def test_five_thousand_damaged_files(name, tmp_path, capfd, record_property):
    watched = try_files(name, tmp_path, range(1000, 6000))
    printed = capfd.readouterr()
    record_property("watched", str(watched))
    with capfd.disabled():
        print(f"\n{name}: {watched}")
    assert not watched.faults, watched.faults[:5]
    assert printed.out + printed.err == ""
