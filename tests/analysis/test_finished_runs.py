from pathlib import Path

import pytest

from hypersparse.analysis.finished_runs import group_by_name, load, short_names, with_records
from hypersparse.errors import RunError
from tests.analysis.small import write


def test_names_say_what_differs(tmp_path: Path) -> None:
    runs = [write(tmp_path), write(tmp_path, sparsity=0.98), write(tmp_path, seed=1)]
    assert short_names(runs, "sparsity", "data") == [f"art hypersparse, {sparsity} %" for sparsity in (90, 98, 90)]
    assert {name: [run.seed for run in members] for name, members in group_by_name(runs).items()} == {
        "art hypersparse, 90 %": [0, 1],
        "art hypersparse, 98 %": [0],
    }
    assert short_names([*runs, write(tmp_path, method="dense")], "sparsity")[-1] == "dense"
    assert short_names(runs) == ["art hypersparse"] * 3


def test_options_that_are_not_the_presets_make_a_variant(tmp_path: Path) -> None:
    usual, other = write(tmp_path), write(tmp_path, method_options={"growth": 1.5})
    assert (usual.variant, other.variant) == ("art hypersparse", "art hypersparse, growth=1.5")
    assert (usual.matches_preset, other.matches_preset) == (True, False)
    assert short_names([usual, other]) == [usual.variant, other.variant]


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
