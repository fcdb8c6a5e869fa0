import warnings

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import (
    CollapseError,
    CollapseWarning,
    EverySteps,
    Mask,
    OptionError,
    Phase,
    PrunableWeights,
    Sparsifier,
    TrainingState,
)
from hypersparse.sparsity.collapse import CollapseGuard, OnCollapse


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def keeping(first: int, second: int) -> Mask:
    """So many weights of each layer, from the end, so that few of them meet."""
    layers = {"0.weight": torch.zeros(12, dtype=torch.bool), "2.weight": torch.zeros(8, dtype=torch.bool)}
    layers["0.weight"][:first] = True
    layers["2.weight"][8 - second :] = True
    return Mask({"0.weight": layers["0.weight"].view(4, 3), "2.weight": layers["2.weight"].view(2, 4)})


def guard_of(mask: Mask, on_collapse: OnCollapse = "warn", shape: tuple[int, ...] | None = (3,)) -> CollapseGuard:
    weights = PrunableWeights(network())
    weights.set_mask_(mask)
    return CollapseGuard(weights, input_shape=shape, on_collapse=on_collapse)


def test_what_is_whole_says_nothing() -> None:
    guard_of(keeping(12, 8), "error").look("Now")


def test_empty_layers_are_named() -> None:
    with pytest.warns(CollapseWarning, match=r"Now: No weight is left in 1 of 2 layers: 0.weight. No path from"):
        guard_of(keeping(0, 8)).look("Now")
    with pytest.raises(CollapseError, match="Lower the sparsity"):
        guard_of(keeping(0, 8), "error").look("Now")


def test_layers_that_do_not_meet_are_cut_off_though_none_is_empty() -> None:
    with pytest.warns(CollapseWarning, match="Now: No path from input to output remains"):
        guard_of(keeping(3, 1)).look("Now")
    guard_of(keeping(3, 1), shape=None).look("Now")  # of which nothing is known without a shape


def test_without_a_shape_paths_are_not_known() -> None:
    with pytest.warns(CollapseWarning, match="is not known"):
        guard_of(keeping(0, 8), shape=None).look("Now")


def test_the_same_finding_is_said_once_and_a_seen_mask_never() -> None:
    weights = PrunableWeights(network())
    guard = CollapseGuard(weights, input_shape=(3,), on_collapse="warn")
    guard.look("Before any mask")
    weights.set_mask_(keeping(0, 8))
    with pytest.warns(CollapseWarning):
        guard.look("Now")
    guard.look("Now")
    weights.set_mask_(keeping(0, 7))
    guard.look("Now")
    guard_of(keeping(0, 8), "ignore").look("Now")
    silent = guard_of(keeping(0, 8))
    silent.accept()
    silent.look("Now")


def test_a_brief_look_sees_empty_layers_and_leaves_paths_for_later() -> None:
    guard = guard_of(keeping(3, 1))
    guard.look("Now", briefly=True)
    with pytest.warns(CollapseWarning):
        guard.look("Now")
    with pytest.warns(CollapseWarning):
        guard_of(keeping(0, 1)).look("Now", briefly=True)


def test_words_other_than_three_are_refused() -> None:
    with pytest.raises(OptionError, match="warn, error or ignore; got 'panic'"):
        guard_of(keeping(1, 1), "panic")  # type: ignore[arg-type]


def steps(sparsifier: Sparsifier) -> None:
    for _ in sparsifier.epochs():
        sparsifier.state.optimizer.step()


def sparsifier_with(phase: Phase, on_collapse: OnCollapse) -> Sparsifier:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Sparsifier(model, optimizer, [phase], input_shape=(3,), on_collapse=on_collapse)


def test_masks_are_looked_at_when_a_phase_begins_and_ends() -> None:
    def cut(state: TrainingState) -> None:
        state.weights.set_mask_(keeping(0, 8))

    def cut_later(state: TrainingState) -> None:
        if state.epoch == 1:
            cut(state)

    cases = {
        "On entering phase p": Phase("p", epochs=2, on_enter=cut),
        "At the end of phase p": Phase("p", epochs=2, on_exit=cut),
        "In phase p": Phase("p", epochs=2, on_epoch_start=cut_later),
    }
    for words, phase in cases.items():
        with pytest.warns(CollapseWarning, match=words) as caught:
            steps(sparsifier_with(phase, "warn"))
        assert len(caught) == 1
        with pytest.raises(CollapseError, match=words):
            steps(sparsifier_with(phase, "error"))
        steps(sparsifier_with(phase, "ignore"))
    # Not in the steps between, but when the next epoch begins, or the phase ends.
    for epochs, words in ((2, "In phase p"), (1, "At the end of phase p")):
        with pytest.warns(CollapseWarning, match=words):
            steps(sparsifier_with(Phase("p", epochs=epochs, on_step=EverySteps(cut)), "warn"))


def test_a_mask_from_a_checkpoint_was_told_before() -> None:
    def cut(state: TrainingState) -> None:
        state.weights.set_mask_(keeping(0, 8))

    phase = Phase("p", epochs=2, on_enter=cut)
    first, second = sparsifier_with(phase, "ignore"), sparsifier_with(phase, "warn")
    first.begin_epoch()
    first.state.optimizer.step()
    second.load_state_dict(first.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(second)


def test_attach_takes_the_word() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(OptionError, match="on_collapse"):
        hypersparse.attach(model, optimizer, hypersparse.Dense(), epochs=1, on_collapse="never")  # type: ignore[arg-type]
