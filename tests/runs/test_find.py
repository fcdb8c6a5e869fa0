"""The search for the sparsest network: which copies it makes, and which of them it fine-tunes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import ART, OptionError, RunError, Task
from hypersparse.methods.art import LevelCopies
from hypersparse.recipe import Recipe
from hypersparse.runs import find as search
from hypersparse.runs.find import Copy, Found, Point, copies_of, find, most_trainings, with_held_out, with_levels
from hypersparse.runs.store import RunStore
from hypersparse.storage.schemas import Result
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.training.small import StopAfter, small

pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy", "ignore:At the end of phase")
LEVELS = [0.5, 0.8, 0.9, 0.95, 0.98]
CPU = Machine(device="cpu", checkpoint_seconds=0.0)


def recipe() -> Recipe:
    return with_held_out(small(), images=96)


def searched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accuracies: dict[float, float]
) -> tuple[Found, list[float]]:
    """A search whose networks have these held-out accuracies, and the levels it has asked for."""
    asked = []

    def tuned(_: Recipe, copy: Copy, *__: Any, **___: Any) -> Point:
        asked.append(copy.sparsity)
        return Point(copy.sparsity, accuracies[copy.sparsity], 0.0, tmp_path)

    monkeypatch.setattr(search, "copies_of", lambda _, levels: [Copy(level, 0.0, tmp_path) for level in levels])

    def alone(_: Recipe, level: float, *__: Any, **___: Any) -> Point:
        asked.append(-level)
        return Point(level, accuracies[level] + 0.03, 0.0, tmp_path, shared=False)

    monkeypatch.setattr(search, "fine_tuned", tuned)
    monkeypatch.setattr(search, "alone", alone)
    monkeypatch.setattr(search, "dense_accuracy", lambda _: None)
    found = find(recipe(), 0.9, LEVELS, lambda *_: {}, store=RunStore(tmp_path))  # type: ignore[arg-type,return-value]
    return found, asked


@pytest.mark.parametrize(
    ("accuracies", "best", "asked"),
    [  # those that ART trains alone, whose accuracy is 0.03 higher, are negative
        ([0.99, 0.98, 0.95, 0.89, 0.80], 0.95, [0.9, 0.98, 0.95, -0.95, -0.98]),
        ([0.99, 0.98, 0.95, 0.90, 0.90], 0.98, [0.9, 0.98]),
        ([0.91, 0.70, 0.60, 0.50, 0.40], 0.5, [0.9, 0.8, 0.5, -0.8]),
        ([0.80, 0.70, 0.60, 0.50, 0.40], None, [0.9, 0.8, 0.5, -0.5]),
    ],
)
def test_it_bisects_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accuracies: list[float], best: float | None, asked: list[float]
) -> None:
    found, levels = searched(monkeypatch, tmp_path, dict(zip(LEVELS, accuracies, strict=True)))
    assert levels == asked
    assert (found.best and found.best.sparsity) == best
    assert len(asked) < most_trainings(LEVELS) == 9


def test_the_copies_by_hand() -> None:
    """Of four weights, of which the penalty may press none: the largest three, two and one."""
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[4.0, -3.0, 2.0, -1.0]]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    task = Task(nn.functional.mse_loss, [(torch.eye(4), torch.zeros(4, 1))], metric=lambda *_: torch.zeros(4))
    method = ART(sparsity=0.75, levels=(0.25, 0.5), pretrain_epochs=0, max_regularized_epochs=2, stop_reference="paper")
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=1, task=task)
    sparsifier.begin_epoch()
    model.weight.grad = torch.zeros(1, 4)
    optimizer.step()
    sparsifier.finish_epoch()
    kept = sparsifier.state.memory.get(LevelCopies)
    assert kept is not None
    values = {
        level: [round(float(v)) for v in copies.best.copy["kept"]["weight"]]
        for level, copies in kept.copies.items()
        if copies.best
    }
    assert values == {"0.25": [4, -3, 2], "0.5": [4, -3]}
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == 1


def trained(folder: Path) -> Callable[[Recipe, Path, str], Result]:
    def train_it(wanted: Recipe, path: Path, _: str) -> Result:
        return train(wanted, 0, CPU, path, record=False)

    return train_it


def test_a_search_ends_in_a_network_of_the_asked_sparsity(tmp_path: Path) -> None:
    found = find(recipe(), 0.0, [0.5, 0.8], trained(tmp_path), store=RunStore(tmp_path))
    assert found.best is not None
    assert found.best.sparsity == 0.8
    result = search.RunFolder(found.best.folder).result()
    assert result is not None
    assert result["kept"] == result["total"] - int(0.8 * result["total"])
    assert result["epochs"] == {"fine-tune": 2}
    assert found.dense is not None
    again = find(recipe(), 0.0, [0.8, 0.5], trained(tmp_path), store=RunStore(tmp_path))
    assert again == found
    (regularized,) = {copy.file.parents[1] for copy in found.copies}
    for file in search.RunFolder(regularized).path.glob("checkpoint*"):
        file.unlink()
    with pytest.raises(RunError, match="delete that folder to make them again"):
        find(recipe(), 0.0, [0.5, 0.8], trained(tmp_path), store=RunStore(tmp_path))


def test_copies_are_the_same_after_a_stop(tmp_path: Path) -> None:
    wanted = with_levels(recipe(), [0.5, 0.8])
    store = RunStore(tmp_path / "whole")
    train(wanted, 0, CPU, store.folder(wanted, 0).path, record=False)
    whole = copies_of(store.folder(wanted, 0), [0.5, 0.8])
    parts = RunStore(tmp_path / "parts")
    while True:
        callback = StopAfter(5)
        try:
            train(wanted, 0, CPU, parts.folder(wanted, 0).path, record=False, callback=callback, stop=callback.request)
            break
        except Stopped:
            continue
    resumed = copies_of(parts.folder(wanted, 0), [0.5, 0.8])
    assert [copy.score for copy in resumed] == [copy.score for copy in whole]
    assert [copy.file.read_bytes() for copy in resumed] == [copy.file.read_bytes() for copy in whole]


def test_what_cannot_be_searched_is_said() -> None:
    with pytest.raises(OptionError, match="the method is gmp, not art"):
        with_levels(with_held_out(small(method={"name": "gmp", "sparsity": 0.5}), images=96), [0.5])
    with pytest.raises(OptionError, match=r"set `data\.validation` to how many"):
        with_levels(small(), [0.5])
    with pytest.raises(OptionError, match="at least one sparsity"):
        with_levels(recipe(), [])
    assert recipe().data.validation == 16
    given = replace(small(), data=replace(small().data, validation=5))
    assert with_held_out(given, images=96).data.validation == 5
