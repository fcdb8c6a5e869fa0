"""The sparsifier in other people's loops: optimizers, precision, compilation, copies, resuming, mistakes."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer, lr_scheduler, swa_utils

import hypersparse
from hypersparse import ART, Dense, Mask, Phase, Sparsifier, Task, TrainingState, schedules
from hypersparse.errors import LoopError, OptionError
from hypersparse.sparsifier import plan_of

cross_entropy = nn.functional.cross_entropy
KEPT = 22  # of 108 at a sparsity of 0.8
PHASES = ["pre-train", "regularize", "fine-tune"]


class Network(nn.Module):
    """A small classifier that is not one of ours."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.norm = nn.BatchNorm1d(12)
        self.last = nn.Linear(12, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.norm(self.first(inputs)).relu())  # type: ignore[no-any-return]


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.arange(48) % 3
    inputs = torch.randn(3, 6, generator=generator)[labels] + 0.3 * torch.randn(48, 6, generator=generator)
    return list(zip(inputs.split(16), labels.split(16), strict=True))


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return Network()


def sgd(model: nn.Module, lr: float = 0.05) -> Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-3)


def short_art(**options: Any) -> ART:
    given = {"sparsity": 0.8, "pretrain_epochs": 2, "strength": 1e-3, "growth": 1.5, "max_regularized_epochs": 30}
    return ART(**{**given, **options})


def attached(
    model: nn.Module | None = None, optimizer: Optimizer | None = None, method: Any = None, **options: Any
) -> Sparsifier:
    model = network() if model is None else model
    given = {"epochs": 2, "task": Task(cross_entropy, batches()), **options}
    return hypersparse.attach(model, optimizer or sgd(model), method or short_art(), **given)


def train_step(sparsifier: Sparsifier, inputs: Tensor, labels: Tensor) -> None:
    model, optimizer = sparsifier.state.model, sparsifier.state.optimizer
    loss = cross_entropy(model(inputs), labels) + sparsifier.penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sparsifier.step()


def train_epoch(sparsifier: Sparsifier) -> None:
    sparsifier.state.model.train()
    for inputs, labels in batches():
        train_step(sparsifier, inputs, labels)


def epochs_of(sparsifier: Sparsifier) -> Iterator[str]:
    """Train, and stop at the end of every epoch's body with the name of its phase."""
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        yield sparsifier.phase.name


def is_sparse(sparsifier: Sparsifier, kept: int = KEPT) -> bool:
    zeros = sum(int((weight == 0).sum()) for weight in sparsifier.weights.values())
    return sparsifier.mask is not None and sparsifier.mask.kept == kept and zeros == sparsifier.weights.total - kept


def equal_tensors(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# A whole run


def test_every_phase_of_a_run() -> None:
    sparsifier = attached()
    seen = list(epochs_of(sparsifier))
    assert list(dict.fromkeys(seen)) == PHASES
    assert (seen.count("pre-train"), seen.count("fine-tune")) == (2, 2)
    assert sparsifier.total_epoch == len(seen)
    assert sparsifier.done
    assert sparsifier.phase.name == "fine-tune"
    assert is_sparse(sparsifier)
    assert list(sparsifier.epochs()) == []
    assert sparsifier.penalty().item() == 0.0


def test_epochs_are_counted_over_all_phases() -> None:
    sparsifier = attached(method=Dense())
    found = []
    for epoch in sparsifier.epochs():
        train_epoch(sparsifier)
        found.append((epoch, sparsifier.state.epoch))
    assert found == [(0, 0), (1, 1)]


def test_a_trained_model_is_not_trained_densely_again() -> None:
    assert list(dict.fromkeys(epochs_of(attached(trained=True)))) == PHASES[1:]


def test_the_model_stays_what_it_was() -> None:
    model = network()
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    keys = list(model.state_dict())
    sparsifier = attached(model)
    list(epochs_of(sparsifier))
    assert type(model) is Network
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before
    assert list(model.state_dict()) == keys
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert not module._backward_hooks
    assert all(parameter._backward_hooks is None for parameter in model.parameters())
    assert all(type(parameter) is nn.Parameter for parameter in model.parameters())


def test_further_module_types_are_pruned_too() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Bilinear(6, 6, 2))
    sparsifier = attached(model, also={nn.Bilinear: ("weight",)})
    assert list(sparsifier.weights) == ["0.weight", "1.weight"]


# Other optimizers and precisions


def test_adamw() -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    sparsifier = attached(model, optimizer)
    for phase in epochs_of(sparsifier):
        assert is_sparse(sparsifier) == (phase == "fine-tune")
        if phase == "fine-tune" and sparsifier.state.epoch == 0:
            assert int(optimizer.state[model.first.weight]["step"]) == 3  # began anew
    assert is_sparse(sparsifier)


def test_mixed_precision_with_a_grad_scaler() -> None:
    model = network()
    sparsifier = attached(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in sparsifier.epochs():
        model.train()
        for inputs, labels in batches():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = cross_entropy(model(inputs), labels) + sparsifier.penalty()
            sparsifier.state.optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(sparsifier.state.optimizer)
            scaler.update()
            sparsifier.step()
    assert is_sparse(sparsifier)
    assert sparsifier.state.task.score(model) > 0.9


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_a_step_that_the_scaler_skips_leaves_the_weights() -> None:
    model = network()
    sparsifier = attached(model, method=short_art(pretrain_epochs=0, max_regularized_epochs=1), epochs=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    assert next(epochs_of(sparsifier)) == "regularize"
    sparsifier.finish_epoch()
    assert sparsifier.begin_epoch()
    before = sparsifier.weights.vector().clone()
    inputs, labels = batches()[0]
    scaler.scale(cross_entropy(model(inputs * torch.inf), labels)).backward()  # type: ignore[no-untyped-call]
    scaler.step(sparsifier.state.optimizer)
    scaler.update()
    sparsifier.step()
    assert scaler.get_scale() == 128.0
    assert torch.equal(sparsifier.weights.vector(), before)
    assert is_sparse(sparsifier)


# Accumulation


def test_with_accumulation_the_penalty_counts_once() -> None:
    grads = []
    for parts in (1, 4):
        model = network()
        model.eval()  # batch statistics would depend on the parts
        sparsifier = attached(model, method=short_art(pretrain_epochs=0, strength=0.5), accumulation=parts)
        assert sparsifier.begin_epoch()
        inputs, labels = batches()[0]
        for part_inputs, part_labels in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
            loss = cross_entropy(model(part_inputs), part_labels) / parts + sparsifier.penalty()
            loss.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == dict(network().named_parameters()).keys()
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-5, atol=1e-6)


def test_a_gradient_added_later_counts_once_whatever_the_accumulation() -> None:
    grads = []
    for parts in (1, 4):
        sparsifier = attached(method=short_art(pretrain_epochs=0, penalty="l1", strength=0.5), accumulation=parts)
        assert sparsifier.begin_epoch()
        sparsifier.add_penalty_gradient_()
        grads.append(sparsifier.weights["last.weight"].grad)
    assert grads[0] is not None
    assert grads[0].abs().tolist() == [[0.5] * 12] * 3
    assert torch.equal(grads[0], grads[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("accumulation", [0, -1])
def test_accumulation_is_a_count(accumulation: int) -> None:
    with pytest.raises(OptionError, match=f"`accumulation` counts backward passes.*got {accumulation}"):
        attached(accumulation=accumulation)


def test_a_loop_may_add_to_the_penalty_in_place() -> None:
    model = network()
    sparsifier = attached(model)
    assert sparsifier.begin_epoch()
    for inputs, labels in batches():
        loss = sparsifier.penalty()
        loss += cross_entropy(model(inputs), labels)
        loss.backward()
    assert sparsifier.penalty().item() == 0.0


# Compiled models, copies, averages


def compiled_run(backend: str) -> None:
    model = network()
    compiled = torch.compile(model, backend=backend)
    sparsifier = attached(compiled, sgd(model))
    list(epochs_of(sparsifier))
    assert list(sparsifier.weights) == ["first.weight", "last.weight"]
    assert is_sparse(sparsifier)
    assert sparsifier.weights["last.weight"] is model.last.weight
    inputs, _ = batches()[0]
    compiled.eval()
    torch.testing.assert_close(compiled(inputs), model(inputs))
    assert sparsifier.state.task.score(model) > 0.9


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_compiled_model() -> None:
    compiled_run("aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_compiled_by_inductor() -> None:
    compiled_run("inductor")


def test_a_copy_in_the_middle_is_a_model_of_its_own() -> None:
    model = network()
    sparsifier = attached(model)
    copies: dict[str, Network] = {}
    for phase in epochs_of(sparsifier):
        copies.setdefault(phase, copy.deepcopy(model))
    assert int((copies["fine-tune"].first.weight == 0).sum()) == int((model.first.weight == 0).sum()) > 0
    assert not torch.equal(copies["fine-tune"].first.weight, model.first.weight)  # trained on since
    free = copies["fine-tune"]
    optimizer = sgd(free)
    inputs, labels = batches()[0]
    cross_entropy(free(inputs), labels).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert int((free.first.weight == 0).sum()) < int((model.first.weight == 0).sum())  # no mask hangs on it
    assert is_sparse(sparsifier)


def test_an_average_of_weights_gets_the_mask() -> None:
    model = network()
    average = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.7))  # type: ignore[no-untyped-call]
    sparsifier = attached(model)
    for _ in sparsifier.epochs():
        for inputs, labels in batches():
            train_step(sparsifier, inputs, labels)
            average.update_parameters(model)
    assert sparsifier.mask is not None
    assert int((average.module.first.weight == 0).sum()) == 0  # it remembers dense weights
    sparsifier.mask.apply_to_(average.module)
    weights = [average.module.first.weight, average.module.last.weight]
    assert sum(int(weight.count_nonzero()) for weight in weights) == KEPT
    assert sparsifier.state.task.score(average) > 0.9


# Resuming


class Saved:
    """A loop whose every part can be saved: model, optimizer, sparsifier and the order of the samples."""

    def __init__(self, seed: int = 0) -> None:
        self.model = network(seed)
        self.optimizer = sgd(self.model)
        inputs, labels = (torch.cat(parts) for parts in zip(*batches(), strict=True))
        self.order = torch.Generator().manual_seed(seed)
        data = torch.utils.data.TensorDataset(inputs, labels)
        self.loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, generator=self.order)
        # Never free, so that all of what is remembered is: five regularized epochs.
        method = short_art(pretrain_epochs=2, max_regularized_epochs=5, sparsity=0.95, strength=1e-9)
        task = Task(cross_entropy, self.loader)
        self.sparsifier = attached(self.model, self.optimizer, method, task=task, epochs=4, lr=schedules.drops())

    def train(self, folder: Path | None = None) -> None:
        for epoch in self.sparsifier.epochs():
            self.model.train()
            for inputs, labels in self.loader:
                train_step(self.sparsifier, inputs, labels)
            if folder is not None:
                self.save(folder / f"{epoch}")

    def save(self, path: Path) -> None:
        parts = {"model": self.model, "optimizer": self.optimizer, "sparsifier": self.sparsifier}
        saved = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**saved, "order": self.order.get_state()}, path)

    @classmethod
    def load(cls, path: Path) -> "Saved":
        new = cls(seed=77)
        saved = torch.load(path, weights_only=True)
        for name, part in (("model", new.model), ("optimizer", new.optimizer), ("sparsifier", new.sparsifier)):
            part.load_state_dict(saved[name])  # type: ignore[attr-defined]
        new.order.set_state(saved["order"])
        return new


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_saving_in_every_phase_and_going_on_changes_nothing(tmp_path: Path) -> None:
    whole = Saved()
    whole.train(tmp_path)
    assert whole.sparsifier.total_epoch == 2 + 5 + 4
    for epoch in range(11):
        resumed = Saved.load(tmp_path / f"{epoch}")
        assert resumed.sparsifier.phase.name == PHASES[(epoch >= 2) + (epoch >= 7)]
        resumed.train()
        assert resumed.sparsifier.total_epoch == 11
        assert equal_tensors(resumed.model.state_dict(), whole.model.state_dict()), epoch
        assert resumed.sparsifier.mask == whole.sparsifier.mask
        assert resumed.sparsifier.lr == whole.sparsifier.lr
        assert torch.equal(resumed.order.get_state(), whole.order.get_state())


def test_saving_in_the_middle_of_an_epoch_and_going_on_changes_nothing() -> None:
    whole, first = attached(), attached()
    for sparsifier in (whole, first):
        for _ in range(2):  # up to the second epoch of regularizing
            sparsifier.begin_epoch()
            train_epoch(sparsifier)
            sparsifier.finish_epoch()
        assert sparsifier.begin_epoch()
        sparsifier.state.model.train()
        train_step(sparsifier, *batches()[0])
        sparsifier.observe(torch.eye(3), torch.arange(3))
    second = attached(network(9))
    second.state.model.load_state_dict(first.state.model.state_dict())
    second.state.optimizer.load_state_dict(first.state.optimizer.state_dict())
    second.load_state_dict(first.state_dict())
    assert second.is_open
    for sparsifier in (whole, second):
        assert sparsifier.begin_epoch()  # goes on with the open one
        sparsifier.state.model.train()
        for inputs, labels in batches()[1:]:
            train_step(sparsifier, inputs, labels)
        sparsifier.finish_epoch()
    assert second.log == whole.log
    assert whole.log["dense_score"] == 1.0  # what was seen before the interruption
    assert equal_tensors(second.state.model.state_dict(), whole.state.model.state_dict())


def test_what_was_saved_does_not_change_with_the_training() -> None:
    sparsifier = attached()
    for phase in epochs_of(sparsifier):
        if phase == "regularize":
            break
    saved = sparsifier.state_dict()
    before = copy.deepcopy(saved)
    list(epochs_of(sparsifier))
    sparsifier.state.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.3})
    sparsifier._set_lr()
    assert saved.keys() == before.keys()
    assert str(saved) == str(before)


def test_a_loaded_state_without_a_mask_frees_the_weights() -> None:
    sparsifier = attached()
    start = copy.deepcopy(sparsifier.state_dict())
    list(epochs_of(sparsifier))
    assert sparsifier.mask is not None
    sparsifier.load_state_dict(start)
    assert sparsifier.mask is None
    assert not sparsifier.done
    assert sparsifier.phase.name == "pre-train"


def test_a_state_of_another_plan_is_an_error() -> None:
    saved = attached().state_dict()
    for other in (attached(method=Dense()), attached(trained=True)):
        with pytest.raises(
            OptionError, match=r"The saved plan is \['pre-train', 'regularize', 'fine-tune'\]; this one"
        ):
            other.load_state_dict(saved)


def test_a_run_up_to_a_phase_goes_on_with_the_whole_plan() -> None:
    model = network()
    plan = plan_of(short_art(), epochs=2, until="pre-train")
    first = Sparsifier(model, sgd(model), plan)
    list(epochs_of(first))
    assert first.total_epoch == 2
    second = attached(model, first.state.optimizer)
    second.load_state_dict(first.state_dict())
    assert next(epochs_of(second)) == "regularize"
    with pytest.raises(OptionError, match=r"There is no phase `finetune`; did you mean `fine-tune`\?"):
        plan_of(short_art(), epochs=2, until="finetune")


def test_a_loop_that_was_left_finishes_its_epoch_when_it_goes_on() -> None:
    sparsifier = attached(method=Dense(), epochs=3)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
        break
    assert sparsifier.is_open
    assert len(list(epochs_of(sparsifier))) == 2
    assert sparsifier.total_epoch == 3


# The learning rate


def rates(sparsifier: Sparsifier) -> list[tuple[str, list[float]]]:
    found = []
    for _ in sparsifier.epochs():
        groups = sparsifier.state.optimizer.param_groups
        found.append((sparsifier.phase.name, [round(float(group["lr"]), 8) for group in groups]))
        train_epoch(sparsifier)
    return found


def test_the_rate_is_held_until_the_fine_tuning_and_then_follows_the_schedule() -> None:
    model = network()
    groups = [{"params": model.first.parameters(), "lr": 0.04}, {"params": model.last.parameters(), "lr": 0.02}]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    found = rates(attached(model, optimizer, epochs=4, lr=schedules.drops()))
    assert all(lrs == [0.04, 0.02] for phase, lrs in found if phase != "fine-tune")
    assert [lrs for phase, lrs in found if phase == "fine-tune"] == [
        [0.04, 0.02],
        [0.04, 0.02],
        [0.004, 0.002],
        [0.0004, 0.0002],
    ]


def test_a_schedule_begins_anew_in_every_phase() -> None:
    model = network()
    plan = [Phase("one", epochs=2), Phase("two", epochs=4), Phase("held", epochs=1, hold_lr=True)]
    sparsifier = Sparsifier(model, sgd(model, lr=1.0), plan, lr=lambda progress: 1 - progress)
    assert [lrs for _, lrs in rates(sparsifier)] == [[1.0], [0.5], [1.0], [0.75], [0.5], [0.25], [1.0]]


def test_without_a_schedule_the_rate_stays() -> None:
    assert {lrs[0] for _, lrs in rates(attached())} == {0.05}


def test_a_rate_in_a_tensor_is_filled_in_place() -> None:
    model = network()
    rate = torch.tensor(0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    sparsifier = attached(model, optimizer, Dense(), epochs=2, lr=schedules.drops((0.5,)))
    assert [lrs for _, lrs in rates(sparsifier)] == [[0.05], [0.005]]
    assert optimizer.param_groups[0]["lr"] is rate
    assert sparsifier.lr == pytest.approx(0.005)


def test_a_group_added_later_follows_the_schedule_too() -> None:
    model = network()
    sparsifier = attached(model, sgd(model), Dense(), epochs=2, lr=schedules.drops((0.5,)))
    extra = nn.Parameter(torch.ones(1))
    for _ in sparsifier.epochs():
        if sparsifier.total_epoch == 0:
            sparsifier.state.optimizer.add_param_group({"params": [extra], "lr": 0.3})
        train_epoch(sparsifier)
    assert [round(group["lr"], 8) for group in sparsifier.state.optimizer.param_groups] == [0.005, 0.03]


SAYS_WHAT_TO_PASS = r"pass `attach\(\.\.\., lr=schedule\)`.*`hypersparse\.schedules\.cosine`"
FOREIGN: list[Callable[[Optimizer], Any]] = [
    lambda optimizer: lr_scheduler.StepLR(optimizer, step_size=30),
    lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, T_max=10),
    lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=30, cycle_momentum=False),
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_schedule_before_attaching_is_an_error(foreign: Callable[[Optimizer], Any]) -> None:
    model = network()
    optimizer = sgd(model)
    foreign(optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        attached(model, optimizer)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_foreign_schedule_after_attaching_is_an_error_in_the_first_epoch(
    foreign: Callable[[Optimizer], Any],
) -> None:
    before_the_loop = attached()
    foreign(before_the_loop.state.optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(epochs_of(before_the_loop))
    inside_the_loop = attached()
    trained = epochs_of(inside_the_loop)
    assert next(trained) == "pre-train"
    foreign(inside_the_loop.state.optimizer)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(trained)
    assert inside_the_loop.total_epoch == 0


def test_a_schedule_that_watches_the_loss_is_an_error_once_it_acts() -> None:
    sparsifier = attached(method=Dense(), epochs=9)
    scheduler = lr_scheduler.ReduceLROnPlateau(sparsifier.state.optimizer, patience=0)
    trained = epochs_of(sparsifier)
    for loss in (1.0, 2.0):
        next(trained)
        scheduler.step(loss)
    with pytest.raises(LoopError, match=SAYS_WHAT_TO_PASS):
        next(trained)


def test_a_rate_set_by_hand_is_an_error() -> None:
    sparsifier = attached()
    trained = epochs_of(sparsifier)
    next(trained)
    sparsifier.state.optimizer.param_groups[0]["lr"] *= 0.1
    with pytest.raises(LoopError, match=r"The learning rate was 0\.05 and is now 0\.005\. .*" + SAYS_WHAT_TO_PASS):
        next(trained)


# Mistakes


def loop_without(forgotten: str, sparsifier: Sparsifier) -> Iterator[int]:
    for epoch in sparsifier.epochs():
        for inputs, labels in batches():
            loss = cross_entropy(sparsifier.state.model(inputs), labels)
            if forgotten != "penalty":
                loss = loss + sparsifier.penalty()
            loss.backward()
            if forgotten != "step":
                sparsifier.step()
        yield epoch


@pytest.mark.parametrize("forgotten", ["step", "penalty"])
def test_a_forgotten_call_is_an_error_at_the_end_of_the_first_epoch(forgotten: str) -> None:
    loop = loop_without(forgotten, attached())
    assert next(loop) == 0
    with pytest.raises(LoopError, match=rf"`sparsifier\.{forgotten}\(\)` was not called in this epoch"):
        next(loop)


def test_a_call_forgotten_later_is_an_error_too() -> None:
    sparsifier = attached()
    trained = epochs_of(sparsifier)
    next(trained)
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    with pytest.raises(LoopError, match="was not called"):
        sparsifier.finish_epoch()


def test_a_plan_without_a_penalty_needs_no_penalty() -> None:
    sparsifier = attached(method=Dense(), epochs=1)
    for _ in sparsifier.epochs():
        sparsifier.step()
    assert sparsifier.done


def test_the_gradient_added_later_counts_as_the_penalty() -> None:
    sparsifier = attached(epochs=1)
    sparsifier.begin_epoch()
    sparsifier.add_penalty_gradient_()
    sparsifier.step()
    sparsifier.finish_epoch()
    assert sparsifier.total_epoch == 1


def test_a_step_outside_the_epochs_is_an_error() -> None:
    sparsifier = attached(method=Dense(), epochs=1)
    with pytest.raises(LoopError, match=r"belongs inside `for epoch in sparsifier\.epochs\(\):`"):
        sparsifier.step()
    list(epochs_of(sparsifier))
    with pytest.raises(LoopError, match="belongs inside"):
        sparsifier.step()


def test_finishing_what_was_not_begun_is_an_error() -> None:
    sparsifier = attached()
    with pytest.raises(LoopError, match="no epoch is open"):
        sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    train_epoch(sparsifier)
    sparsifier.finish_epoch()
    with pytest.raises(LoopError, match="no epoch is open"):
        sparsifier.finish_epoch()
    assert sparsifier.total_epoch == 1


def test_a_missing_task_is_an_error_before_any_training() -> None:
    with pytest.raises(LoopError, match=r"pass `task=Task\(criterion, loader\)` to hypersparse\.attach"):
        attached(task=None)
    assert list(epochs_of(attached(method=Dense(), task=None)))


def test_a_method_of_ones_own_that_asks_for_the_task_gets_the_same_error() -> None:
    def ask(state: TrainingState) -> bool:
        return state.task.score(state.model) > 0

    model = network()
    sparsifier = Sparsifier(model, sgd(model), [Phase("asking", epochs=1, until=ask)])
    with pytest.raises(LoopError, match=r"pass `task=Task\(criterion, loader\)`"):
        list(epochs_of(sparsifier))


def test_epochs_are_a_count() -> None:
    with pytest.raises(OptionError, match=r"`epochs` counts epochs of the main training, 0 or more; got -1"):
        attached(epochs=-1)


# Plans of one's own


def test_what_a_phase_may_do_happens_in_order() -> None:
    calls: list[str] = []

    def note(what: str) -> Callable[[TrainingState], Any]:
        return lambda state: calls.append(f"{what} {state.epoch}")

    model = network()
    plan = [
        Phase("left out", epochs=0, enter=note("never"), leave=note("never")),
        Phase("first", epochs=2, enter=note("enter"), leave=note("leave"), adjust=note("adjust")),
        Phase("second", epochs=9, enter=note("enter"), until=lambda state: state.epoch == 1),
    ]
    sparsifier = Sparsifier(model, sgd(model), plan)
    for _ in sparsifier.epochs():
        train_step(sparsifier, *batches()[0])
    assert calls == ["enter 0", "adjust 0", "adjust 1", "leave 1", "enter 0"]
    assert sparsifier.total_epoch == 4


def test_a_mask_set_in_the_middle_holds_from_then_on() -> None:
    def prune(state: TrainingState) -> None:
        state.weights.set_mask_(Mask.top({name: w.detach().abs() for name, w in state.weights.items()}, 10))

    model = network()
    sparsifier = Sparsifier(model, sgd(model), [Phase("dense", epochs=1), Phase("sparse", epochs=1, enter=prune)])
    seen = [(phase, is_sparse(sparsifier, 10)) for phase in epochs_of(sparsifier)]
    assert seen == [("dense", False), ("sparse", True)]
