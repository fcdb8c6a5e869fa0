"""ART: what is not in the paper, to be tried at equal epochs."""

import json
import math
from pathlib import Path

import pytest

from hypersparse.recipe import merge, resolve
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.training.small import TABLES, StopAfter, small

VARIANTS = [
    {"method": {"stop_reference": "paper"}},
    {"method": {"best_by": "mean"}},
    {"training": {"schedule": "cosine"}},
]


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda tables: next(iter(next(iter(tables.values())))))
def test_each_trains_to_its_end(variant: dict[str, dict[str, object]], tmp_path: Path) -> None:
    recipe = resolve(merge(TABLES, variant))
    result = train(recipe, 0, Machine(device="cpu"), tmp_path / "run")
    assert result["kept"] == result["total"] - math.floor(recipe.method.sparsity * result["total"])  # type: ignore[attr-defined]
    assert result["until"] is None


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_stopped_in_the_middle_of_the_regularized_phase_it_ends_the_same(tmp_path: Path) -> None:
    recipe = small()
    train(recipe, 0, Machine(device="cpu"), tmp_path / "whole")
    callback = StopAfter(4 * 2 + 6)  # four steps an epoch, two of pre-training
    with pytest.raises(Stopped):
        train(recipe, 0, Machine(device="cpu"), tmp_path / "halves", callback=callback, stop=callback.request)
    train(recipe, 0, Machine(device="cpu"), tmp_path / "halves")
    ends = [tmp_path / name / "final.safetensors" for name in ("whole", "halves")]
    assert ends[0].read_bytes() == ends[1].read_bytes()
    logs = [[json.loads(line) for line in (end.parent / "log.jsonl").read_text().splitlines()] for end in ends]
    pressed = [[entry["strength"] for entry in log if "strength" in entry] for log in logs]
    assert pressed[0] == pressed[1] != []
