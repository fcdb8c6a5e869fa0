"""One training step: batch, forward, backward, penalty, optimizer, mask.

`EagerStep` runs it eagerly, optionally with a compiled network. `CapturedStep` records the same operations once as a
CUDA graph and replays them. Values that change between steps are in tensors with fixed addresses.
"""

import logging
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from hypersparse.data.batches import Batches, ShuffledBatches
from hypersparse.distributed import Ranks
from hypersparse.errors import HypersparseError
from hypersparse.methods.task import RunningMean
from hypersparse.sparsifier import Sparsifier
from hypersparse.sparsity.selection import all_tensors
from hypersparse.training.concurrency.cuda_streams import CAPTURE_LOCK, side_stream
from hypersparse.training.forward_backward import ForwardBackward
from hypersparse.training.fused.forward_backward import fuse
from hypersparse.training.machine import CAPTURED, Machine
from hypersparse.training.optimizers import FlatSGD
from hypersparse.training.sparsifier_driver import SparsifierDriver

WARM_UP_STEPS = 3  # steps before capture, for libraries that choose their algorithms in the first ones
log = logging.getLogger("hypersparse")


class Step(Protocol):
    """Trains on a batch of the epoch by its number."""

    record: "EpochLoss"

    def __call__(self, number: int) -> None:
        """Train on one batch."""


class EpochLoss:
    """The mean loss of an epoch on the device, and the first step with a loss that is not finite."""

    def __init__(self, device: torch.device) -> None:
        self.loss = RunningMean(device)
        self.index = torch.zeros((), device=device)
        self.first_bad = torch.full((), torch.inf, device=device)
        self._note = _note

    def add(self, loss: Tensor, samples: int) -> None:
        """Add the loss of a step."""
        self._note(self.loss.total, self.index, self.first_bad, loss.detach(), samples)
        self.loss.count += samples

    def compile_(self) -> None:
        """Compile `add` into one kernel, for a captured step."""
        self._note = torch.compile(_note, dynamic=False)

    def reset(self) -> None:
        """Reset at the start of an epoch."""
        self.loss.reset()
        self.index.zero_()
        self.first_bad.fill_(torch.inf)

    def state_dict(self) -> dict[str, Any]:
        """The state within an epoch."""
        return {"total": self.loss.total.clone(), "index": self.index.clone(), "count": self.loss.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume within an epoch."""
        self.reset()
        self.loss.total.copy_(state["total"])
        self.index.copy_(state["index"])
        self.loss.count = state["count"]


def _note(total: Tensor, index: Tensor, first_bad: Tensor, loss: Tensor, samples: int) -> None:
    total += loss * samples
    first_bad.clamp_max_(torch.where(loss.isfinite(), torch.inf, index))
    index += 1


class EagerStep:
    """A step in eager mode. It never synchronizes with the device."""

    def __init__(
        self, forward_backward: ForwardBackward, driver: SparsifierDriver, batches: ShuffledBatches, record: EpochLoss
    ) -> None:
        self.forward_backward, self.driver, self.batches, self.record = forward_backward, driver, batches, record

    def __call__(self, number: int) -> None:
        self.work(*self.batches.batch(number), of=self.batches.size(number))

    def work(self, images: Tensor, labels: Tensor, *, of: int) -> None:
        """The step on this rank's share of a batch of `of` samples."""
        driver, sparsifier = self.driver, self.driver.sparsifier
        optimizer = sparsifier.state.optimizer
        with driver.around_gradient():
            loss, scores = self.forward_backward.loss(images, labels)
            optimizer.zero_grad(set_to_none=True)
            self.forward_backward.backward_(loss, share=len(labels) / of)
        driver.add_penalty_gradient_()
        if driver.optimizer_steps:
            optimizer.step()
        driver.finish_step(scores, len(labels))
        self.record.add(loss, len(labels))


class CapturedStep:
    """The eager step and the selection of its batch, recorded as a CUDA graph and replayed."""

    def __init__(self, eager: EagerStep, batches: Batches) -> None:
        self.eager, self.record, self.batches = eager, eager.record, batches
        self.samples = batches.batch_size
        device = eager.driver.sparsifier.weights.device
        self.offsets = torch.arange(self.samples, device=device)
        self.start = torch.zeros((), dtype=torch.int64, device=device)
        self.next = -1  # the batch that `start` points to
        self.met: set[Hashable] = set()  # kinds of steps that ran eagerly
        self.copy = self._kept_copy()
        self.graph = torch.cuda.CUDAGraph()
        self._capture()

    def __call__(self, number: int) -> None:
        size, acts = self.batches.size(number), self.eager.driver.method_acts
        if size != self.samples or acts:
            with CAPTURE_LOCK.first_alone(self.met, (size, acts)):
                self.eager(number)
            return
        if number != self.next:  # an epoch began, or a step ran eagerly, which may have changed weights
            self.start.fill_(number * self.samples)
            self.eager.driver.memory.refresh_(self.copy)
        self.graph.replay()
        self.next = number + 1
        self.eager.driver.repeat_step(self.samples)
        self.record.loss.count += self.samples

    def _kept_copy(self) -> Tensor | None:
        """The copy of the weights that the optimizer can write, if nothing else in a step changes them."""
        driver = self.eager.driver
        phase, optimizer = driver.sparsifier.phase, driver.sparsifier.state.optimizer
        alone = phase.rules.around_step is None and phase.rules.around_gradient is None
        return self.eager.forward_backward.copy_of_weights if alone and isinstance(optimizer, FlatSGD) else None

    def _work(self) -> None:
        self.eager.work(*self.batches.select(self.start + self.offsets), of=self.samples)
        self.start += self.samples

    def _capture(self) -> None:
        driver, sparsifier = self.eager.driver, self.eager.driver.sparsifier
        device = sparsifier.weights.device
        before = _everything(sparsifier, self.record)
        current = torch.cuda.current_stream()
        stream = side_stream(device) if current == torch.cuda.default_stream() else current
        try:
            with driver.warm_up(), driver.memory.keeping(self.copy), _capturable(sparsifier.state.optimizer):
                stream.wait_stream(current)
                with torch.cuda.stream(stream):
                    for _ in range(WARM_UP_STEPS):
                        self.start.zero_()
                        self._work()
                current.wait_stream(stream)
                sparsifier.state.optimizer.zero_grad(set_to_none=True)
                with torch.cuda.graph(self.graph, stream=stream, capture_error_mode="thread_local"):
                    self._work()
        finally:  # undoes the warm-up steps, whether or not the capture succeeded
            try:
                torch.cuda.synchronize()
            finally:
                _restore_(sparsifier, self.record, before)


@contextmanager
def _capturable(optimizer: Optimizer) -> Iterator[None]:
    """Make Adam and similar optimizers capturable, without their warning about warm-up steps."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*capturable=True.*")
            yield
    finally:
        for group in groups:
            group["capturable"] = False


def build_step(
    driver: SparsifierDriver,
    batches: ShuffledBatches,
    record: EpochLoss,
    machine: Machine,
    forward_backward: ForwardBackward,
) -> Step:
    """The step of the current phase in the machine's engine, or in eager mode if that is impossible."""
    phase = driver.sparsifier.phase
    forward_backward.set_extra_loss(driver.sparsifier.extra_loss)
    eager = EagerStep(forward_backward, driver, batches, record)
    acts_always = phase.on_step is not None and phase.on_step.every == 1
    full_batches = batches.size(0) == batches.batch_size
    if not machine.captures() or acts_always or not full_batches:
        return eager
    if not isinstance(batches, Batches):
        log.warning("The step of phase %s is compiled but not captured, since its images are streamed.", phase.name)
        return eager
    try:
        with CAPTURE_LOCK.building():
            batches.compile_()
            record.compile_()
            return CapturedStep(eager, batches)
    except HypersparseError:
        raise
    except Exception as error:  # of CUDA, the compiler or Triton, without a common class
        name, reason = phase.name, (str(error) or type(error).__name__).splitlines()[0]
        log.warning("The step of phase %s runs eagerly, since it cannot be captured: %s", name, reason)
        plain = build_forward_backward(driver, machine, compiled=False)
        plain.set_extra_loss(driver.sparsifier.extra_loss)
        return EagerStep(plain, driver, batches, record)


def build_forward_backward(
    driver: SparsifierDriver,
    machine: Machine,
    *,
    compiled: bool | None = None,
    ranks: Ranks | None = None,
    batch: tuple[int, ...] = (),
) -> ForwardBackward:
    """The network with its loss, compiled if the machine's engine requires it, and fused for batches [N, C, H, W]."""
    if compiled is None:
        compiled = machine.chosen_engine() != "eager"
        if not compiled and machine.engine in CAPTURED:
            device = machine.torch_device()
            log.warning("Only steps on a CUDA device can be captured; on %s they run eagerly.", device)
    metric = driver.sparsifier.state.task.metric
    if compiled and machine.chosen_engine() == "fused" and batch:
        fused = fuse(driver.memory, metric, machine, batch)
        if fused is not None:
            return fused
    return ForwardBackward(driver.memory, metric, machine, compiled=compiled, ranks=ranks)


Everything = tuple[dict[str, Tensor], dict[int, dict[str, Any]], list[Tensor], dict[str, Any], Tensor]


def _everything(sparsifier: Sparsifier, record: EpochLoss) -> Everything:
    """A copy of everything that a step changes."""
    model, optimizer = sparsifier.weights.model, sparsifier.state.optimizer
    tensors = {name: tensor.detach().clone() for name, tensor in all_tensors(model).items()}
    moments = {
        id(parameter): {key: value.clone() for key, value in values.items() if isinstance(value, Tensor)}
        for parameter, values in optimizer.state.items()
    }
    # Only what happens around the gradient or the optimizer's step can change what is remembered.
    phase = sparsifier.phase
    remembered = sparsifier.state.memory.tensors() if phase.rules.around_step or phase.rules.around_gradient else []
    memory = [tensor.clone() for tensor in remembered]
    return tensors, moments, memory, record.state_dict(), torch.cuda.get_rng_state()


def _restore_(sparsifier: Sparsifier, record: EpochLoss, before: Everything) -> None:
    """Restore that copy in place; new tensors of the optimizer become zero."""
    tensors, moments, memory, recorded, random = before
    with torch.no_grad():
        for name, tensor in all_tensors(sparsifier.weights.model).items():
            tensor.copy_(tensors[name])
        for parameter, values in sparsifier.state.optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, Tensor):
                    old = moments.get(id(parameter), {}).get(key)
                    value.zero_() if old is None else value.copy_(old)
        for tensor, value in zip(sparsifier.state.memory.tensors(), memory, strict=False):
            tensor.copy_(value)
    record.load_state_dict(recorded)
    torch.cuda.set_rng_state(random)
