"""Tasks: how a network is scored."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from hypersparse.errors import OptionError
from hypersparse.methods import task
from hypersparse.methods.task import RunningMean, Task, accuracy

INPUTS, LABELS = torch.ones(3, 2), torch.ones(3, dtype=torch.long)


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
    assert scored(metric=lambda outputs, labels: accuracy(outputs, labels).mean()) == 0.5
    assert scored(metric=lambda outputs, labels: float(len(labels))) == (3 * 3 + 1 * 1) / 4


def test_a_score_of_the_whole_is_called_once() -> None:
    calls: list[tuple[int, ...]] = []

    def worst(outputs: Tensor, labels: Tensor) -> Tensor:
        calls.append(tuple(outputs.shape))
        return accuracy(outputs, labels).min() + outputs.sum()

    assert scored(metric=worst, metric_over_dataset=True) == 4.0
    assert calls == [(4, 2)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_generator_is_used_up_after_one_score(whole: bool) -> None:
    def batches() -> Any:
        yield from unequal_batches()

    task = Task(
        nn.functional.cross_entropy, batches(), metric=lambda o, y: accuracy(o, y).mean(), metric_over_dataset=whole
    )
    assert task.score(Identity()) == 0.5
    with pytest.raises(OptionError, match=r"loader gave no batch; pass one that can be iterated again.*generator"):
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
        Task(nn.functional.cross_entropy, unequal_batches(), metric=broken).score(model)
    assert model.training
    assert model.dropout.training


def test_scoring_is_in_evaluation_mode_without_gradients_and_changes_no_statistics() -> None:
    seen: list[tuple[bool, bool]] = []
    model = nn.Sequential(nn.BatchNorm1d(2)).train()

    def rating(outputs: Tensor, labels: Tensor) -> Tensor:
        seen.append((outputs.requires_grad, model[0].training))
        return accuracy(outputs, labels)

    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    Task(nn.functional.cross_entropy, unequal_batches(), metric=rating).score(model)
    assert seen == [(False, False)] * 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_regression_task() -> None:
    batches = [
        (torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [2.0]])),
        (torch.tensor([[4.0]]), torch.tensor([[1.0]])),
    ]
    task = Task(nn.functional.mse_loss, batches, metric=negative_error)
    assert task.score(Identity()) == pytest.approx(-(1 + 0 + 9) / 3)


def test_other_batches_are_unpacked() -> None:
    batches = [{"pixels": inputs, "label": labels} for inputs, labels in unequal_batches()]
    task = Task(nn.functional.cross_entropy, batches, unpack=lambda batch: (batch["pixels"], batch["label"]))
    assert task.score(Identity()) == 0.5


@pytest.mark.parametrize(
    ("batch", "got"), [((INPUTS, LABELS, LABELS), "3 parts"), ({"x": INPUTS}, "a dict"), (INPUTS, "a Tensor")]
)
def test_batches_of_another_kind_are_said(batch: Any, got: str) -> None:
    with pytest.raises(
        OptionError, match=rf"is \(inputs, labels\); got {got}\. Say what is what by Task\(\.\.\., unpack="
    ):
        Task(nn.functional.cross_entropy, [batch]).score(nn.Linear(2, 2))


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
    assert scored(on_scores=told.append) == 0.5
    assert [ratings.tolist() for ratings in told] == [[1.0, 1.0, 0.0, 0.0]]
    scored(on_scores=told.append, metric=lambda outputs, labels: accuracy(outputs, labels).mean())
    scored(
        on_scores=told.append, metric=lambda outputs, labels: accuracy(outputs, labels).mean(), metric_over_dataset=True
    )
    assert len(told) == 1  # a rating of a batch or of everything says nothing of the samples


def numbered(labels: list[int], size: int = 4) -> list[tuple[Tensor, Tensor]]:
    """Samples whose value is their number."""
    inputs = torch.arange(len(labels), dtype=torch.float32).unsqueeze(1)
    return list(zip(inputs.split(size), torch.tensor(labels).split(size), strict=True))


def test_samples_per_class_are_the_first_ones_sorted_by_class() -> None:
    task = Task(nn.functional.cross_entropy, numbered([1, 0, 1, 1, 0, 0, 1, 0, 0]))
    ((inputs, labels),) = task.per_class(2, passes=1, device=torch.device("cpu"))
    assert labels.tolist() == [0, 0, 1, 1]
    assert inputs.flatten().tolist() == [1, 4, 0, 2]
    two = task.per_class(2, passes=2, device=torch.device("cpu"))
    assert [inputs.flatten().tolist() for inputs, _ in two] == [[1, 4, 0, 2], [5, 7, 3, 6]]


def test_samples_come_from_the_training_batches_and_no_more_are_read_than_needed() -> None:
    read: list[int] = []

    class Watched:
        def __iter__(self) -> Any:
            for number, batch in enumerate(numbered([0, 1, 2, 0, 2, 1, 0, 0], size=2)):
                read.append(number)
                yield batch

    for classes, batches in ((3, 3), (None, 4)):
        read.clear()
        task = Task(nn.functional.cross_entropy, [], train_loader=Watched(), classes=classes)
        ((_, labels),) = task.per_class(2, passes=1, device=torch.device("cpu"))
        assert len(read) == batches
        assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert task.first_batch(torch.device("cpu"))[1].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("batches", "options", "says"),
    [
        (numbered([0, 1, 0]), {}, r"2 samples of every class, but class 1 has 1; pass a smaller `per_class`"),
        (numbered([0, 0]), {"classes": 2}, "samples of 2 classes; the training batches have 1"),
        ([(torch.zeros(2, 1), torch.zeros(2))], {}, "class numbers"),
        ([(torch.zeros(2, 1), torch.zeros(2, 3, dtype=torch.long))], {}, "data='batch'"),
        ([(["a", "b"], torch.zeros(2, dtype=torch.long))], {}, "tensor of inputs"),
        ([], {}, "gave no batch"),
    ],
)
def test_samples_that_cannot_be_had(batches: Any, options: dict[str, Any], says: str) -> None:
    task = Task(nn.functional.cross_entropy, batches, **options)
    with pytest.raises(OptionError, match=says):
        task.per_class(2, passes=1, device=torch.device("cpu"))


def test_a_first_batch_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="gave no batch"):
        Task(nn.functional.cross_entropy, []).first_batch(torch.device("cpu"))


@pytest.mark.parametrize("whole", [False, True])
def test_a_metric_of_nan_is_never_compared(whole: bool) -> None:
    loader = [(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64))]
    task = Task(
        nn.functional.cross_entropy, loader, metric=lambda outputs, labels: float("nan"), metric_over_dataset=whole
    )
    with pytest.raises(OptionError, match="metric of the task is NaN"):
        task.score(nn.Linear(3, 2))


class Stream(IterableDataset[tuple[Tensor, Tensor]]):
    """Samples that never end, and how many were read."""

    read = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for self.read in count(1):
            yield torch.tensor([0.0, 1.0]), torch.tensor(1)


@pytest.mark.parametrize("over_dataset", [False, True])
def test_a_loader_that_never_ends_is_an_error_unless_bounded(
    over_dataset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "MOST_BATCHES", 20)
    stream = Stream()
    options: dict[str, Any] = {"metric": lambda *pair: accuracy(*pair).mean()} if over_dataset else {}
    options["metric_over_dataset"] = over_dataset
    endless = Task(nn.functional.cross_entropy, DataLoader(stream, batch_size=2), **options)
    with pytest.raises(OptionError, match=r"has no length and did not end after 20 batches.*max_batches=N"):
        endless.score(Identity())
    assert stream.read >= 40
    stream.read = 0
    assert replace(endless, max_batches=3).score(Identity()) == 1.0
    assert stream.read == 6


def test_samples_of_classes_that_never_come_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MOST_BATCHES", 20)
    endless = Task(nn.functional.cross_entropy, DataLoader(Stream(), batch_size=2), classes=2)
    with pytest.raises(OptionError, match="did not end after 20 batches"):
        endless.per_class(1, passes=1, device=torch.device("cpu"))
    first = replace(endless, classes=None, max_batches=2).per_class(4, passes=1, device=torch.device("cpu"))
    assert [len(labels) for _, labels in first] == [4]


def test_a_long_loader_that_says_its_length_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "MOST_BATCHES", 20)
    assert Task(nn.functional.cross_entropy, unequal_batches() * 25).score(Identity()) == 0.5


def test_a_generator_that_ends_is_read_to_its_end() -> None:
    assert Task(nn.functional.cross_entropy, (batch for batch in unequal_batches())).score(Identity()) == 0.5
