"""The sparsifier: its phases, and what it says about mistakes."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from hypersparse import LTH, SNIP, Dense, EverySteps, Magnitude, Mask, Method, Phase, Random, Sparsifier, TrainingState
from hypersparse.errors import CollapseWarning, LoopError, OptionError
from tests.plain_loop import (
    PHASES,
    Network,
    attached,
    batches,
    epochs_of,
    is_sparse,
    network,
    sgd,
    train_epoch,
    train_step,
)

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
    sparsifier = attached(model, extra_prunable={nn.Bilinear: ("weight",)})
    assert list(sparsifier.weights) == ["0.weight", "1.weight"]


# Mistakes


def test_an_epoch_without_a_step_is_an_error_when_it_ends() -> None:
    epochs = attached().epochs()
    assert next(epochs) == 0
    with pytest.raises(LoopError, match="The optimizer made no step in this epoch"):
        next(epochs)


def test_a_step_before_the_first_epoch_is_an_error_unless_it_moves_nothing() -> None:
    sparsifier = attached()
    optimizer = sparsifier.state.optimizer
    with pytest.raises(LoopError, match=r"iterate over `sparsifier\.epochs\(\)`, or attach with `steps_per_epoch"):
        optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    optimizer.step()  # as what creates the optimizer's state before a checkpoint is loaded
    assert sparsifier.state.step == 0


def test_the_optimizer_may_step_outside_the_plan_and_less_often() -> None:
    model = network()
    optimizer = sgd(model)
    sparsifier = attached(model, optimizer, method=Random(sparsity=0.8), epochs=2)
    for _ in sparsifier.epochs():
        for number, (inputs, labels) in enumerate(batches()):
            if number:  # a scaler may leave one out
                train_step(sparsifier, inputs, labels)
        sparsifier.finish_epoch()
        train_step(sparsifier, *batches()[0])  # between two epochs
        assert is_sparse(sparsifier)
    train_step(sparsifier, *batches()[0])  # after
    assert sparsifier.done
    assert sparsifier.state.step == 0
    assert is_sparse(sparsifier)
    sparsifier.detach()
    train_step(sparsifier, *batches()[0])
    assert not is_sparse(sparsifier)


def test_steps_that_were_taken_back_do_not_count() -> None:
    sparsifier = attached(method=Random(sparsity=0.8), epochs=1)
    sparsifier.begin_epoch()
    saved = sparsifier.state_dict()
    for _ in range(2):
        train_epoch(sparsifier)
        sparsifier.load_state_dict(saved)  # as after a loss that went wrong
    train_epoch(sparsifier)
    sparsifier.finish_epoch()
    assert sparsifier.done


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
    sparsifier = Sparsifier(model, sgd(model), [Phase("asking", epochs=1, stop_when=ask)])
    with pytest.raises(LoopError, match=r"pass `task=Task\(criterion, loader\)`"):
        list(epochs_of(sparsifier))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task": batches()}, r"`task` is Task\(criterion, loader\); got list"),
        ({"extra_prunable": [nn.Bilinear]}, r"`extra_prunable` is \{ModuleType: \('weight',\)\}; got list"),
        ({"input_shape": 12}, r"`input_shape` is that of one input, such as \(3, 32, 32\); got 12"),
    ],
)
def test_what_attach_cannot_use_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        attached(method=Dense(), **options)


def test_an_input_that_the_model_cannot_take_is_said_once() -> None:
    sparsifier = attached(method=Random(sparsity=0.5), input_shape=(7,))
    with pytest.warns(CollapseWarning) as said:
        list(epochs_of(sparsifier))
    assert [str(warning.message).partition(" (")[0] for warning in said] == [
        "The model cannot be run on an input of the shape"
    ]
    assert "only empty layers are detected, not other collapse. Is `input_shape`" in str(said[0].message)
    for options in ({"input_shape": (6,)}, {"input_shape": (7,), "on_collapse": "ignore"}, {}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            list(epochs_of(attached(method=Random(sparsity=0.5), **options)))


@pytest.mark.parametrize("epochs", [-1, 2.5, "3", True])
def test_epochs_are_a_count(epochs: Any) -> None:
    with pytest.raises(OptionError, match=rf"`epochs` counts epochs of the main training, 0 or more; got {epochs}"):
        attached(epochs=epochs)


@pytest.mark.parametrize("method", [Magnitude(sparsity=0.8, dense_epochs=2), SNIP(sparsity=0.8), LTH()])
def test_no_epochs_in_which_the_mask_would_be_made_are_an_error(method: Method) -> None:
    with pytest.raises(OptionError, match=rf"With `epochs` 0 the phase `\S+` of {type(method).__name__} is left out"):
        attached(method=method, epochs=0)


def test_art_prunes_before_its_fine_tuning_which_may_be_left_out() -> None:
    sparsifier = attached(epochs=0)
    assert list(dict.fromkeys(epochs_of(sparsifier))) == PHASES[:2]
    assert is_sparse(sparsifier)


@pytest.mark.parametrize("method", [Dense, "art"])
def test_a_method_comes_with_its_options(method: Any) -> None:
    with pytest.raises(OptionError, match=r"such as ART\(sparsity=0\.98\); got"):
        attached(method=method)


# Plans of one's own


def test_what_a_phase_may_do_happens_in_order() -> None:
    calls: list[str] = []

    def note(what: str) -> Callable[[TrainingState], Any]:
        return lambda state: calls.append(f"{what} {state.epoch}")

    model = network()
    plan = [
        Phase("left out", epochs=0, on_enter=note("never"), on_exit=note("never")),
        Phase("first", epochs=2, on_enter=note("enter"), on_exit=note("leave"), on_step=EverySteps(note("adjust"))),
        Phase("second", epochs=9, on_enter=note("enter"), stop_when=lambda state: state.epoch == 1),
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
    sparsifier = Sparsifier(model, sgd(model), [Phase("dense", epochs=1), Phase("sparse", epochs=1, on_enter=prune)])
    seen = [(phase, is_sparse(sparsifier, 10)) for phase in epochs_of(sparsifier)]
    assert seen == [("dense", False), ("sparse", True)]


def test_a_method_adjusts_every_so_many_steps_and_begins_every_epoch() -> None:
    calls: list[str] = []
    plan = [
        Phase(
            "first",
            epochs=2,
            on_epoch_start=lambda state: calls.append(f"begin {state.epoch}"),
            on_step=EverySteps(lambda state: calls.append(f"adjust before step {state.step} is counted"), 3),
        )
    ]
    model = network()
    sparsifier = Sparsifier(model, sgd(model), plan)
    for _ in sparsifier.epochs():
        for _ in range(4):
            train_step(sparsifier, *batches()[0])
    adjusts = [f"adjust before step {step} is counted" for step in (2, 5)]
    assert calls == ["begin 0", adjusts[0], "begin 1", adjusts[1]]


@pytest.mark.parametrize(("every", "warns"), [(6, False), (7, True)])
def test_a_phase_too_short_for_what_its_method_does_is_said(every: int, warns: bool) -> None:
    model = network()
    plan = [Phase("first", epochs=2, on_step=EverySteps(lambda state: None, every))]
    with pytest.warns(UserWarning, match=r"Phase first had 6 steps, too few.*every 7th") if warns else nullcontext():
        list(epochs_of(Sparsifier(model, sgd(model), plan)))


def test_what_a_method_draws_goes_on_after_a_restart() -> None:
    model = network()
    torch.manual_seed(5)
    plan = [Phase("first", epochs=1)]
    one, other = Sparsifier(model, sgd(model), plan), Sparsifier(model, sgd(model), plan)
    assert torch.equal(torch.rand(3, generator=one.state.generator), torch.rand(3, generator=other.state.generator))
    saved = one.state_dict()
    drawn = torch.rand(3, generator=one.state.generator)
    other.load_state_dict(saved)
    assert torch.equal(torch.rand(3, generator=other.state.generator), drawn)
