"""Eager, compiled and captured steps do the same, in every phase."""

import copy
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from hypersparse import data
from hypersparse.data.batches import Batches
from hypersparse.methods.task import accuracy
from hypersparse.recipe import Recipe
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.engines import CapturedStep, EagerStep, EpochLoss
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.forward_backward import ForwardBackward, replica_of
from hypersparse.training.loop import Training, train
from hypersparse.training.machine import Machine
from hypersparse.training.resume import resume_
from hypersparse.training.stop import Stopped
from tests.training.small import StopAfter, small

PHASES = {"pre-train": 1, "regularize": 9, "fine-tune": 17}  # 4 steps an epoch, 2 epochs each
STEPS = 20
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it compiles
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature"),
]


def recipe_of(model: dict[str, Any]) -> Recipe:
    return small(model=model, method={"max_regularized_epochs": 2, "strength": 1e-4}, training={"lr": 0.01})


def trained(recipe: Recipe, folder: Path, machine: Machine) -> Training:
    """A run taken on from its checkpoint, 20 more steps in the phase it is in."""
    with machine.active() as device:
        dataset = data.load(recipe.data.name, options=recipe.data.options)
        training = Training(recipe, 0, machine, device, dataset, RunFolder(folder))
        resume_(training)
        training.sparsifier.begin_epoch()
        training.model.train()
        step = training.step_of_phase()
        for number in range(STEPS):
            step(number % 4)
    return training


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / one.norm())


def check_parity(
    tmp_path: Path, device: str, engine: Literal["compiled", "cudagraph"], phase: str, precision: Any, tolerance: float
) -> None:
    recipe = recipe_of({"name": "resnet8", "width": 8} if device == "cuda" else {"name": "mlp"})
    callback = StopAfter(PHASES[phase])
    start = Machine(device=device, engine="eager", checkpoint_seconds=0.0)
    with pytest.raises(Stopped):
        train(recipe, 0, start, tmp_path, callback=callback, stop=callback.request)
    eager, other = (
        trained(recipe, tmp_path, Machine(device=device, engine=name, precision=precision))
        for name in ("eager", engine)
    )
    assert eager.sparsifier.phase.name == phase
    assert other.step is not None
    assert isinstance(other.step[2], CapturedStep if engine == "cudagraph" else EagerStep)  # no fallback in disguise
    assert (other.forward_backward._replica is not None) == (precision == "bf16")
    one, two = (run.sparsifier.weights.vector().detach() for run in (eager, other))
    assert distance(one, two) < tolerance
    assert abs(eager.epoch_loss.loss.value() - other.epoch_loss.loss.value()) < 10 * tolerance
    assert eager.epoch_loss.loss.count == other.epoch_loss.loss.count
    assert eager.sparsifier.state_dict()["calls"] == other.sparsifier.state_dict()["calls"]
    assert eager.sparsifier.state.observed.count == other.sparsifier.state.observed.count
    if phase == "fine-tune":
        assert torch.equal(one == 0, two == 0)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
def test_compiled_steps_on_the_cpu_agree_with_eager_ones(tmp_path: Path, phase: str) -> None:
    check_parity(tmp_path, "cpu", "compiled", phase, "fp32", 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("bf16", 2e-2)])
@pytest.mark.parametrize("engine", ["compiled", "cudagraph"])
@pytest.mark.parametrize("phase", PHASES)
def test_steps_on_the_gpu_agree_with_eager_ones(
    tmp_path: Path, phase: str, engine: Literal["compiled", "cudagraph"], precision: str, tolerance: float
) -> None:
    check_parity(tmp_path, "cuda", engine, phase, precision, tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["eager", "cudagraph"])
def test_no_step_waits_for_the_gpu(tmp_path: Path, engine: Literal["eager", "cudagraph"]) -> None:
    recipe = small(training={"epochs": 1}, method={"pretrain_epochs": 1, "max_regularized_epochs": 1})
    machine = Machine(device="cuda", engine=engine)
    with machine.active() as device:
        dataset = data.load(recipe.data.name, options=recipe.data.options)
        training = Training(recipe, 0, machine, device, dataset, RunFolder(tmp_path))
        for name in PHASES:
            training.sparsifier.begin_epoch()
            assert training.sparsifier.phase.name == name
            training.model.train()
            step = training.step_of_phase()
            step(0)
            try:
                torch.cuda.set_sync_debug_mode("error")
                step(1)
            finally:
                torch.cuda.set_sync_debug_mode("default")
            training.sparsifier.finish_epoch()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"training": {"optimizer": "adamw", "lr": 0.001}},
        {"training": {"momentum": 0.0}},
        {"training": {"batch_size": 30}, "data": {"drop_last": False}},
        {"model": {"name": "wide_resnet", "depth": 10, "factor": 1, "dropout": 0.3}},
    ],
)
def test_a_captured_run_stops_and_goes_on(
    tmp_path: Path, tables: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(device="cuda", engine="cudagraph", checkpoint_seconds=0.0)
    recipe = small(**{"method": {"max_regularized_epochs": 2, "strength": 1e-4}, **tables})
    callback = StopAfter(11)
    with pytest.raises(Stopped):
        train(recipe, 0, machine, tmp_path, callback=callback, stop=callback.request)
    result = train(recipe, 0, machine, tmp_path)
    assert result["kept"] == result["total"] - int(result["total"] * 0.9)
    assert result["epochs"] == {"pre-train": 2, "regularize": 2, "fine-tune": 2}
    assert "eagerly" not in caplog.text


def test_capturing_without_a_gpu_is_said_once_and_runs_eagerly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = train(small(), 0, Machine(device="cpu", engine="cudagraph"), tmp_path)
    assert result["machine"]["engine"] == "eager"
    assert caplog.text.count("Only steps on a CUDA device can be captured; on cpu they run eagerly.") == 1


@pytest.mark.slow
def test_what_a_captured_step_compiles_does_the_same() -> None:
    plain, fast = EpochLoss(torch.device("cpu")), EpochLoss(torch.device("cpu"))
    fast.compile_()
    for loss in (0.5, 0.25, float("nan"), 1.0, float("inf")):
        for record in (plain, fast):
            record.add(torch.tensor(loss), 4)
    assert (float(fast.first_bad), float(fast.index), fast.loss.count) == (2.0, 5.0, 20)
    assert float(plain.first_bad) == float(fast.first_bad)
    images, labels = torch.randint(0, 256, (40, 3, 8, 8), dtype=torch.uint8), torch.arange(40)
    batches = Batches(images, labels, batch_size=8, mean=[0.4], std=[0.2], seed=0, padding=2, flip=True)
    positions = torch.arange(8, 16)
    expected = batches.select(positions)
    batches.compile_()
    found = batches.select(positions)
    assert torch.allclose(found[0], expected[0], rtol=1e-6)
    assert torch.equal(found[1], expected[1])


class Small(torch.nn.Module):
    """One layer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.linear(images)
        return outputs


def test_a_network_that_cannot_be_compiled_runs_line_by_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class RefusedError(RuntimeError):
        __module__ = "torch._dynamo.exc"

    def refuse(*_: object) -> None:
        raise RefusedError("unsupported: this operator\nand a long trace")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: refuse)
    forward_backward = ForwardBackward(
        FlatMemory(PrunableWeights(Small())), accuracy, Machine(device="cpu"), compiled=True
    )
    for _ in range(2):
        loss, scores = forward_backward.loss(torch.ones(3, 4), torch.zeros(3, dtype=torch.int64))
        assert loss.isfinite()
        assert scores.shape == (3,)
    assert caplog.text.count("runs eagerly, since it cannot be compiled: unsupported: this operator") == 1


def test_bf16_copies_of_the_weights_leave_the_network_as_it_was() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Flatten(), torch.nn.Linear(32, 4)
    )
    twin = copy.deepcopy(model)
    images, labels = torch.randn(6, 4, 4, 4), torch.arange(6) % 4
    gradients = []
    for network, replicated in ((model, True), (twin, False)):
        weights = PrunableWeights(network)
        memory = FlatMemory(weights)
        replica = replica_of(memory)
        assert replica is not None
        if replicated:
            replica.refresh_()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = (replica.model if replicated else network)(images)
        torch.nn.functional.cross_entropy(outputs.float(), labels).backward()
        if replicated:
            replica.give_gradients_()
            memory.add_gradient_of_(lambda vector: (vector * 0).sum())
        gradients.append({name: parameter.grad for name, parameter in network.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None
        assert torch.equal(gradient, gradients[1][name]), name
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, twin.get_buffer(name)), name
    assert list(model.state_dict()) == list(twin.state_dict())


@pytest.mark.parametrize("case", ["tied", "frozen", "not aligned", "another layer type"])
def test_where_a_bf16_copy_could_be_seen_there_is_none(case: str) -> None:
    class Own(torch.nn.Linear):
        pass

    first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    if case == "tied":
        second.weight = first.weight
    if case == "frozen":
        second.weight.requires_grad_(False)
    if case == "not aligned":
        first = torch.nn.Linear(3, 3)
    if case == "another layer type":
        second = Own(4, 4)
    weights = PrunableWeights(torch.nn.Sequential(first, second))
    assert replica_of(FlatMemory(weights)) is None
