"""`ForwardBackward`: loss, scores and gradients of a batch, compiled or not."""

import copy
import logging
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from hypersparse.distributed import Ranks
from hypersparse.methods.task import Metric
from hypersparse.training.compile_once import compile_once, compiling, is_compiler_error
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.kernels.convolution import kernel_serves, use_kernel_
from hypersparse.training.machine import Machine

PLAIN = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)
log = logging.getLogger("hypersparse")


class ForwardBackward:
    """A network with its loss, compiled if the engine requires it."""

    def __init__(
        self, memory: FlatMemory, metric: Metric, machine: Machine, *, compiled: bool, ranks: Ranks | None = None
    ) -> None:
        self._network, self._ranks = memory.weights.model, ranks or Ranks.alone()
        self._replica = replica_of(memory) if compiled and machine.precision == "bf16" else None
        network = self._replica.model if self._replica else memory.weights.model
        self._loss = LossFunction(network, metric, machine, compiled=compiled)

    @property
    def copy_of_weights(self) -> Tensor | None:
        """The copy of all weights that the passes read, if an optimizer could keep it up to date."""
        return None

    def set_extra_loss(self, extra: nn.Module | None) -> None:
        """Add this term of (images, outputs) to the loss."""
        self._loss.set_extra(extra)

    def loss(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy of a batch with the phase's own term, and the score of each sample."""
        if self._replica:
            self._replica.refresh_()
        return self._loss(images, labels)

    def backward_(self, loss: Tensor, *, share: float = 1.0) -> None:
        """Set the gradients of the network's weights; of several ranks each has a share of the batch."""
        self._loss.backward_(loss * share if self._ranks.several else loss)
        if self._replica:
            self._replica.give_gradients_()
        if self._ranks.several:
            self._ranks.sum_(weight.grad for weight in self._network.parameters() if weight.grad is not None)


class LossFunction:
    """Loss and scores of a network, compiled if possible."""

    def __init__(self, network: nn.Module, metric: Metric, machine: Machine, *, compiled: bool) -> None:
        self._network, self._metric, self._machine, self._compiled = network, metric, machine, compiled
        self._extra: nn.Module | None = None
        self._set_function()

    def set_extra(self, extra: nn.Module | None) -> None:
        """Add this term of (images, outputs) to the loss."""
        if extra is not self._extra:
            self._extra = extra
            self._set_function()

    def _set_function(self) -> None:
        self._loss = compile_once(_loss, self._network, self._extra) if self._compiled else _loss

    def __call__(self, images: Tensor, labels: Tensor, inputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean loss and the score of each sample, from the images or from `inputs` that were made of them."""
        arguments = self._network, self._metric, self._extra, images, labels, inputs
        with self._machine.autocast(), self._compiling():
            try:
                return self._loss(*arguments)
            except Exception as error:
                if not (self._compiled and is_compiler_error(error)):
                    raise
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                log.warning("The network runs eagerly, since it cannot be compiled: %s", reason)
                self._loss, self._compiled = _loss, False
                return _loss(*arguments)

    def backward_(self, loss: Tensor) -> None:
        """Run the backward pass."""
        with self._compiling():
            loss.backward()  # type: ignore[no-untyped-call]

    def _compiling(self) -> AbstractContextManager[None]:
        return compiling() if self._compiled else nullcontext()


def _loss(
    network: nn.Module,
    metric: Metric,
    extra: nn.Module | None,
    images: Tensor,
    labels: Tensor,
    inputs: Tensor | None,
) -> tuple[Tensor, Any]:
    outputs = network(images if inputs is None else inputs).float()
    with torch.no_grad():
        scores = metric(outputs, labels)
    loss = functional.cross_entropy(outputs, labels)
    return loss if extra is None else loss + extra(images, outputs), scores


class Bf16Replica:
    """The same network with bf16 copies of the prunable weights; norms, biases and statistics are the network's own.

    Autocast copies weights and gradients layer by layer, with 65 small kernels per step of ResNet-32. Here one kernel
    copies all weights and one all gradients, with the same bits. One kernel counts the batches of all batch norms, and
    many convolutions use a faster kernel for the gradient of their weights.
    """

    def __init__(self, memory: FlatMemory, flat: Tensor) -> None:
        self._memory, self._flat, weights = memory, flat, memory.weights
        self._half = torch.empty_like(flat, dtype=torch.bfloat16)
        self._copies = {name: nn.Parameter(part) for name, part in zip(weights, memory.split(self._half), strict=True)}
        self._counters: list[Tensor] = []
        self.model = copy.deepcopy(weights.model).train()
        for (path, twin), module in zip(self.model.named_modules(), weights.model.modules(), strict=True):
            self._share_(path, twin, module)
        if kernel_serves(flat.device):
            use_kernel_(self.model)

    def _share_(self, path: str, twin: nn.Module, module: nn.Module) -> None:
        for name, parameter in module._parameters.items():
            full = f"{path}.{name}" if path else name
            twin._parameters[name] = self._copies.get(full, parameter)
        twin._buffers.update(module._buffers)
        if isinstance(module, _BatchNorm) and module.momentum is not None and module.num_batches_tracked is not None:
            self._counters.append(module.num_batches_tracked)
            twin._buffers["num_batches_tracked"] = None

    def refresh_(self) -> None:
        """Copy the current weights, before a step."""
        with torch.no_grad():
            self._half.copy_(self._flat)
            if self._counters:
                torch._foreach_add_(self._counters, 1)

    def give_gradients_(self) -> None:
        """Copy the replica's gradients to the weights, after `backward()`."""
        gradients = [copied.grad for copied in self._copies.values()]
        self._memory.copy_gradients_([gradient for gradient in gradients if gradient is not None])
        for copied in self._copies.values():
            copied.grad = None


def replica_of(memory: FlatMemory) -> Bf16Replica | None:
    """A replica, if every prunable weight belongs to one plain layer; otherwise None."""
    weights, flat = memory.weights, memory.values
    model = weights.model
    owners = [f"{path}.weight" if path else "weight" for path, module in model.named_modules() if type(module) in PLAIN]
    uses = [
        id(parameter)
        for module in model.modules()
        for parameter in module._parameters.values()
        if parameter is not None
    ]
    alone = len(uses) == len(set(uses)) and all(weight.requires_grad for weight in weights.values())
    if flat is None or flat.dtype != torch.float32 or not alone or set(weights) != set(owners):
        return None
    return Bf16Replica(memory, flat)
