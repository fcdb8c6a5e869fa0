"""`SparsityCallback` beside other callbacks of Lightning that hold or set weights, and strategies that are refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import (
    Callback,
    EMAWeightAveraging,
    GradientAccumulationScheduler,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch import nn

import hypersparse
from hypersparse import GMP, LoopError, OptionError
from hypersparse.integrations.lightning import SparsityCallback
from tests.integrations.test_lightning import ManualModule, Module, module, samples, sparsity_of, trainer_with
from tests.integrations.test_lightning import pytestmark as as_there

pytestmark = as_there
EPOCHS = 6


class NormalizedModule(Module):
    """With batch norm, for which averaging adds an epoch without steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def linear(model: nn.Module) -> dict[str, torch.Tensor]:
    return {
        f"{name}.weight": layer.weight.detach() for name, layer in model.named_modules() if isinstance(layer, nn.Linear)
    }


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", [Module, NormalizedModule])
@pytest.mark.parametrize(
    "average", [lambda: StochasticWeightAveraging(1e-2, swa_epoch_start=1), lambda: EMAWeightAveraging(decay=0.9)]
)
def test_an_average_of_the_weights_is_sparse(average: Any, kind: type[Module], first: bool) -> None:
    callback, model = SparsityCallback(GMP(sparsity=0.9)), module(kind)
    callbacks = [callback, average()] if first else [average(), callback]
    trainer_with(*callbacks, max_epochs=EPOCHS).fit(model, samples())
    assert callback.sparsifier is not None
    assert callback.sparsifier.done
    assert callback.sparsifier.total_epoch == EPOCHS
    assert sparsity_of(linear(model)) == pytest.approx(0.9, abs=2e-3)


def test_the_checkpoint_of_an_average_is_sparse(tmp_path: Path) -> None:
    saving = ModelCheckpoint(tmp_path, filename="average", every_n_epochs=EPOCHS)
    callbacks = [EMAWeightAveraging(decay=0.9), SparsityCallback(GMP(sparsity=0.9)), saving]
    trainer_with(*callbacks, max_epochs=EPOCHS).fit(module(), samples())
    saved = torch.load(tmp_path / "average.ckpt", weights_only=True)
    assert sparsity_of(saved["state_dict"]) == pytest.approx(0.9, abs=2e-3)


class Restores(Callback):
    """Puts the weights of the beginning back at the end."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.weights = [parameter.detach().clone() for parameter in pl_module.parameters()]

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        for parameter, before in zip(pl_module.parameters(), self.weights, strict=True):
            parameter.data.copy_(before)


def test_weights_that_another_callback_sets_are_noticed() -> None:
    with pytest.raises(LoopError, match=r"dropped weights are not 0\.0, the first in `net\.0\.weight`"):
        trainer_with(SparsityCallback(GMP(sparsity=0.9)), Restores(), max_epochs=2).fit(module(), samples())


def test_a_plan_needs_epochs_of_the_same_length_or_steps() -> None:
    def trainer(**length: int) -> Any:
        return trainer_with(GradientAccumulationScheduler({0: 1, 2: 2}), SparsityCallback(GMP(sparsity=0.9)), **length)

    with pytest.raises(OptionError, match="counted; set the trainer's `max_steps`"):
        trainer(max_epochs=4).fit(module(), samples())
    model = module()
    trainer(max_steps=18).fit(model, samples())
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    ("strategy", "said"), [(FSDPStrategy, "use ModelParallelStrategy"), (DeepSpeedStrategy, "its own copy")]
)
def test_strategies_that_hide_the_weights_are_refused(strategy: Any, said: str) -> None:
    """Both need a GPU, so that only the strategy's type is shown to the callback here."""
    model = module()
    trainer: Any = SimpleNamespace(strategy=strategy.__new__(strategy), optimizers=[model.configure_optimizers()])
    with pytest.raises(OptionError, match=said):
        SparsityCallback(GMP()).on_train_start(trainer, model)


class TwoOptimizers(ManualModule):
    """Attaches a method to one of its two optimizers, as the callback's error says."""

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.net[0], self.net[2])]

    def on_train_start(self) -> None:
        self.sparsifier = hypersparse.attach(
            self.net[0], self.optimizers()[0], GMP(sparsity=0.9), epochs=2, steps_per_epoch=6
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> None:
        self.manual_backward(nn.functional.cross_entropy(self(batch[0]), batch[1]))
        for optimizer in self.optimizers():
            optimizer.step()
            optimizer.zero_grad()


def test_one_of_two_optimizers_can_be_attached_to() -> None:
    model = module(TwoOptimizers)
    trainer_with(max_epochs=2).fit(model, samples())
    assert model.sparsifier.done
    assert sparsity_of({"weight": model.net[0].weight.detach()}) == 0.9
    assert sparsity_of({"weight": model.net[2].weight.detach()}) == 0
