from pathlib import Path

import pytest

from hypersparse.analysis.stored import by_name, load, names, with_records
from hypersparse.errors import RunError
from tests.analysis.small import write


def test_names_say_what_differs(tmp_path: Path) -> None:
    runs = [write(tmp_path), write(tmp_path, sparsity=0.98), write(tmp_path, seed=1)]
    assert names(runs) == ["art 90 %", "art 98 %", "art 90 %"]
    assert {name: [run.seed for run in members] for name, members in by_name(runs).items()} == {
        "art 90 %": [0, 1],
        "art 98 %": [0],
    }
    assert names([*runs, write(tmp_path, method="dense")])[-1] == "dense"
    assert names([runs[0], write(tmp_path, method_options={"penalty": "l1"})]) == ["art hypersparse", "art l1"]


def test_options_that_are_not_the_presets_make_a_variant(tmp_path: Path) -> None:
    usual, other = write(tmp_path), write(tmp_path, method_options={"growth": 1.5})
    assert (usual.variant, other.variant) == (None, "growth=1.5")
    assert names([usual, other]) == ["art", "art growth=1.5"]
    assert names([other]) == ["art"]


def test_unfinished_runs_are_left_out_and_none_is_said(tmp_path: Path) -> None:
    run = write(tmp_path)
    run.folder.result_file.unlink()
    with pytest.raises(RunError, match="None of these runs is finished"):
        load([run.folder.path])
    other = write(tmp_path, seed=1)
    assert [each.seed for each in load([run.folder.path, other.folder.path])] == [1]
    other.folder.record_file.unlink()
    with pytest.raises(RunError, match="None of these runs has a record"):
        with_records([other])
