"""ART's stopping rules on stored scores."""

from pathlib import Path

import pytest

from hypersparse.methods.art import ART
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from reproduction.stop_rules import Stop, replayed, stop_of
from tests.analysis.small import write
from tests.stored import whole_entry

PRUNED = (0.3, 0.85, 0.9, 0.95, 0.9)
DENSE = 0.84


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run whose phase ended after five epochs."""
    folder = write(tmp_path, data="cifar10", model="resnet32", epochs={"pre-train": 1}).folder
    for epoch, score in enumerate(PRUNED):
        scores = {"pruned_score": score, "dense_score": DENSE, "best_score": 0.0, "best_epoch": 3}
        folder.append_log(whole_entry(epoch=1 + epoch, phase="regularize", **scores))
    return folder


def test_each_rule_stops_where_its_score_is_enough(run: RunFolder) -> None:
    assert stop_of(run, ART()) == Stop(epochs=4, mask_epochs=3)  # 0.9 on average over the epochs 1 to 3
    assert stop_of(run, ART(stop_reference="first_release")) == Stop(epochs=2, mask_epochs=2)  # 0.85


def test_a_rule_may_not_have_stopped_when_the_run_ended(tmp_path: Path, run: RunFolder) -> None:
    lines = run.log_file.read_text().splitlines(keepends=True)
    run.log_file.write_text("".join(lines[:4]))
    assert stop_of(run, ART()) is None
    (row,) = replayed(RunStore(tmp_path)).to_dict("records")
    assert (row["own_score_trained"], row["own_score_mask"], row["seeds"]) == (2, 2, 1)
    assert row["average_trained"] is None


def test_without_runs_there_are_no_rows(tmp_path: Path) -> None:
    assert len(replayed(RunStore(tmp_path))) == 0
