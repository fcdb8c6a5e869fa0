"""`attach` after `Accelerator.prepare`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, debug_launcher
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hypersparse
from hypersparse import ART, GMP, Sparsifier, Task

pytestmark = pytest.mark.slow
BATCHES, ACCUMULATED = 6, 2
criterion = nn.functional.cross_entropy


@pytest.fixture(autouse=True)
def _no_accelerator_of_an_earlier_test() -> Iterator[None]:
    yield
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()


def samples() -> DataLoader[tuple[Tensor, ...]]:
    inputs = torch.randn(8 * BATCHES, 20, generator=torch.Generator().manual_seed(1))
    return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=8)


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def art() -> ART:
    return ART(sparsity=0.8, pretrain_epochs=1, strength=1e-2, max_regularized_epochs=2)


class Run:
    """An ordinary Accelerate script, made sparse."""

    def __init__(self, **options: Any) -> None:
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=ACCUMULATED, **options)
        model, optimizer = network()
        self.scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=30)
        self.model, self.optimizer, self.loader, self.scheduler = self.accelerator.prepare(
            model, optimizer, samples(), self.scheduler
        )
        task = Task(criterion, samples())  # its own loader: iterating over the prepared one would move its epoch
        self.sparsifier = hypersparse.attach(self.model, self.optimizer, art(), epochs=2, task=task)
        self.accelerator.register_for_checkpointing(self.sparsifier)

    def train(self, until: int | None = None) -> None:
        for epoch in self.sparsifier.epochs():
            for inputs, labels in self.loader:
                with self.accelerator.accumulate(self.model):
                    self.accelerator.backward(criterion(self.model(inputs), labels))
                    self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.scheduler.step()
                    self.optimizer.zero_grad()
            if epoch == until:
                return

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.detach() for parameter in self.accelerator.unwrap_model(self.model).parameters()]


def sparsity_of(sparsifier: Sparsifier) -> float:
    weights = list(sparsifier.weights.values())
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / sparsifier.weights.total


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_accumulated_steps_are_counted_once_and_equal_those_of_a_plain_loop() -> None:
    run = Run()
    run.train()
    assert run.sparsifier.calls.steps == BATCHES // ACCUMULATED
    assert sparsity_of(run.sparsifier) == pytest.approx(0.8, abs=1e-3)

    model, optimizer = network()
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=30)
    sparsifier = hypersparse.attach(model, optimizer, art(), epochs=2, task=Task(criterion, samples()))
    for _ in sparsifier.epochs():
        for number, (inputs, labels) in enumerate(samples(), start=1):
            (criterion(model(inputs), labels) / ACCUMULATED).backward()
            if number % ACCUMULATED == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    assert run.scheduler.get_last_lr() == scheduler.get_last_lr()
    assert all(torch.equal(one, other) for one, other in zip(run.weights, model.parameters(), strict=True))


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize("last", [0, 2])
def test_a_training_goes_on_from_a_saved_state(last: int, tmp_path: Path) -> None:
    whole = Run()
    whole.train()

    stopped = Run()
    stopped.train(until=last)
    stopped.accelerator.save_state(str(tmp_path))
    resumed = Run()
    resumed.accelerator.load_state(str(tmp_path))
    resumed.train()
    assert all(torch.equal(one, other) for one, other in zip(resumed.weights, whole.weights, strict=True))
    assert resumed.sparsifier.done


def test_bf16_keeps_the_zeros() -> None:
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model, optimizer, loader = accelerator.prepare(*network(), samples())
    sparsifier = hypersparse.attach(model, optimizer, GMP(sparsity=0.9), epochs=3, steps_per_epoch=BATCHES)
    for _ in range(3):
        for inputs, labels in loader:
            accelerator.backward(criterion(model(inputs), labels))
            optimizer.step()
            optimizer.zero_grad()
    assert sparsifier.done
    assert sparsity_of(sparsifier) == pytest.approx(0.9, abs=1e-3)


def _train_in_two(folder: str) -> None:
    torch.set_num_threads(1)
    run = Run()
    run.train()
    gathered = sum(len(run.accelerator.gather_for_metrics(labels)) for _, labels in run.loader)
    state = {"weights": run.weights, "samples": gathered, "steps": run.sparsifier.calls.steps}
    torch.save(state, Path(folder) / f"{run.accelerator.process_index}.pt")


@pytest.mark.ddp
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_two_processes_have_the_same_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # else Accelerate warns that it chooses the number of threads
    debug_launcher(_train_in_two, (str(tmp_path),), num_processes=2)
    one, other = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one["weights"], other["weights"], strict=True))
    weights = [weight for weight in one["weights"] if weight.dim() > 1]
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    assert zeros == sum(weight.numel() for weight in weights) * 8 // 10
    assert one["samples"] == other["samples"] == 8 * BATCHES
    assert one["steps"] == 2  # three batches a process, two of which are accumulated, and the rest
