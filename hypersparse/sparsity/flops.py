"""Floating-point operations of a network by layer, dense and without zero weights.

A multiplication and an addition are two operations. Matrix products and convolutions are counted; biases, norms,
activations and the optimizer are not, as in most papers. A backward pass counts as two forward passes: one for the
gradient of the inputs and one for that of the weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from hypersparse.sparsity.connectivity import LAYERS
from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse.sparsity.selection import all_tensors

FORWARD_AND_BACKWARD = 3  # in forward passes


@dataclass(frozen=True)
class ForwardCost:
    """Floating-point operations of the forward pass of one input."""

    by_layer: dict[str, float]  # of the prunable weights, by name
    weights: dict[str, int]  # how many each of these has
    other: float = 0.0  # of everything else, such as the products in attention

    def flops(self, kept: Mapping[str, int] | None = None) -> float:
        """All operations, or those for `kept` nonzero weights by layer.

        >>> ForwardCost({"a": 8.0, "b": 4.0}, {"a": 4, "b": 2}).flops({"a": 1, "b": 2})
        6.0
        """
        counts = self.weights if kept is None else kept
        return self.other + sum(
            flops * counts[name] / self.weights[name] for name, flops in self.by_layer.items() if flops
        )


def forward_cost(model: nn.Module, weights: Mapping[str, Tensor], input_shape: tuple[int, ...]) -> ForwardCost | None:
    """Count one forward pass on the meta device, without computation; None if the network cannot run there.

    `weights` are the prunable ones by their names in the model; `input_shape` is that of one input.

    >>> layer = nn.Linear(3, 2)
    >>> forward_cost(layer, {"weight": layer.weight}, (3,)).by_layer
    {'weight': 12.0}
    """
    tensors = {name: tensor.detach().to("meta") for name, tensor in all_tensors(model).items()}
    counter = _Counter()
    owner = _Owner(counter, {id(tensors[name]): name for name in weights})
    try:
        with torch.no_grad(), eval_mode(model), counter, owner:
            functional_call(model, tensors, (torch.empty(1, *input_shape, device="meta"),))
    except Exception:  # a count must not end a training, whatever the network does
        return None
    return ForwardCost(
        {name: counter.flops.get(name, 0.0) for name in weights},
        {name: weight.numel() for name, weight in weights.items()},
        counter.flops.get(None, 0.0),
    )


# Not FlopCounterMode: its hooks on all modules of the process would be seen by runs in other threads.
class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums the operations that torch can count, for the current layer."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layer: str | None = None
        self.flops: dict[str | None, float] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if count := flop_registry.get(func._overloadpacket):
            self.flops[self.layer] = self.flops.get(self.layer, 0.0) + count(*args, **kwargs, out_val=result)
        return result


class _Owner(TorchFunctionMode):
    """Sets the current layer of the counter; other functions, such as attention, belong to no layer."""

    def __init__(self, counter: _Counter, names: dict[int, str]) -> None:
        super().__init__()
        self._counter, self._names = counter, names

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in LAYERS:
            names = (self._names.get(id(value)) for value in tree_leaves((args, kwargs)))
            self._counter.layer = next((name for name in names if name), None)
        try:
            return func(*args, **kwargs)
        finally:
            self._counter.layer = None
