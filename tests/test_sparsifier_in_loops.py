"""The sparsifier beside other optimizers, precisions, compiled models, copies and averages."""

import copy

import pytest
import torch
from torch.optim import swa_utils

from hypersparse import Method, PowerProp, RigL, TopKAST
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


def test_weights_go_on_moving_after_a_step_that_the_scaler_skips() -> None:
    model = network()
    sparsifier = attached(model, method=RigL(sparsity=0.5, distribution="erk", update_every=2), epochs=8)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    masks = []
    for _ in sparsifier.epochs():
        for inputs, labels in batches():
            sparsifier.state.optimizer.zero_grad()
            overflow = (
                torch.inf if sparsifier.phase.acts_in(sparsifier.state.step) and sparsifier.state.epoch == 1 else 1.0
            )
            scaler.scale(overflow * cross_entropy(model(inputs), labels) + sparsifier.penalty()).backward()
            scaler.step(sparsifier.state.optimizer)
            scaler.update()
            sparsifier.step()
        masks.append(sparsifier.mask)
    assert len({str(mask and mask.vector().tolist()) for mask in masks}) > 2
    assert sparsifier.weights.vector().isfinite().all()


# Accumulation


def test_with_accumulation_the_penalty_counts_once() -> None:
    grads = []
    for parts in (1, 4):
        model = network()
        model.eval()  # batch statistics would depend on the parts
        sparsifier = attached(model, method=short_art(pretrain_epochs=0, strength=0.5), accumulation_steps=parts)
        assert sparsifier.begin_epoch()
        inputs, labels = batches()[0]
        for part_inputs, part_labels in zip(inputs.chunk(parts), labels.chunk(parts), strict=True):
            loss = cross_entropy(model(part_inputs), part_labels) / parts + sparsifier.penalty()
            loss.backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == dict(network().named_parameters()).keys()
    for name, grad in grads[0].items():
        torch.testing.assert_close(grad, grads[1][name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulation", [0, -1])
def test_accumulation_is_a_count(accumulation: int) -> None:
    with pytest.raises(OptionError, match=f"`accumulation_steps` counts backward passes.*got {accumulation}"):
        attached(accumulation_steps=accumulation)


def test_a_loop_may_add_to_the_penalty_in_place() -> None:
    model = network()
    sparsifier = attached(model)
    assert sparsifier.begin_epoch()
    for inputs, labels in batches():
        loss = sparsifier.penalty()
        loss += cross_entropy(model(inputs), labels)
        loss.backward()
    assert sparsifier.penalty().item() == 0.0


# Closures


@pytest.mark.parametrize("method", [PowerProp(sparsity=0.8), TopKAST(sparsity=0.8)])
def test_a_closure_inside_changed_weights_is_an_error_and_one_outside_is_not(method: Method) -> None:
    found = []
    for with_closure in (True, False):
        model = network()
        sparsifier = attached(model, method=method)
        optimizer, (inputs, labels) = sparsifier.state.optimizer, batches()[0]
        assert sparsifier.begin_epoch()
        loss = cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        if with_closure:
            with pytest.raises(
                LoopError, match=r"call `backward\(\)` first, and then `optimizer\.step\(\)` without one"
            ):
                optimizer.step(lambda: 0.0)
        optimizer.step()
        sparsifier.step()
        found.append(sparsifier.weights.vector().detach())
    assert torch.equal(*found)  # nothing had happened when it was raised


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
