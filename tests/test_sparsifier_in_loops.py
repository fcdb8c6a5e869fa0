"""The sparsifier beside other optimizers, precisions, compiled models, copies and averages."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import swa_utils

from hypersparse import Method, PowerProp, RigL, Sparsifier, TopKAST
from hypersparse.errors import LoopError, OptionError
from tests.plain_loop import (
    KEPT,
    Network,
    attached,
    batches,
    cross_entropy,
    epochs_of,
    is_sparse,
    network,
    sgd,
    short_art,
    train_step,
)

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
                loss = cross_entropy(model(inputs), labels)
            sparsifier.state.optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(sparsifier.state.optimizer)
            scaler.update()
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
    assert scaler.get_scale() == 128.0
    assert torch.equal(sparsifier.weights.vector(), before)
    assert is_sparse(sparsifier)


def test_weights_go_on_moving_after_a_step_that_the_scaler_skips() -> None:
    model = network()
    sparsifier = attached(model, method=RigL(sparsity=0.5, distribution="erk", update_every=2), epochs=8)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    masks = []
    for _ in sparsifier.epochs():
        for number, (inputs, labels) in enumerate(batches()):
            sparsifier.state.optimizer.zero_grad()
            overflow = torch.inf if number == sparsifier.state.epoch == 1 else 1.0
            scaler.scale(overflow * cross_entropy(model(inputs), labels)).backward()
            scaler.step(sparsifier.state.optimizer)
            scaler.update()
        masks.append(sparsifier.mask)
    assert len({str(mask and mask.vector().tolist()) for mask in masks}) > 2
    assert sparsifier.weights.vector().isfinite().all()


# Accumulation, and the penalty in the loss


@pytest.mark.parametrize("mode", ["gradient", "loss"])
def test_with_accumulation_the_penalty_counts_once(mode: str) -> None:
    grads = []
    for parts in (1, 4):
        model = network()
        model.eval()  # batch statistics would depend on the parts
        sparsifier = attached(model, method=short_art(pretrain_epochs=0, strength=0.5), penalty=mode)
        assert sparsifier.begin_epoch()
        inputs, labels = batches()[0]
        for part_inputs, part_labels in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
            loss = cross_entropy(model(part_inputs), part_labels)
            ((loss + sparsifier.penalty() if mode == "loss" else loss) / parts).backward()
        sparsifier.state.optimizer.step()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == dict(network().named_parameters()).keys()
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-5, atol=1e-6)


def test_the_penalty_in_the_loss_is_asked_for_and_only_then() -> None:
    with pytest.raises(LoopError, match=r"remove `sparsifier\.penalty\(\)` from the loss, or attach"):
        attached().penalty()
    trained = epochs_of(attached(penalty="loss"))
    assert next(trained) == "pre-train"
    with pytest.raises(LoopError, match=r"`sparsifier\.penalty\(\)` was not called in this epoch"):
        next(trained)
    with pytest.raises(OptionError, match="`penalty` is 'gradient' or 'loss'; got 'both'"):
        attached(penalty="both")


def test_a_loop_may_add_to_the_penalty_in_place() -> None:
    model = network()
    sparsifier = attached(model, penalty="loss")
    assert sparsifier.begin_epoch()
    for inputs, labels in batches():
        loss = sparsifier.penalty()
        loss += cross_entropy(model(inputs), labels)
        loss.backward()
    assert sparsifier.penalty().item() == 0.0


# Closures, and steps inside steps


def one_step(sparsifier: Sparsifier, make_step: Callable[[Callable[[], Tensor]], Any]) -> Tensor:
    """The weights after the first step of a plan, of a batch's gradient."""
    model, (inputs, labels) = sparsifier.state.model, batches()[0]
    assert sparsifier.begin_epoch()

    def closure() -> Tensor:
        sparsifier.state.optimizer.zero_grad()
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        return loss

    make_step(closure)
    assert sparsifier.state.step == 1
    return sparsifier.weights.vector().detach()


METHODS = [
    short_art(pretrain_epochs=0, penalty="l1", strength=0.1),
    PowerProp(sparsity=0.8),
    TopKAST(sparsity=0.8),
    RigL(sparsity=0.5, distribution="erk", update_every=1),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_step_with_a_closure_is_one_after_backward(method: Method) -> None:
    found = []
    for by_name in (None, False, True):
        sparsifier = attached(method=method)
        optimizer = sparsifier.state.optimizer
        if by_name is None:
            found.append(one_step(sparsifier, lambda closure: (closure(), optimizer.step())))  # noqa: B023
        elif by_name:
            found.append(one_step(sparsifier, lambda closure: optimizer.step(closure=closure)))  # noqa: B023
        else:
            found.append(one_step(sparsifier, optimizer.step))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_an_optimizer_that_calls_its_closure_often_minimizes_loss_and_penalty() -> None:
    model = nn.Linear(6, 1, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, line_search_fn="strong_wolfe")
    method = short_art(pretrain_epochs=0, penalty="l2", strength=1.0)
    sparsifier = attached(model, optimizer, method)
    target = torch.arange(6.0)
    sparsifier.begin_epoch()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = (model.weight - target).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    for _ in range(3):
        optimizer.step(closure)
    torch.testing.assert_close(model.weight.detach()[0], target / 2, rtol=1e-4, atol=1e-5)
    assert sparsifier.state.step == 3


def test_a_closure_that_is_called_again_inside_changed_weights_is_an_error() -> None:
    model = network()
    optimizer = torch.optim.LBFGS(model.parameters())
    with pytest.raises(LoopError, match=r"the closure cannot be called again\. Use an optimizer that calls it once"):
        one_step(attached(model, optimizer, PowerProp(sparsity=0.8)), optimizer.step)


class Inner(torch.optim.SGD):
    """Its step calls its parent's, for which torch calls the hooks again once the parent has been used too."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def test_a_step_inside_a_step_counts_once() -> None:
    found = []
    for kind in (torch.optim.SGD, Inner):
        model = network()
        sparsifier = attached(model, kind(model.parameters(), lr=0.1), METHODS[0])
        optimizer = sparsifier.state.optimizer
        found.append(one_step(sparsifier, lambda closure: (closure(), optimizer.step())))  # noqa: B023
    assert torch.equal(*found)


class Failing(torch.optim.SGD):
    """Its step fails as long as it is told to."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise MemoryError
        return super().step(closure)


@pytest.mark.parametrize("method", METHODS[:2], ids=lambda method: method.name)
def test_a_step_that_fails_leaves_nothing_behind_or_is_said(method: Method) -> None:
    found = []
    for fails in (False, True):
        model = network()
        optimizer = Failing(model.parameters(), lr=0.1)
        sparsifier = attached(model, optimizer, method)
        optimizer.fails = fails
        if fails:
            with pytest.raises(MemoryError):
                one_step(sparsifier, optimizer.step)
        optimizer.fails = False
        if fails and method.name == "powerprop":
            with pytest.raises(LoopError, match="An earlier step of the optimizer failed while this method had"):
                one_step(sparsifier, optimizer.step)
            return
        found.append(one_step(sparsifier, optimizer.step))
    assert torch.equal(*found)


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
