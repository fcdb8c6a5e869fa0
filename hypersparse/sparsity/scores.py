"""Scores of weights: larger = keep.

Scores run a copy of the network, so gradients, statistics, modes and random generators of the model do not change.
`weights` are the values to score, which may differ from the model's, such as masked or redrawn ones.
Each of several `ranks` may have its own batches; gradients are then means over the ranks.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hypersparse.distributed import Ranks
from hypersparse.distributed.shards import is_sharded, reshard_, sharded_like
from hypersparse.errors import ModelError, OptionError
from hypersparse.sparsity.eval_mode import eval_mode

Values = Mapping[str, Tensor]
Batch = tuple[Any, Any]  # inputs and labels, on the model's device
Criterion = Callable[[Any, Any], Tensor]
Run = Callable[[nn.Module, Any], Any]
ALONE = Ranks.alone()


def call_model(model: nn.Module, inputs: Any) -> Any:
    """Call the network."""
    return model(inputs)


def magnitude(weights: Values) -> dict[str, Tensor]:
    """|w|: large weights matter."""
    return {name: weight.detach().abs() for name, weight in weights.items()}


def random_scores(weights: Values, generator: torch.Generator) -> dict[str, Tensor]:
    """Uniform random scores, drawn on the CPU."""
    # Of 20 million draws in float32 many would be equal, and of equal scores the first ones win.
    drawn = {}
    for name, weight in weights.items():  # where they are sharded every rank draws all, layer by layer
        whole = torch.rand(weight.shape, generator=generator, dtype=torch.float64)
        drawn[name] = sharded_like(weight, whole) if is_sharded({name: weight}) else whole.to(weight.device)
    return drawn


def gradients(
    model: nn.Module,
    weights: Values,
    batches: Sequence[Batch],
    criterion: Criterion,
    *,
    run: Run = call_model,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """The gradient of the loss in training mode, summed over the batches."""
    _check(batches)
    if is_sharded(weights):
        return _sharded_gradients(model, weights, batches, criterion, run=run)
    with ranks.together(), _copy_of(model, weights, training=True) as (copied, leaves):
        total = _summed(
            _gradients(_single(criterion(run(copied, inputs), labels)), leaves) for inputs, labels in batches
        )
    ranks.mean_(total)
    return dict(zip(weights, total, strict=True))


def snip(
    model: nn.Module,
    weights: Values,
    batches: Sequence[Batch],
    criterion: Criterion,
    *,
    run: Run = call_model,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """|w · gradient|: the first-order change of the loss without the weight."""
    found = gradients(model, weights, batches, criterion, run=run, ranks=ranks)
    return {name: (weights[name].detach() * gradient).abs() for name, gradient in found.items()}


def grasp(
    model: nn.Module,
    weights: Values,
    batches: Sequence[Batch],
    criterion: Criterion,
    *,
    temperature: float = 200.0,
    run: Run = call_model,
    ranks: Ranks = ALONE,
) -> dict[str, Tensor]:
    """w · (Hessian · gradient): what the gradient's norm would lose with the weight, outputs divided by `temperature`.

    The paper's score is the negative of this, and it removes the weights in which that is largest.
    """
    _check(batches)
    # The fused kernels of attention cannot be differentiated twice.
    with _copy_of(model, weights, training=True) as (copied, leaves), sdpa_kernel(SDPBackend.MATH):
        _norm_alone_(copied)

        def loss(inputs: Any, labels: Any) -> Tensor:
            return _single(criterion(run(copied, inputs) / temperature, labels))

        with ranks.together():
            gradient = _summed(_gradients(loss(*batch), leaves) for batch in batches)
        ranks.mean_(gradient)
        product = [torch.zeros_like(leaf) for leaf in leaves]
        for batch in batches:
            again = _gradients(loss(*batch), leaves, create_graph=True)
            along = torch.stack([(one * two).sum() for one, two in zip(gradient, again, strict=True)]).sum()
            product = _summed([product, _gradients(along, leaves)])
        ranks.mean_(product)
        scores = [leaf.detach() * change for leaf, change in zip(leaves, product, strict=True)]
    return dict(zip(weights, scores, strict=True))


def synflow(
    model: nn.Module, weights: Values, inputs: Tensor, *, run: Run = call_model, ranks: Ranks = ALONE
) -> dict[str, Tensor]:
    """How much flows through a weight if all numbers of the network are positive and its inputs are ones.

    Of `inputs` only the shape of one sample counts. In evaluation mode and in float64: products over many layers
    overflow float32.
    """
    if not (isinstance(inputs, Tensor) and inputs.is_floating_point() and len(inputs)):
        raise OptionError("SynFlow sends ones through the network: its inputs must be a tensor of floats, [N, ...].")
    ones = torch.ones_like(inputs[:1], dtype=torch.float64)
    with _copy_of(model, weights, training=False, dtype=torch.float64) as (copied, leaves):
        with torch.no_grad():
            for tensor in filter(torch.is_floating_point, (*copied.parameters(), *copied.buffers())):
                tensor.abs_()
        flows = list(_gradients(run(copied, ones).sum(), leaves))
        ranks.mean_(flows)  # their batch norms may have other statistics
        scores = [leaf.detach() * flow for leaf, flow in zip(leaves, flows, strict=True)]
    if not all(score.isfinite().all() for score in scores):
        raise ModelError("The flow through this network overflows even float64; scale its weights down before SynFlow.")
    return dict(zip(weights, scores, strict=True))


def _sharded_gradients(
    model: nn.Module, weights: Values, batches: Sequence[Batch], criterion: Criterion, *, run: Run
) -> dict[str, Tensor]:
    """The gradient of a network under `fully_shard`, which cannot be copied: FSDP itself takes means over the ranks."""
    if frozen := [name for name, weight in weights.items() if not weight.requires_grad]:
        raise ModelError(f"`{frozen[0]}` is frozen; under `fully_shard` only weights that learn can be scored.")
    reshard_(model)
    before = {parameter: parameter.grad for parameter in model.parameters()}
    with _untouched(model), torch.enable_grad():
        for parameter in model.parameters():
            parameter.grad = None
        try:
            for inputs, labels in batches:
                _single(criterion(run(model, inputs), labels)).backward()  # type: ignore[no-untyped-call]
            return {
                name: torch.zeros_like(weight) if weight.grad is None else weight.grad
                for name, weight in weights.items()
            }
        finally:
            for parameter, gradient in before.items():
                parameter.grad = gradient


@contextmanager
def _untouched(model: nn.Module) -> Iterator[None]:
    """Training mode in the block; afterwards modes, buffers and random generators are restored."""
    device = next(model.parameters()).device
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        with eval_mode(model), torch.random.fork_rng([device] if device.type == "cuda" else []):
            model.train()
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers.items():
                buffer.copy_(value)


@contextmanager
def _copy_of(
    model: nn.Module, weights: Values, *, training: bool, dtype: torch.dtype | None = None
) -> Iterator[tuple[nn.Module, list[Tensor]]]:
    """A copy with these weights, all with gradients; random generators are restored."""
    device = next(model.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        copied = _copied(model).train(training)
        copied = copied if dtype is None else copied.to(dtype)
        parameters = dict(copied.named_parameters())
        leaves = [parameters[name].requires_grad_() for name in weights]
        with torch.no_grad():
            for leaf, weight in zip(leaves, weights.values(), strict=True):
                leaf.copy_(weight)
        yield copied, leaves


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:  # a tensor with a history, which torch does not copy
        raise ModelError(
            f"{type(model).__name__} is scored as a copy, and cannot be copied. It holds a tensor that was computed, "
            "such as an activation it keeps, or a weight under the old weight_norm. Remove that first."
        ) from error


def _norm_alone_(model: nn.Module) -> None:
    """Let each rank normalize its own batch: SyncBatchNorm cannot be differentiated twice."""
    for module in model.modules():
        if isinstance(module, nn.SyncBatchNorm):
            module.forward = partial(nn.modules.batchnorm._BatchNorm.forward, module)  # type: ignore[method-assign]


def _single(loss: Tensor) -> Tensor:
    if loss.numel() != 1:
        raise OptionError(
            f"The task's criterion gives one number for a batch; got {list(loss.shape)}. Let it take the mean: "
            "reduction='mean'."
        )
    return loss


def _gradients(value: Tensor, leaves: Sequence[Tensor], *, create_graph: bool = False) -> Sequence[Tensor]:
    # A weight that the value does not depend on has the gradient 0.
    return torch.autograd.grad(value, leaves, create_graph=create_graph, allow_unused=True, materialize_grads=True)


def _summed(parts: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    total: list[Tensor] = []
    for part in parts:  # one at a time, so that only two are in memory
        total = [before + more for before, more in zip(total, part, strict=True)] if total else list(part)
    return total


def _check(batches: Sequence[Batch]) -> None:
    if not batches:
        raise OptionError("A score from data needs at least one batch of (inputs, labels); none was given.")
