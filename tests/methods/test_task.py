"""Tasks: how a network is scored."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import OptionError
from hypersparse.methods.task import RunningMean, Task, accuracy


class Identity(nn.Module):
    """Outputs are its inputs; has a parameter, a norm and a dropout layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.dropout = nn.Dropout(0.9)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.dropout(inputs * self.weight)  # type: ignore[no-any-return]


def unequal_batches() -> list[tuple[Tensor, Tensor]]:
    right, wrong = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    ones = torch.ones(3, dtype=torch.long)
    return [(torch.cat([right, right, wrong]), ones), (wrong, ones[:1])]  # 2 of 3, 0 of 1


def negative_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return -(outputs - targets).square().mean()


def scored(**options: Any) -> float:
    return Task(nn.functional.cross_entropy, unequal_batches(), **options).score(Identity())


def test_accuracy_is_the_mean_over_samples_not_over_batches() -> None:
    assert scored() == 0.5


def test_one_score_for_a_batch_counts_by_its_size() -> None:
    assert scored(rating=lambda outputs, labels: accuracy(outputs, labels).mean()) == 0.5
    assert scored(rating=lambda outputs, labels: float(len(labels))) == (3 * 3 + 1 * 1) / 4


def test_a_score_of_the_whole_is_called_once() -> None:
    calls: list[tuple[int, ...]] = []

    def worst(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(tuple(outputs.shape))
        return accuracy(outputs, labels).min() + outputs.sum()

    assert scored(rating=worst, whole=True) == 4.0
    assert calls == [(4, 2)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_generator_is_used_up_after_one_score(whole: bool) -> None:
    def batches() -> Any:
        yield from unequal_batches()

    task = Task(nn.functional.cross_entropy, batches(), rating=lambda o, y: accuracy(o, y).mean(), whole=whole)
    assert task.score(Identity()) == 0.5
    with pytest.raises(OptionError, match=r"loader gave no batch; pass one that can be iterated anew.*generator"):
        task.score(Identity())


def test_every_module_gets_its_own_training_flag_back() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.Dropout(), nn.Linear(2, 2)))
    model.train()
    model[1].eval()  # a frozen norm
    model[2].eval()
    model[2][0].train()
    before = [module.training for module in model.modules()]
    Task(nn.functional.cross_entropy, unequal_batches()).score(model)
    assert [module.training for module in model.modules()] == before
    assert before == [True, True, False, False, True, False]


def test_flags_come_back_after_an_error_too() -> None:
    def broken(outputs: Any, labels: Any) -> Tensor:
        raise RuntimeError("broken rating")

    model = Identity().train()
    with pytest.raises(RuntimeError, match="broken rating"):
        Task(nn.functional.cross_entropy, unequal_batches(), rating=broken).score(model)
    assert model.training
    assert model.dropout.training


def test_scoring_is_in_evaluation_mode_without_gradients_and_changes_no_statistics() -> None:
    seen: list[tuple[bool, bool]] = []
    model = nn.Sequential(nn.BatchNorm1d(2)).train()

    def rating(outputs: Tensor, labels: Tensor) -> Tensor:
        seen.append((outputs.requires_grad, model[0].training))
        return accuracy(outputs, labels)

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    Task(nn.functional.cross_entropy, unequal_batches(), rating=rating).score(model)
    assert seen == [(False, False)] * 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_regression_task() -> None:
    batches = [
        (torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [2.0]])),
        (torch.tensor([[4.0]]), torch.tensor([[1.0]])),
    ]
    task = Task(nn.functional.mse_loss, batches, rating=negative_error)
    assert task.score(Identity()) == pytest.approx(-(1 + 0 + 9) / 3)


def test_other_batches_are_unpacked() -> None:
    batches = [{"pixels": inputs, "label": labels} for inputs, labels in unequal_batches()]
    task = Task(nn.functional.cross_entropy, batches, unpack=lambda batch: (batch["pixels"], batch["label"]))
    assert task.score(Identity()) == 0.5


def test_a_running_mean() -> None:
    mean = RunningMean(torch.device("cpu"))
    mean.add(torch.tensor([1.0, 0.0, 0.0]), 3)
    mean.add(torch.tensor(1.0, requires_grad=True), 2)
    mean.add(0.5, 5)
    assert mean.value() == (1 + 2 + 2.5) / 10
    assert not mean.total.requires_grad


def test_a_running_mean_of_many_small_numbers_loses_nothing() -> None:
    mean = RunningMean(torch.device("cpu"))
    mean.add(torch.tensor(1.0), 2**24)
    for _ in range(100):
        mean.add(torch.tensor([1.0]), 1)  # in float32 the sum would stand still
    assert mean.value() == 1.0


def test_the_ratings_behind_a_score_are_told_one_for_each_sample() -> None:
    told: list[Tensor] = []
    assert scored(scored=told.append) == 0.5
    assert [ratings.tolist() for ratings in told] == [[1.0, 1.0, 0.0, 0.0]]
    scored(scored=told.append, rating=lambda outputs, labels: accuracy(outputs, labels).mean())
    scored(scored=told.append, rating=lambda outputs, labels: accuracy(outputs, labels).mean(), whole=True)
    assert len(told) == 1  # a rating of a batch or of everything says nothing of the samples
