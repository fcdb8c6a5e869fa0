from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse import EverySteps, Mask, Phase, PrunableWeights, Sparsifier, StepRules, TrainingState
from hypersparse.methods.task import Task
from hypersparse.sparsity.flops import ForwardCost, forward_cost
from hypersparse.sparsity.scores import call_model
from hypersparse.training.flop_counter import FlopCounter, inference_cost, total_cost
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.training.small import StopAfter, small

COST = 12 + 8  # of Linear(3, 2) and Linear(2, 2)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))


def half_of_the_first(state: TrainingState) -> None:
    """Keeps 3 of 6 and 4 of 4 weights: 6 + 8 operations remain."""
    layers = {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in state.weights.items()}
    layers["0.weight"][0] = False
    state.weights.set_mask_(Mask(layers))


def metered(phase: Phase) -> tuple[Sparsifier, FlopCounter]:
    model = network()
    sparsifier = Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), [phase])
    weights = PrunableWeights(model)
    return sparsifier, FlopCounter(forward_cost(model, weights, (3,)), sparsifier.weights, call_model)


def epochs(phase: Phase, *, steps: int = 5) -> list[dict[str, float]]:
    sparsifier, flop_counter = metered(phase)
    found = []
    for _ in sparsifier.epochs():
        for _ in range(steps):
            sparsifier.state.optimizer.step()
        found.append(flop_counter.epoch(sparsifier, images=10, steps=steps))
    return found


def test_a_dense_epoch_by_hand() -> None:
    assert epochs(Phase("dense", epochs=1)) == [{"flops": 10 * 3 * COST, "flops_sparse": 10 * 3 * COST}]


def test_a_masked_epoch_by_hand() -> None:
    assert epochs(Phase("sparse", epochs=1, on_enter=half_of_the_first)) == [
        {"flops": 10 * 3 * COST, "flops_sparse": 10 * 3 * 14}
    ]


def test_masks_count_in_the_epochs_they_hold() -> None:
    def later(state: TrainingState) -> None:
        if state.epoch == 1:
            half_of_the_first(state)

    found = epochs(Phase("both", epochs=2, on_epoch_start=later))
    assert [epoch["flops_sparse"] for epoch in found] == [10 * 3 * COST, 10 * 3 * 14]


def test_steps_that_adjust_have_the_gradients_of_all_weights() -> None:
    phase = Phase("adjusted", epochs=2, on_enter=half_of_the_first, on_step=EverySteps(lambda _: None, 3))
    found = [epoch["flops_sparse"] for epoch in epochs(phase)]  # steps 3, 6 and 9 of ten
    assert found == pytest.approx([10 * (3 * 14 + (COST - 14) * share) for share in (1 / 5, 2 / 5)])


def test_weights_that_learn_unused_count_once() -> None:
    def all_learn(state: TrainingState) -> Mask:
        return Mask.all_kept(state.weights)

    phase = Phase(
        "explored",
        epochs=1,
        on_enter=half_of_the_first,
        rules=StepRules(trainable=all_learn),
        on_step=EverySteps(lambda _: None),
    )
    assert [epoch["flops_sparse"] for epoch in epochs(phase)] == [10 * (3 * 14 + (COST - 14))]


def test_scoring_counts_forward_and_gradients_count_thrice() -> None:
    sparsifier, flop_counter = metered(Phase("sparse", epochs=1, on_enter=half_of_the_first))
    loader = [(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))]
    task = Task(nn.functional.cross_entropy, loader, on_scores=flop_counter.on_scores, forward=flop_counter.run)
    task.score(sparsifier.state.model)
    assert flop_counter.scoring_of_epoch() == {"scoring_flops": 4 * COST, "scoring_flops_sparse": 4 * COST}
    sparsifier.begin_epoch()
    task.score(sparsifier.state.model)
    assert flop_counter.scoring_of_epoch() == {"scoring_flops": 4 * COST, "scoring_flops_sparse": 4 * 14}
    task.forward(sparsifier.state.model, loader[0][0])
    assert flop_counter.scoring_of_epoch() == {"scoring_flops": 12 * COST, "scoring_flops_sparse": 12 * 14}
    assert flop_counter.scoring_of_epoch() == {"scoring_flops": 0, "scoring_flops_sparse": 0}


def test_what_is_not_known_is_none() -> None:
    sparsifier, _ = metered(Phase("dense", epochs=1))
    flop_counter = FlopCounter(None, sparsifier.weights, call_model)
    flop_counter.on_scores(torch.ones(3))
    assert flop_counter.epoch(sparsifier, images=10, steps=5) == {}
    assert flop_counter.scoring_of_epoch() == {}
    unknown = total_cost([{"epoch": 0}])
    assert unknown == {"training_flops": None, "training_flops_sparse": None, "scoring_flops": None}
    assert inference_cost(None, {}) == {"inference_flops": None, "inference_flops_sparse": None}
    cost = ForwardCost({"a": 8.0}, {"a": 4})
    assert inference_cost(cost, {"a": 1}) == {"inference_flops": 8, "inference_flops_sparse": 2}


def result_of(folder: Path, **tables: Any) -> dict[str, Any]:
    return train(small(**tables), 0, Machine(device="cpu", threads=1), folder)


def test_a_run_adds_its_epochs_up(tmp_path: Path) -> None:
    result = result_of(tmp_path, method={"name": "dense"})
    assert result["epochs_total"] == 2
    assert result["training_flops"] == result["training_flops_sparse"] == 2 * 128 * 3 * result["inference_flops"]
    assert result["inference_flops_sparse"] == result["inference_flops"]
    assert (result["effective_kept"], result["effective_sparsity"]) == (result["total"], 0.0)


@pytest.mark.filterwarnings("ignore")
def test_stopping_changes_no_count(tmp_path: Path) -> None:
    from hypersparse.training.stop import Stopped

    whole = result_of(tmp_path / "whole")
    assert 0 < whole["training_flops_sparse"] < whole["training_flops"]
    assert whole["scoring_flops"] == whole["epochs"]["regularize"] * 128 * whole["inference_flops"]
    assert whole["effective_kept"] <= whole["kept"]
    assert whole["inference_flops_sparse"] < whole["inference_flops"]
    stopping = StopAfter(14)  # in a regularized epoch
    with pytest.raises(Stopped):
        train(
            small(), 0, Machine(device="cpu", threads=1), tmp_path / "again", callback=stopping, stop=stopping.request
        )
    again = result_of(tmp_path / "again")
    for name in ("training_flops", "training_flops_sparse", "scoring_flops", "epochs_total", "effective_kept"):
        assert again[name] == whole[name]
