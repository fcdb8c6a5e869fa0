"""`FusedForwardBackward`: loss, scores and gradients of a batch, with fused kernels for convolutions and norms."""

import logging

import torch
from torch import Tensor, nn

from hypersparse.methods.task import Metric
from hypersparse.sparsity.triton_import import import_if_triton
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.forward_backward import ForwardBackward, LossFunction
from hypersparse.training.fused.cudnn_operations import CudnnOperations
from hypersparse.training.fused.network import FusedNetwork, fits_kernels
from hypersparse.training.fused.operations import Operations
from hypersparse.training.fused.trace import TracedNetwork, trace_network
from hypersparse.training.kernels.convolution import kernel_serves
from hypersparse.training.machine import Machine

log = logging.getLogger("hypersparse")


class FusedForwardBackward(ForwardBackward):
    """The fused network for full batches; autograd for what follows its last activation, and for other batches."""

    def __init__(
        self,
        memory: FlatMemory,
        metric: Metric,
        machine: Machine,
        traced: TracedNetwork,
        operations: Operations,
        *,
        batch: tuple[int, ...],
    ) -> None:
        super().__init__(memory, metric, machine, compiled=True)
        size, *shape = batch
        self._size = size
        self._fused = FusedNetwork([traced], [memory], operations, batch=size, shape=shape, dtype=torch.bfloat16)
        self._tail = LossFunction(traced.tail, metric, machine, compiled=True)
        self._activations: Tensor | None = None  # the last ones of the batch; None: not fused

    @property
    def copy_of_weights(self) -> Tensor:
        """The copy of all weights that the passes read."""
        return self._fused.copies[0]

    def set_extra_loss(self, extra: nn.Module | None) -> None:
        super().set_extra_loss(extra)
        self._tail.set_extra(extra)

    def loss(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if len(images) != self._size:
            self._activations = None
            return super().loss(images, labels)
        self._fused.refresh_()
        (values,) = self._fused.forward([images])
        self._activations = values.detach().movedim(-1, 1).requires_grad_()
        return self._tail(images, labels, self._activations)

    def backward_(self, loss: Tensor, *, share: float = 1.0) -> None:
        """Set the gradients of the network's weights."""
        if self._activations is None:
            super().backward_(loss, share=share)
            return
        self._tail.backward_(loss)
        gradients = self._activations.grad
        assert gradients is not None
        self._activations = None
        self._fused.backward_(gradients.movedim(1, -1)[None].contiguous())


def fuse(memory: FlatMemory, metric: Metric, machine: Machine, batch: tuple[int, ...]) -> FusedForwardBackward | None:
    """The fused passes for batches [N, C, H, W], or None if the device or the network does not fit."""
    model, (size, *shape) = memory.weights.model, batch
    operations = triton_operations() if kernel_serves(machine.torch_device()) else None
    if operations is None:
        return _not_fused(model, "the kernels need Triton and a GPU such as an A100 or H100")
    if len(shape) != 3:
        return _not_fused(model, f"its batches have {len(batch)} axes instead of 4")
    traced = trace_network(model, tuple(shape))
    if traced is None:
        return _not_fused(model, "tracing finds too few of them in a form that the kernels compute")
    if not fits_kernels(traced, batch=size, shape=shape):
        return _not_fused(model, "the kernels take batches and channels in multiples of 16")
    if not owns(memory, traced):
        return _not_fused(model, "its weights do not lie in one memory, channels last")
    return FusedForwardBackward(memory, metric, machine, traced, CudnnOperations(operations), batch=batch)


def _not_fused(model: nn.Module, reason: str) -> FusedForwardBackward | None:
    log.info("The convolutions and batch norms of %s are not fused: %s.", type(model).__name__, reason)
    return None


def owns(memory: FlatMemory, traced: TracedNetwork) -> bool:
    """Whether the weights of all fused convolutions lie in the memory, channels last."""
    inside = {id(weight) for weight in memory.weights.values()} if memory.values is not None else set()
    branches = [branch for activation in traced.activations for branch in activation.branches]
    weights = [branch.conv.weight for branch in branches if branch.conv is not None]
    return all(id(weight) in inside and weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


@import_if_triton
def triton_operations() -> Operations:
    """The operations as Triton kernels."""
    from hypersparse.training.fused.triton_operations import TritonOperations

    return TritonOperations()
