"""`SparsityCallback` in real Lightning trainers."""

import itertools
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hypersparse
from hypersparse import ART, GMP, SNIP, LoopError, Method, OptionError, Task
from hypersparse.integrations.lightning import SparsityCallback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),  # these networks learn for a few steps
    pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`"),
    pytest.mark.filterwarnings("ignore:The number of training batches"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization"),
]
BATCHES = 6
criterion = nn.functional.cross_entropy


def samples(*, alike: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    """Six batches; all of them the same where a training goes on in the middle of an epoch."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(8, 20, generator=generator).repeat(BATCHES, 1)
    if not alike:
        inputs = torch.randn(8 * BATCHES, 20, generator=generator)
    return DataLoader(TensorDataset(inputs, (inputs[:, 0] > 0).long()), batch_size=8)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, inputs: Tensor) -> Any:
        return self.net(inputs)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return criterion(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class ValidatedModule(Module):
    """Its scores are given."""

    def __init__(self, scores: Iterator[float]) -> None:
        super().__init__()
        self.scores = scores

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        self.log("score", next(self.scores))


class ManualModule(Module):
    def __init__(self, every: int = 1) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.every = every

    def training_step(self, batch: list[Tensor], index: int) -> None:
        optimizer = self.optimizers()
        self.manual_backward(criterion(self(batch[0]), batch[1]))
        if (index + 1) % self.every == 0:
            optimizer.step()
            optimizer.zero_grad()


class ZerosAfterEveryStep(Callback):
    """Compares the zeros with the mask, after the callbacks before it."""

    def __init__(self) -> None:
        self.sparsities: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        (callback,) = [callback for callback in trainer.callbacks if isinstance(callback, SparsityCallback)]
        assert callback.sparsifier is not None
        mask = callback.sparsifier.mask
        for name, weight in callback.sparsifier.weights.items():
            assert mask is None or bool((weight[~mask[name]] == 0).all())
        self.sparsities.append(0.0 if mask is None else mask.sparsity)


def trainer_with(*callbacks: Callback, **options: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_checkpointing": any(isinstance(one, ModelCheckpoint) for one in callbacks)}
    return lightning.Trainer(
        callbacks=list(callbacks),
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        **{**quiet, **options},
    )


def module(kind: type[Module] = Module, **options: Any) -> Module:
    torch.manual_seed(3)
    return kind(**options)


def sparsity_of(state: dict[str, Tensor]) -> float:
    weights = [tensor for name, tensor in state.items() if name.endswith("weight")]
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / sum(weight.numel() for weight in weights)


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("kind", [Module, ManualModule])
def test_zeros_are_exact_after_every_step_and_in_the_checkpoint(
    kind: type[Module], precision: str, tmp_path: Path
) -> None:
    zeros, saved = ZerosAfterEveryStep(), ModelCheckpoint(tmp_path, every_n_train_steps=BATCHES, save_top_k=-1)
    model = module(kind)
    trainer = trainer_with(
        SparsityCallback(GMP(sparsity=0.9)), zeros, saved, max_epochs=4, precision=precision, logger=CSVLogger(tmp_path)
    )
    trainer.fit(model, samples())
    assert zeros.sparsities[-1] == pytest.approx(0.9, abs=1e-3)
    assert sparsity_of(model.state_dict()) == zeros.sparsities[-1]
    assert trainer.logged_metrics["sparsity"] == pytest.approx(zeros.sparsities[-1])
    for path in tmp_path.glob("*.ckpt"):
        state = torch.load(path, weights_only=True)
        assert sparsity_of(state["state_dict"]) == zeros.sparsities[state["global_step"] - 1]


def test_accumulated_and_clipped_steps_are_those_of_a_plain_loop() -> None:
    art, loader = ART(sparsity=0.8, pretrain_epochs=1, strength=1e-2, growth=2.0, max_regularized_epochs=2), samples()
    task = Task(criterion, loader)
    model, plain = module(), module()
    callback = SparsityCallback(art, epochs=2, task=task)
    trainer_with(callback, max_epochs=5, accumulate_grad_batches=4, gradient_clip_val=0.1).fit(model, loader)

    optimizer = plain.configure_optimizers()
    sparsifier = hypersparse.attach(plain, optimizer, art, epochs=2, task=task, steps_per_epoch=2, max_steps=5 * 2)
    for _ in range(5):
        for number, (inputs, labels) in enumerate(loader, start=1):
            (criterion(plain(inputs), labels) / 4).backward()
            if number % 4 == 0 or number == len(loader):
                nn.utils.clip_grad_norm_(plain.parameters(), 0.1)
                optimizer.step()
                optimizer.zero_grad()
    assert sparsifier.done
    assert sparsity_of(model.state_dict()) == pytest.approx(0.8, abs=1e-3)
    assert equal(model, plain)


@pytest.mark.parametrize("steps", [4, 6, 15])
def test_a_training_goes_on_from_lightnings_checkpoint(steps: int, tmp_path: Path) -> None:
    loader = samples(alike=True)

    def callback() -> SparsityCallback:
        art = ART(sparsity=0.8, pretrain_epochs=1, strength=1e-3)
        return SparsityCallback(art, epochs=2, task=Task(criterion, loader))

    whole = module()
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=steps, save_top_k=-1, filename="{step}")
    trainer_with(callback(), saving, max_epochs=4).fit(whole, loader)

    resumed = module()
    nn.init.zeros_(resumed.net[0].weight)
    again = callback()
    trainer_with(again, max_epochs=4).fit(resumed, loader, ckpt_path=tmp_path / f"step={steps}.ckpt")
    assert equal(resumed, whole)
    assert 0.79 < sparsity_of(resumed.state_dict()) < 0.81


def test_a_second_fit_goes_on() -> None:
    model, callback = module(), SparsityCallback(GMP(sparsity=0.9), epochs=2)
    trainer = trainer_with(callback, max_epochs=2)
    trainer.fit(model, samples())
    kept = [weight != 0 for weight in model.parameters()]
    trainer.fit_loop.max_epochs = 3
    trainer.fit(model, samples())
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)
    assert all(bool((weight[~before] == 0).all()) for weight, before in zip(model.parameters(), kept, strict=True))


def test_a_dense_checkpoint_is_made_sparse_in_the_steps_that_are_left(tmp_path: Path) -> None:
    trainer_with(ModelCheckpoint(tmp_path, filename="dense"), max_epochs=2).fit(module(), samples())
    model, callback = module(), SparsityCallback(GMP(sparsity=0.9))
    trainer_with(callback, max_epochs=5).fit(model, samples(), ckpt_path=tmp_path / "dense.ckpt")
    assert callback.sparsifier is not None
    assert callback.sparsifier.done
    assert callback.sparsifier.total_epoch == 3
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("method", [ART(sparsity=0.9), GMP(sparsity=0.9)])
def test_fast_dev_run_tries_a_plan_that_is_longer(method: Method) -> None:
    model = module()
    trainer_with(SparsityCallback(method, task=Task(criterion, samples())), fast_dev_run=True).fit(model, samples())
    assert sparsity_of(model.state_dict()) == 0


def test_the_trainers_steps_bound_the_plan() -> None:
    art = ART(sparsity=0.9, pretrain_epochs=1, strength=1e-9, growth=1.0)
    zeros, model = ZerosAfterEveryStep(), module()
    task = Task(criterion, samples(), metric=lambda outputs, labels: -criterion(outputs, labels))
    trainer_with(SparsityCallback(art, epochs=1, task=task), zeros, max_steps=4 * BATCHES + 2).fit(model, samples())
    pruned_after = next(step for step, sparsity in enumerate(zeros.sparsities, start=1) if sparsity)
    assert pruned_after == 3 * BATCHES
    assert len(zeros.sparsities) == 4 * BATCHES + 2
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


def test_less_than_an_epoch_is_a_plan_too() -> None:
    model = module()
    trainer_with(SparsityCallback(SNIP(sparsity=0.9, data="batch"), task=Task(criterion, samples())), max_steps=3).fit(
        model, samples()
    )
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize(
    ("method", "options", "length", "said"),
    [
        (ART(), {}, {"max_epochs": 3}, "ART decides itself when to prune: pass `epochs`"),
        (ART(), {"epochs": 9}, {"max_epochs": 3}, "does not fit the trainer's 3 epochs.*pre-train 60"),
        (GMP(), {}, {"max_epochs": -1}, "no last epoch; pass `epochs`"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(
    method: Method, options: dict[str, Any], length: dict[str, int], said: str
) -> None:
    trainer = trainer_with(SparsityCallback(method, task=Task(criterion, samples()), **options), **length)
    with pytest.raises(OptionError, match=said):
        trainer.fit(module(), samples())


def test_data_without_a_length_needs_the_steps_of_an_epoch() -> None:
    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return itertools.cycle(samples().dataset)  # type: ignore[arg-type]

    loader: DataLoader[Any] = DataLoader(Endless(), batch_size=8)
    with pytest.raises(OptionError, match="steps_per_epoch=N"):
        trainer_with(SparsityCallback(GMP()), max_steps=9).fit(module(), loader)
    model = module()
    trainer_with(SparsityCallback(GMP(sparsity=0.9), steps_per_epoch=3), max_steps=9).fit(model, loader)
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


def test_manual_steps_that_are_not_one_for_every_batch_are_said() -> None:
    with pytest.raises(LoopError, match=r"had 3 optimizer steps instead of 6.*steps_per_epoch=3"):
        trainer_with(SparsityCallback(GMP()), max_epochs=2).fit(module(ManualModule, every=2), samples())
    model = module(ManualModule, every=2)
    trainer_with(SparsityCallback(GMP(sparsity=0.9), steps_per_epoch=3), max_epochs=2).fit(model, samples())
    assert sparsity_of(model.state_dict()) == pytest.approx(0.9, abs=1e-3)


@pytest.mark.parametrize("most", [1, 3])
def test_the_best_checkpoint_is_never_a_dense_one(most: int, tmp_path: Path) -> None:
    """The metric is best while the network is dense, as it mostly is."""
    scores = iter([0.9, 0.95, 0.5, 0.6, 0.55, 0.52])  # the third is measured after pruning
    best = ModelCheckpoint(tmp_path, monitor="score", mode="max", save_top_k=most)
    stopping = EarlyStopping(monitor="score", mode="max", patience=2)
    art = ART(sparsity=0.8, pretrain_epochs=2, max_regularized_epochs=1, strength=1.0)
    model = module(ValidatedModule, scores=scores)
    callback = SparsityCallback(art, epochs=3, task=Task(criterion, samples()))
    trainer_with(callback, best, stopping, max_epochs=6, num_sanity_val_steps=0).fit(model, samples(), samples())
    assert next(scores, None) is None, "early stopping took the dense network's score for the one to beat"
    assert best.best_model_score == pytest.approx(0.6)
    saved = torch.load(best.best_model_path, weights_only=True)
    assert sparsity_of(saved["state_dict"]) == pytest.approx(0.8, abs=1e-3)
    assert len(list(tmp_path.glob("*.ckpt"))) == most


def test_two_optimizers_are_refused() -> None:
    class Two(ManualModule):
        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (self.net[0], self.net[2])]

    with pytest.raises(OptionError, match="one optimizer trains, and Two has 2"):
        trainer_with(SparsityCallback(GMP()), max_epochs=1).fit(module(Two), samples())


def test_two_processes_have_the_same_mask(tmp_path: Path) -> None:
    class Saved(Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            torch.save(deepcopy(pl_module.state_dict()), tmp_path / f"{trainer.global_rank}.pt")

    art = ART(sparsity=0.8, pretrain_epochs=1, strength=1e-3, max_regularized_epochs=3)
    callback = SparsityCallback(art, epochs=1, task=Task(criterion, samples()))
    trainer = trainer_with(callback, Saved(), max_epochs=5, strategy="ddp_fork", devices=2)
    trainer.fit(module(), samples())
    states = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert sparsity_of(states[0]) == pytest.approx(0.8, abs=1e-3)
