"""Runs on the fused path, with plain operations and without a capture: trained as on the ordinary path."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from hypersparse import data
from hypersparse.data.batches import Batches
from hypersparse.methods.task import accuracy
from hypersparse.recipe import Recipe, merge
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import load_weights_
from hypersparse.training import engines, optimizers
from hypersparse.training.concurrency.cuda_streams import run_concurrently
from hypersparse.training.engines import CapturedStep, EagerStep
from hypersparse.training.forward_backward import ForwardBackward
from hypersparse.training.fused import forward_backward as fused_module
from hypersparse.training.fused import tilings
from hypersparse.training.fused.forward_backward import FusedForwardBackward
from hypersparse.training.fused.operations import PlainOperations
from hypersparse.training.loop import Training, train
from hypersparse.training.machine import Engine, Machine
from hypersparse.training.network import build_network
from hypersparse.training.resume import resume_
from hypersparse.training.stop import Stopped
from tests.training.small import StopAfter, small
from tests.training.test_loop import same_network
from tests.training.test_optimizers import twin_of_the_kernel

MODEL = {"name": "resnet8", "width": 16}
DATA = {"channels": 3, "images": 64, "test_images": 32}
BATCH = 16  # 4 steps an epoch
STEPS = 12
NOISE = 1e-6  # by which biases before a batch norm move
MACHINE = Machine(device="cpu", precision="bf16", checkpoint_seconds=0.0)
PHASES = {"pre-train": 0, "regularize": 9, "fine-tune": 17}  # steps before
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")


class Engines:
    """The engine that `Machine` chooses from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def choose(self, engine: Engine) -> None:
        self._monkeypatch.setattr(Machine, "chosen_engine", lambda _: engine)


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """A CPU on which the fused operations serve; nothing is compiled or captured."""
    monkeypatch.setattr(fused_module, "kernel_serves", lambda _: True)
    monkeypatch.setattr(fused_module, "triton_operations", PlainOperations)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr(engines, "CapturedStep", lambda eager, _: eager)
    found = Engines(monkeypatch)
    found.choose("fused")
    return found


def recipe_of(**tables: Any) -> Recipe:
    own: dict[str, Any] = {
        "data": DATA,
        "model": MODEL,
        "training": {"batch_size": BATCH, "lr": 0.02},
        "method": {"max_regularized_epochs": 2, "strength": 1e-4, "sparsity": 0.5},
    }
    replaced = {name for name, table in tables.items() if "name" in table}
    return small(**merge({name: table for name, table in own.items() if name not in replaced}, tables))


def begun(recipe: Recipe, folder: Path, machine: Machine = MACHINE) -> Training:
    """A run, taken on from its checkpoint if there is one, that is about to make its next step."""
    device = torch.device("cpu")
    folder.mkdir(parents=True, exist_ok=True)
    training = Training(
        recipe, 0, machine, device, data.load("synthetic", options=recipe.data.options), RunFolder(folder)
    )
    resume_(training)
    training.sparsifier.begin_epoch()
    training.model.train()
    return training


def stepped(training: Training, steps: int = STEPS) -> dict[str, Tensor]:
    """What the network holds after some more steps of its phase, and the epoch's loss and scores."""
    step = training.step_of_phase()
    for number in range(steps):
        step(number % len(training.batches))
    state = {name: tensor.detach().clone() for name, tensor in training.model.state_dict().items()}
    observed = training.sparsifier.state.observed
    return {**state, "loss": training.epoch_loss.loss.total.clone(), "scores": observed.total.clone()}


def changed_between_epochs(training: Training) -> dict[str, Tensor]:
    """What the network holds after two epochs, if somebody changes its weights before each."""
    for _ in range(2):
        with torch.no_grad():
            for weight in training.sparsifier.weights.values():
                weight.mul_(0.9)
        state = stepped(training, len(training.batches))
    return state


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


def check_close(before: dict[str, Tensor], found: dict[Engine, dict[str, Tensor]]) -> None:
    """Whether everything moved from where it was as in fp32, as exactly as on the ordinary path."""
    for name, exact in found["eager"].items():
        start = before.get(name, torch.zeros_like(exact))
        errors = {engine: float((tensors[name] - exact).double().norm()) for engine, tensors in found.items()}
        moved = float((exact - start).double().norm())
        assert errors["fused"] < 2 * errors["cudagraph"] + 0.03 * moved + NOISE, name
        assert errors["fused"] < 0.3 * moved + NOISE, name


def compared(recipe: Recipe, folder: Path, chosen: Engines, phase: str = "pre-train") -> None:
    """Check some steps of a phase, from the checkpoint in the folder if there is one."""
    found: dict[Engine, dict[str, Tensor]] = {}
    before: dict[str, Tensor] = {}
    for engine, machine in (("fused", MACHINE), ("cudagraph", MACHINE), ("eager", replace(MACHINE, precision="fp32"))):
        chosen.choose(engine)
        training = begun(recipe, folder, machine)
        assert type(training.forward_backward) is (FusedForwardBackward if engine == "fused" else ForwardBackward)
        assert training.sparsifier.phase.name == phase
        before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
        found[engine] = stepped(training)
    check_close(before, found)


@pytest.mark.parametrize("phase", PHASES)
def test_it_trains_as_the_ordinary_path(tmp_path: Path, phase: str, chosen: Engines) -> None:
    recipe = recipe_of()
    if PHASES[phase]:
        callback = StopAfter(PHASES[phase])
        with pytest.raises(Stopped):
            train(recipe, 0, MACHINE, tmp_path, callback=callback, stop=callback.request)
    compared(recipe, tmp_path, chosen, phase)


@pytest.mark.parametrize(
    "tables",
    [
        {"training": {"optimizer": "adamw", "lr": 0.001}},
        {"training": {"momentum": 0.0}},
        {"techniques": {"sam": 0.05}},
        {"techniques": {"ema": 0.9}},
        {"techniques": {"reparametrize": 1}},
        {"model": {"name": "vgg11", "width": 16}, "data": {"size": 32}},
    ],
    ids=str,
)
def test_options_that_see_gradients(tmp_path: Path, tables: dict[str, Any], chosen: Engines) -> None:
    compared(recipe_of(**tables), tmp_path, chosen)


def test_a_network_with_large_layers_by_cudnn(tmp_path: Path, chosen: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left to the ordinary path while `WITH_CUDNN` is off."""
    recipe = recipe_of(model={"name": "vgg11", "width": 16}, data={"size": 32})
    monkeypatch.setattr(tilings, "FUSED_PAIRS", 16 * 32)
    monkeypatch.setattr(tilings, "WITH_CUDNN", False)
    assert type(begun(recipe, tmp_path / "ordinary").forward_backward) is ForwardBackward
    monkeypatch.setattr(tilings, "WITH_CUDNN", True)
    compared(recipe, tmp_path / "mixed", chosen)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"techniques": {"ema": 0.9}},
        {"training": {"optimizer": "adamw", "lr": 0.001}},
        {"training": {"momentum": 0.0}},
    ],
    ids=str,
)
@pytest.mark.parametrize("phase", PHASES)
def test_a_captured_step_keeps_the_copy_of_the_weights(
    tmp_path: Path, tables: dict[str, Any], phase: str, chosen: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph's stand-in replays its step: the same bits as in eager steps, over the ends of epochs too."""
    recipe = recipe_of(**tables)
    if PHASES[phase]:
        callback = StopAfter(PHASES[phase])
        with pytest.raises(Stopped):
            train(recipe, 0, MACHINE, tmp_path, callback=callback, stop=callback.request)
    monkeypatch.setattr(optimizers, "sgd_kernel", lambda: twin_of_the_kernel)
    monkeypatch.setattr(optimizers.FlatSGD, "_can_be_flat", lambda self: self.param_groups[0]["momentum"] > 0)
    expected = changed_between_epochs(begun(recipe, tmp_path))
    training = begun(recipe, tmp_path)
    assert training.sparsifier.phase.name == phase
    monkeypatch.setattr(CapturedStep, "_capture", lambda _: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", mock.MagicMock())
    eager = training.step_of_phase()
    assert isinstance(eager, EagerStep)
    assert isinstance(training.batches, Batches)
    step = CapturedStep(eager, training.batches)
    assert (step.copy is not None) == ("techniques" not in tables and "optimizer" not in tables.get("training", {}))

    def replay() -> None:
        training.driver._warming_up = True
        training.driver.memory.copy = step.copy
        before = training.sparsifier.state.observed.count
        step._work()
        training.sparsifier.state.observed.count = before
        training.epoch_loss.loss.count -= BATCH
        training.driver.memory.copy, training.driver._warming_up = None, False

    step.graph.replay = replay  # type: ignore[method-assign]
    training.step = (*training.step[:2], step) if training.step else None
    found = changed_between_epochs(training)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_concurrent_captured_steps_have_the_bits_of_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With Triton's kernels for small layers and cuDNN for large ones."""
    monkeypatch.setattr(tilings, "FUSED_PAIRS", 16 * 32)
    monkeypatch.setattr(tilings, "WITH_CUDNN", True)
    machine = Machine(device="cuda", precision="bf16", engine="fused")
    recipe = recipe_of(model={"name": "vgg11", "width": 16}, data={"size": 32})

    def weights(training: Training) -> Tensor:
        stepped(training)
        assert training.step is not None
        assert type(training.step[2]) is CapturedStep
        return training.sparsifier.weights.vector().detach().clone()

    with machine.active() as device:
        dataset = data.load("synthetic", options=recipe.data.options).to(device)
        trainings = [
            Training(recipe, 0, machine, device, dataset, RunFolder(tmp_path / f"{number}")) for number in range(4)
        ]
        for training in trainings:
            assert type(training.forward_backward) is FusedForwardBackward
            training.sparsifier.begin_epoch()
            training.model.train()
        before = trainings[0].sparsifier.weights.vector().detach().clone()
        alone = weights(trainings[0])
        others = run_concurrently([partial(weights, training) for training in trainings[1:]], device)
        torch.cuda.synchronize()
        assert not torch.equal(alone, before)
        assert all(torch.equal(alone, other) for other in others)
    assert "eagerly" not in caplog.text


def test_distillation_adds_its_term_to_the_loss(tmp_path: Path, chosen: Engines) -> None:
    recipe = recipe_of(techniques={"distill": 1.0, "ema": 0.9})
    callback = StopAfter(PHASES["regularize"])
    with pytest.raises(Stopped):
        train(recipe, 0, MACHINE, tmp_path, callback=callback, stop=callback.request)
    training = begun(recipe, tmp_path)
    assert training.sparsifier.extra_loss is not None
    compared(recipe, tmp_path, chosen, "regularize")


def test_a_partial_batch_takes_the_ordinary_path(tmp_path: Path, chosen: Engines) -> None:
    """Of 40 images the third batch has eight."""
    recipe = recipe_of(data={"images": 40, "drop_last": False})
    training = begun(recipe, tmp_path / "fused")
    assert [training.batches.size(number) for number in range(3)] == [16, 16, 8]
    passes = training.forward_backward
    assert isinstance(passes, FusedForwardBackward)
    for number in (0, 2, 1):
        images, labels = training.batches.batch(number)
        before = [parameter.detach().clone() for parameter in training.model.parameters()]
        gradients = []
        for each in (passes, ForwardBackward(training.driver.memory, accuracy, MACHINE, compiled=True)):
            training.sparsifier.state.optimizer.zero_grad(set_to_none=True)
            loss, scores = each.loss(images, labels)
            each.backward_(loss)
            assert training.driver.memory.gradients is not None
            assert scores.shape == labels.shape
            made = [parameter.grad for parameter in training.model.parameters()]
            gradients.append([gradient.clone() for gradient in made if gradient is not None])
        assert len(gradients[0]) == len(gradients[1]) == len(before)
        for one, other in zip(*gradients, strict=True):
            assert distance(one, other) < (0.15 if len(labels) == BATCH else 1e-6)
    compared(recipe, tmp_path / "whole", chosen)


@pytest.mark.parametrize(
    "tables",
    [
        {"method": {"max_regularized_epochs": 1}},  # else the rounding of a CPU may decide when they end
        {"training": {"optimizer": "adamw", "lr": 0.001}},
        {"data": {"images": 56, "drop_last": False}},
        {"method": {"name": "rigl", "sparsity": 0.5, "update_every": 3}},
        {"method": {"name": "topkast", "sparsity": 0.5, "update_every": 3}},
        {"method": {"name": "st3", "sparsity": 0.5, "update_every": 3}},
        {"techniques": {"ema": 0.9, "sam": 0.05, "distill": 1.0, "reparametrize": 1}},
    ],
    ids=str,
)
def test_stopped_anywhere_and_resumed_to_the_same_bits(
    tmp_path: Path, tables: dict[str, Any], chosen: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = recipe_of(**tables)
    result = train(recipe, 0, MACHINE, tmp_path / "whole")
    stops = 0
    while True:
        callback = StopAfter(7)  # in the middle of an epoch, another place each time
        try:
            train(recipe, 0, MACHINE, tmp_path / "parts", callback=callback, stop=callback.request)
            break
        except Stopped:
            stops += 1
    assert stops >= 1
    assert same_network(tmp_path / "whole", tmp_path / "parts")
    assert result["machine"]["engine"] == "fused"
    assert result["kept"] == result["total"] - int(result["total"] * 0.5)
    model = build_network(recipe, shape=(3, 8, 8), classes=4)
    load_weights_(model, RunFolder(tmp_path / "whole").final_file)
    vector = PrunableWeights(model).vector()
    assert int((vector == 0).sum()) == result["total"] - result["kept"]
    assert not (vector[vector == 0]).signbit().any()
    assert "eagerly" not in caplog.text
    chosen.choose("cudagraph")
    train(recipe, 0, MACHINE, tmp_path / "ordinary")
    logs = [RunFolder(tmp_path / name).log() for name in ("whole", "ordinary")]
    assert [entry["kept"] for entry in logs[0]] == [entry["kept"] for entry in logs[1]]
    losses, expected = ([entry["loss"] for entry in log] for log in logs)
    assert losses == pytest.approx(expected, rel=0.02)
    assert not same_network(tmp_path / "whole", tmp_path / "ordinary")  # which would be a path that is not taken


def test_a_network_that_does_not_fit_runs_on_the_ordinary_path(
    tmp_path: Path, chosen: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hypersparse")
    recipe = recipe_of(model={"name": "resnet8", "width": 8})
    train(recipe, 0, MACHINE, tmp_path / "fused")
    assert caplog.text.count("The convolutions and batch norms of ResNet are not fused: the kernels take") == 1
    chosen.choose("cudagraph")
    train(recipe, 0, MACHINE, tmp_path / "ordinary")
    assert same_network(tmp_path / "fused", tmp_path / "ordinary")
