"""What every method promises, whatever else it does. A new file in `methods/` is tested here by being there."""

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import hypersparse
from hypersparse import Ablation, Mask, Method, Phase, Sparsifier, Task, TrainingState, methods
from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.sparsity.budgets import keep_count
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.training.small import TABLES

# Options that make a method short; a method not named here runs with its defaults.
QUICK: dict[str, dict[str, Any]] = {
    "acdc": {"warmup": 0.0, "turn": 0.2, "final": 0.4},
    "art": {"pretrain_epochs": 2, "strength": 1e-3, "growth": 1.5, "max_regularized_epochs": 30},
    "imp": {"rounds": 2, "rewind": 0.3},
    "iter_snip": {"rounds": 5},
    "magnitude": {"dense_epochs": 2},
    "rigl": {"distribution": "erk", "every": 2, "search": 1.5},  # the first layer is too large to be kept whole
    "synflow": {"rounds": 5},
    "topkast": {"every": 2, "end": 0.5},
}
SPARSITY = 0.8
PRUNING = [
    name
    for name in methods.names()
    if any(field.name == "sparsity" for field in dataclasses.fields(methods.find(name)))  # type: ignore[arg-type]
]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def options_of(name: str, sparsity: float = SPARSITY) -> dict[str, Any]:
    fields = {field.name for field in dataclasses.fields(methods.find(name))}  # type: ignore[arg-type]
    return {**QUICK.get(name, {}), **({"sparsity": sparsity} if "sparsity" in fields else {})}


def method_of(name: str, sparsity: float = SPARSITY) -> Method:
    return methods.find(name)(**options_of(name, sparsity))


class Run:
    """A small classification, its network, and a sparsifier; `loader` shuffles with a generator of its own."""

    def __init__(
        self,
        name: str,
        make_optimizer: MakeOptimizer,
        *,
        seed: int = 0,
        sparsity: float = SPARSITY,
        ablation: Ablation | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(7)
        labels = torch.arange(48) % 3
        inputs = torch.randn(3, 2, 4, 4, generator=generator)[labels]
        inputs += 0.2 * torch.randn(inputs.shape, generator=generator)
        self.order = torch.Generator().manual_seed(seed)
        data = torch.utils.data.TensorDataset(inputs, labels)
        self.loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, generator=self.order)
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
        )
        self.optimizer = make_optimizer(self.model)
        self.sparsifier = hypersparse.attach(
            self.model,
            self.optimizer,
            method_of(name, sparsity),
            epochs=3,
            task=Task(nn.functional.cross_entropy, self.loader),
            lr=hypersparse.schedules.cosine,
            ablation=ablation,
        )

    def train(self, after_step: Callable[[Sparsifier], None] | None = None, *, save_to: Path | None = None) -> None:
        for epoch in self.sparsifier.epochs():
            self.model.train()
            for inputs, labels in self.loader:
                outputs = self.model(inputs)
                loss = nn.functional.cross_entropy(outputs, labels) + self.sparsifier.penalty()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.sparsifier.step()
                self.sparsifier.observe(outputs, labels)
                if after_step is not None:
                    after_step(self.sparsifier)
            if save_to is not None:
                torch.save(self.state(), save_to / str(epoch))

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict(),
            "order": self.order.get_state(),
        }

    def load(self, path: Path) -> None:
        saved = torch.load(path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.sparsifier.load_state_dict(saved["sparsifier"])
        self.order.set_state(saved["order"])


def same(left: Any, right: Any) -> bool:
    """Whether two trees of numbers and tensors are equal, bit for bit."""
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)


def dropped_are_plus_zero(sparsifier: Sparsifier) -> None:
    if sparsifier.mask is None:
        return
    for name, weight in sparsifier.weights.items():
        dropped = weight.detach()[~sparsifier.mask[name]]
        assert (dropped.view(torch.int32) == 0).all(), f"{name} has dropped weights that are not +0.0"


@pytest.mark.parametrize("name", methods.names())
def test_it_says_what_it_is(name: str) -> None:
    kind = methods.find(name)
    assert kind.__doc__
    assert kind.__doc__.strip().endswith(".")
    assert kind.citation
    assert method_of(name).label().startswith(name)


@pytest.mark.parametrize("name", methods.names())
def test_its_plan_can_be_told(name: str) -> None:
    plan = method_of(name).plan(10)
    names = [phase.name for phase in plan]
    assert names
    assert len(set(names)) == len(names)
    assert all(phase.epochs >= 0 for phase in plan)
    assert [phase.epochs for phase in plan] == [phase.epochs for phase in method_of(name).plan(10)]


@pytest.mark.parametrize("name", methods.names())
def test_its_options_survive_toml(name: str) -> None:
    recipe = Recipe(method=method_of(name))
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert Recipe.from_toml(recipe.to_toml()).key == recipe.key


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize("name", methods.names())
def test_dropped_weights_are_exactly_zero_after_every_step(name: str, make_optimizer: MakeOptimizer) -> None:
    run = Run(name, make_optimizer)
    steps: list[int] = []

    def check(sparsifier: Sparsifier) -> None:
        dropped_are_plus_zero(sparsifier)
        steps.append(0 if sparsifier.mask is None else sparsifier.mask.kept)

    run.train(check)
    total = run.sparsifier.weights.total
    if hasattr(method_of(name), "sparsity"):
        assert run.sparsifier.mask is not None
        assert run.sparsifier.mask.kept == keep_count(total, SPARSITY)
        assert int(run.sparsifier.weights.vector().count_nonzero()) <= keep_count(total, SPARSITY)
        assert sum(kept > 0 for kept in steps) >= 9  # three epochs of three steps with a mask
    else:
        assert run.sparsifier.mask is None


@pytest.mark.parametrize("name", methods.names())
def test_the_same_seed_gives_the_same_network(name: str) -> None:
    first, second, other = Run(name, sgd), Run(name, sgd), Run(name, sgd, seed=1)
    for run in (first, second, other):
        run.train()
    assert same(first.state(), second.state())
    assert not same(first.state()["model"], other.state()["model"])


@pytest.mark.parametrize("make_optimizer", [sgd, adamw])
@pytest.mark.parametrize("name", methods.names())
def test_stopping_after_any_epoch_and_going_on_changes_nothing(
    name: str, make_optimizer: MakeOptimizer, tmp_path: Path
) -> None:
    whole = Run(name, make_optimizer)
    whole.train(save_to=tmp_path)
    epochs = whole.sparsifier.total_epoch
    for stop in range(epochs):
        resumed = Run(name, make_optimizer, seed=99)
        resumed.load(tmp_path / str(stop))
        resumed.train()
        assert resumed.sparsifier.total_epoch == epochs
        assert same(resumed.state(), whole.state()), f"stopped in epoch {stop} of {epochs}"


@pytest.mark.parametrize("ablation", ["shuffle", "redraw", "positions", "rewind"])
@pytest.mark.parametrize("name", PRUNING)
def test_it_can_be_ablated(name: str, ablation: str) -> None:
    first, second = (Run(name, sgd, ablation=Ablation(name=ablation)) for _ in range(2))  # type: ignore[arg-type]
    for run in (first, second):
        run.train(dropped_are_plus_zero)
    assert first.sparsifier.mask is not None
    assert first.sparsifier.mask.kept == keep_count(first.sparsifier.weights.total, SPARSITY)
    assert same(first.state(), second.state())


def plain_sgd(run: Run, epochs: int) -> nn.Module:
    """Ordinary training of the run's network, without any of our code."""
    model = copy.deepcopy(run.model)
    optimizer = sgd(model)
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = 0.05 * hypersparse.schedules.cosine(epoch / epochs)
        for inputs, labels in run.loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return model


def test_dense_is_plain_training_bit_for_bit() -> None:
    expected = plain_sgd(Run("dense", sgd), 3)
    run = Run("dense", sgd)
    run.train()
    assert same(dict(run.model.state_dict()), dict(expected.state_dict()))


def test_a_mask_that_keeps_all_is_plain_training_bit_for_bit() -> None:
    def keep_all(state: TrainingState) -> None:
        state.weights.set_mask_(Mask.all_kept(state.weights))

    expected = plain_sgd(Run("dense", sgd), 3)
    run = Run("dense", sgd)
    plan = [Phase("masked", epochs=3, enter=keep_all, restart=True)]
    task = Task(nn.functional.cross_entropy, run.loader)
    run.sparsifier = Sparsifier(run.model, run.optimizer, plan, task=task, lr=hypersparse.schedules.cosine)
    run.train()
    assert run.sparsifier.mask is not None
    assert same(dict(run.model.state_dict()), dict(expected.state_dict()))


@pytest.mark.parametrize("name", PRUNING)
def test_steps_with_everything_kept_are_plain_sgd_bit_for_bit(name: str) -> None:
    """At sparsity 0, every step that neither adjusts nor has a penalty is the one SGD makes alone."""
    run = Run(name, sgd, sparsity=0.0)
    compared = 0
    for _ in run.sparsifier.epochs():
        for inputs, labels in run.loader:
            alone = copy.deepcopy((run.model, run.optimizer))
            adjusts = run.sparsifier.adjusts_now
            loss = nn.functional.cross_entropy(run.model(inputs), labels) + run.sparsifier.penalty()
            run.optimizer.zero_grad()
            loss.backward()
            run.optimizer.step()
            run.sparsifier.step()
            if run.sparsifier.mask is None or adjusts or run.sparsifier.phase.penalty is not None:
                continue
            assert run.sparsifier.mask.kept == run.sparsifier.weights.total
            model, optimizer = alone
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            assert same(dict(run.model.state_dict()), dict(model.state_dict()))
            compared += 1
    assert compared >= 6


class NoWaiting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails where the host would have to wait for a device: a number or a size that depends on values."""

    WAITING = ("_local_scalar_dense", "is_nonzero", "nonzero", "masked_select", "equal", "unique_dim", "_unique2")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._overloadpacket.__name__
        assert name not in self.WAITING, f"{name} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            indices = [index for index in tree_leaves(args[1]) if isinstance(index, Tensor)]
            assert all(index.dtype != torch.bool for index in indices), "a boolean index waits for the device"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", methods.names())
def test_its_steps_do_not_wait_for_the_device(name: str) -> None:
    run = Run(name, sgd)
    for _ in run.sparsifier.epochs():
        for inputs, labels in run.loader:
            outputs = run.model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            run.optimizer.zero_grad()
            adjusts = run.sparsifier.adjusts_now
            with NoWaiting():  # type: ignore[no-untyped-call]
                (loss + run.sparsifier.penalty()).backward()
            run.optimizer.step()
            if adjusts:
                run.sparsifier.step()
                continue
            with NoWaiting():  # type: ignore[no-untyped-call]
                run.sparsifier.step()
                run.sparsifier.observe(outputs, labels)


def test_the_test_sees_waiting() -> None:
    values = torch.arange(3.0)
    for wait in (values[0].item, values.nonzero, lambda: bool(values[0]), lambda: values[values > 1]):
        with pytest.raises(AssertionError, match="waits for the device"), NoWaiting():  # type: ignore[no-untyped-call]
            wait()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", methods.names())
def test_a_run_reports_what_it_has_cost(name: str, tmp_path: Path) -> None:
    tables = {key: table for key, table in TABLES.items() if key != "method"}
    recipe = resolve(merge(tables, {"method": {"name": name, **options_of(name)}, "training": {"epochs": 2}}))
    result = train(recipe, 0, Machine(device="cpu", threads=1), tmp_path, record=False)
    entries = (tmp_path / "log.jsonl").read_text().splitlines()
    assert result["epochs_total"] == len(entries) == sum(result["epochs"].values())
    least = sum(min(1, phase.epochs) if phase.until else phase.epochs for phase in recipe.plan())
    assert least <= result["epochs_total"] <= sum(phase.epochs for phase in recipe.plan())
    steps = result["epochs_total"] * 128 * 3 * result["inference_flops"]
    assert result["training_flops"] == pytest.approx(steps + result["scoring_flops"])
    assert 0 < result["training_flops_sparse"] <= result["training_flops"]
    assert 0 <= result["inference_flops_sparse"] <= result["inference_flops"]
    assert (result["inference_flops_sparse"] < result["inference_flops"]) == (result["kept"] < result["total"])
    assert 0 <= result["effective_kept"] <= result["kept"]


@pytest.mark.parametrize("name", methods.names())
def test_it_has_a_page_that_says_whose_it_is(name: str) -> None:
    page = Path(hypersparse.__file__).parents[1] / "docs" / f"{name}.md"
    assert page.is_file(), f"write docs/{name}.md"
    citation = methods.find(name).citation
    if not citation.startswith("none"):
        first_author = re.split("[,:]", citation)[0].split()[-1]
        assert first_author in page.read_text()
