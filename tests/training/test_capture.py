"""Capturing a step, with stand-ins for the GPU: what is left where it fails, and who is alone."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from hypersparse import data
from hypersparse.recipe import Recipe
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.concurrency.cuda_streams import CaptureLock
from hypersparse.training.engines import CapturedStep, EagerStep, build_forward_backward
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine
from tests.training.small import small

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
# With four channels, channels-last and in one thread, torch 2.13 on a CPU with AVX2 alone spoils the heap in gradients
# of a 1x1 filter with stride 2.
WIDER = {"name": "resnet8", "width": 8}


@pytest.fixture
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What capturing needs of a GPU, as stand-ins on the CPU; the capture itself fails."""

    class Fails:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self) -> None:
            raise RuntimeError("this operation is not permitted\nwhile capturing")

        def __exit__(self, *_: object) -> None:
            pass

    for name in (
        "Stream",
        "current_stream",
        "default_stream",
        "CUDAGraph",
        "get_rng_state",
        "set_rng_state",
        "synchronize",
    ):
        monkeypatch.setattr(torch.cuda, name, mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", Fails)
    monkeypatch.setattr(Machine, "chosen_engine", lambda _: "cudagraph")


def begun(recipe: Recipe, folder: Path) -> Training:
    """A run that is about to make its first step."""
    machine = Machine(device="cpu")
    dataset = data.load(recipe.data.name, options=recipe.data.options)
    training = Training(recipe, 0, machine, torch.device("cpu"), dataset, RunFolder(folder))
    training.forward_backward = build_forward_backward(training.driver, machine, compiled=False)
    training.sparsifier.begin_epoch()
    training.model.train()
    return training


@pytest.mark.usefixtures("pretended_gpu")
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("method", [{}, {"name": "topkast", "sparsity": 0.9}])
def test_a_capture_that_fails_leaves_no_trace(
    tmp_path: Path, method: dict[str, Any], optimizer: str, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = small(training={"optimizer": optimizer, "lr": 0.01}, method=method, model=WIDER)
    training = begun(recipe, tmp_path)
    before = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    remembered = [tensor.clone() for tensor in training.sparsifier.state.memory.tensors()]
    step = training.step_of_phase()
    assert type(step) is EagerStep
    assert "since it cannot be captured: this operation is not permitted" in caplog.text
    after = training.model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    now = training.sparsifier.state.memory.tensors()
    assert all(torch.equal(*pair) for pair in zip(now, remembered, strict=True))
    assert bool(now) == bool(method)
    assert (training.epoch_loss.loss.count, float(training.epoch_loss.index)) == (0, 0.0)
    assert training.sparsifier.state_dict()["calls"] == [0, 0, 0]
    for values in training.sparsifier.state.optimizer.state.values():
        assert all(not value.any() for value in values.values() if isinstance(value, Tensor))
    assert not any(group.get("capturable") for group in training.sparsifier.state.optimizer.param_groups)


class Notes(CaptureLock):
    """Notes who was alone."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[str] = []

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        self.entered.append("alone")
        with super().building():
            yield

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        self.entered.append("beside others")
        with super().working():
            yield


@pytest.mark.usefixtures("pretended_gpu")
def test_steps_that_move_weights_are_alone_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda *_, **__: contextlib.nullcontext())
    recipe = small(method={"name": "rigl", "sparsity": 0.5, "update_every": 2}, model=WIDER)
    training = begun(recipe, tmp_path)
    step = training.step_of_phase()
    assert type(step) is CapturedStep
    gate = Notes()
    monkeypatch.setattr("hypersparse.training.engines.CAPTURE_LOCK", gate)
    for number in range(6):  # of which the second, fourth and sixth move weights
        step(number % 4)
    assert gate.entered == ["alone", "beside others", "beside others"]
    assert step.graph.replay.call_count == 3  # type: ignore[attr-defined]
