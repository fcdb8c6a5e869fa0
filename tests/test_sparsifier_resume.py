"""Saving the sparsifier in any phase and going on as if nothing had been."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from hypersparse import SNIP, Dense, Sparsifier, Task, schedules
from hypersparse.errors import OptionError
from hypersparse.methods.phase_plan import plan_of
from tests.plain_loop import (
    PHASES,
    attached,
    batches,
    cross_entropy,
    epochs_of,
    equal_tensors,
    network,
    sgd,
    short_art,
    train_epoch,
    train_step,
)


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
        self.sparsifier = attached(self.model, self.optimizer, method, task=task, epochs=4, lr=schedules.multistep())

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


def finish_three_epochs(sparsifier: Sparsifier) -> None:
    for _ in range(3):
        assert sparsifier.begin_epoch()
        train_epoch(sparsifier)
        sparsifier.finish_epoch()
    assert (sparsifier.phase.name, sparsifier.state.epoch) == ("regularize", 1)


def test_saving_in_the_middle_of_an_epoch_and_going_on_changes_nothing() -> None:
    hard = short_art(sparsity=0.95)  # so that the first regularized epoch is not the last
    whole, first = attached(method=hard), attached(method=hard)
    for sparsifier in (whole, first):
        finish_three_epochs(sparsifier)
        assert sparsifier.begin_epoch()
        sparsifier.state.model.train()
        train_step(sparsifier, *batches()[0])
        sparsifier.observe(torch.eye(3), torch.tensor([0, 1, 0]))
    second = attached(network(9), method=hard)
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
    assert whole.log["dense_score"] == pytest.approx(2 / 3)  # what was seen before the interruption
    assert equal_tensors(second.state.model.state_dict(), whole.state.model.state_dict())


def test_what_was_saved_does_not_change_with_the_training() -> None:
    sparsifier = attached(method=short_art(sparsity=0.95), lr=schedules.constant)
    finish_three_epochs(sparsifier)
    saved = sparsifier.state_dict()
    before = copy.deepcopy(saved)
    assert saved["log"]
    assert saved["memory"]
    list(epochs_of(sparsifier))
    sparsifier.state.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 0.3})
    assert sparsifier.learning_rate is not None
    sparsifier.learning_rate.set_(sparsifier.phase, sparsifier.state.epoch)
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


def test_a_state_at_another_sparsity_is_an_error_once_it_matters() -> None:
    first = attached(method=short_art(sparsity=0.5))
    names = epochs_of(first)
    assert next(names) == "pre-train"
    other = attached(method=short_art(sparsity=0.9))
    other.load_state_dict(first.state_dict())  # it is the same at both
    assert other.phase.name == "pre-train"
    assert [*names][-1] == "fine-tune"
    with pytest.raises(
        OptionError, match=r"at sparsity 0\.5, and phase regularize is not the same at 0\.9\. Attach with 0\.5"
    ):
        other.load_state_dict(first.state_dict())
    assert other.phase.name == "pre-train"  # nothing was loaded
    attached(method=short_art(sparsity=0.5)).load_state_dict(first.state_dict())


def test_a_mask_at_another_sparsity_is_an_error() -> None:
    first = attached(method=SNIP(sparsity=0.5))
    next(epochs_of(first))
    with pytest.raises(OptionError, match=r"at sparsity 0\.5, and phase train is not the same at 0\.9\."):
        attached(method=SNIP(sparsity=0.9)).load_state_dict(first.state_dict())
    attached(method=SNIP(sparsity=0.1 * 5)).load_state_dict(first.state_dict())
    third = attached(method=SNIP(sparsity=1 - 1 / 3))
    next(epochs_of(third))
    attached(method=SNIP(sparsity=2 / 3)).load_state_dict(third.state_dict())  # which differ in the last bit


def test_a_pre_training_of_another_length_is_taken_at_another_sparsity() -> None:
    first = attached(method=short_art(sparsity=0.5, pretrain_epochs=3))
    next(epochs_of(first))
    attached(method=short_art(sparsity=0.9, pretrain_epochs=2)).load_state_dict(first.state_dict())


def test_a_state_of_something_else_is_an_error() -> None:
    sparsifier = attached()
    for other in (sparsifier.state.model.state_dict(), sparsifier.state.optimizer.state_dict()):
        with pytest.raises(OptionError, match=r"What `sparsifier\.state_dict\(\)` gave is wanted; .* no `cache_keys`"):
            sparsifier.load_state_dict(other)


def test_a_run_up_to_a_phase_goes_on_with_the_whole_plan() -> None:
    model = network()
    plan = plan_of(short_art(), epochs=2, until="pre-train")
    first = Sparsifier(model, sgd(model), plan)
    list(epochs_of(first))
    assert first.total_epoch == 2
    first.detach()
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
