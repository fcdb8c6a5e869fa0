"""Kept weights on a path from input to output, and empty layers.

The network is run with ones for kept weights and zeros for dropped ones, without biases. Activations and norms are the
identity. Forward values and gradients of a unit are positive exactly if a path exists. They are reduced to 1 or 0 after
each layer, so that deep networks neither overflow nor underflow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from hypersparse.errors import OptionError
from hypersparse.sparsity.eval_mode import inspecting
from hypersparse.sparsity.mask import Mask


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Supported operations on values that depend on the input, by torch's names.
ACTIVATIONS = _words(
    "relu relu_ relu6 leaky_relu leaky_relu_ elu elu_ selu celu prelu rrelu gelu silu mish tanh sigmoid softplus "
    "softsign hardtanh hardtanh_ hardswish hardsigmoid logsigmoid tanhshrink softmax log_softmax clamp clamp_ clip "
    "clamp_min batch_norm group_norm layer_norm instance_norm rms_norm local_response_norm normalize "
    "dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout "
    "contiguous clone to float double half bfloat16 type cpu cuda"
)
MOVES = _words(
    "flatten reshape view unflatten squeeze unsqueeze permute transpose t movedim swapaxes expand expand_as repeat "
    "repeat_interleave cat concat stack split chunk unbind narrow select __getitem__ roll flip pixel_shuffle "
    "pixel_unshuffle channel_shuffle"
)
MEANS = _words(
    "mean sum avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d pad "
    "interpolate upsample"
)
POOLS: Mapping[str, Callable[..., Tensor]] = {  # a maximum has the same paths as a mean
    "max_pool1d": functional.avg_pool1d,
    "max_pool2d": functional.avg_pool2d,
    "max_pool3d": functional.avg_pool3d,
    "adaptive_max_pool1d": functional.adaptive_avg_pool1d,
    "adaptive_max_pool2d": functional.adaptive_avg_pool2d,
    "adaptive_max_pool3d": functional.adaptive_avg_pool3d,
}
PRODUCTS = _words("matmul __matmul__ __rmatmul__ mm")
LAYERS = PRODUCTS | _words("addmm linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
SUMS = _words("add __add__ __radd__ __iadd__ sub __sub__ __rsub__ __isub__")
SCALINGS = _words("mul __mul__ __rmul__ __imul__ mul_ multiply div div_ __truediv__ __itruediv__ divide")
QUESTIONS = _words("size dim ndimension numel stride is_contiguous is_floating_point __len__ element_size")


@dataclass(frozen=True)
class Paths:
    """Effective weights of a masked network; `effective` is None if paths could not be followed."""

    kept: dict[str, int]  # by layer
    effective: Mask | None  # the kept weights that lie on some path from input to output
    connected: bool | None  # whether there is any such path
    problem: str | None = None  # why the network could not be run on such an input, in a line

    @property
    def empty(self) -> list[str]:
        """The layers without a kept weight."""
        return [name for name, kept in self.kept.items() if kept == 0]

    @property
    def effective_kept(self) -> int | None:
        """The number of kept weights on a path from input to output."""
        return None if self.effective is None else self.effective.kept

    @property
    def effective_sparsity(self) -> float | None:
        """The fraction of weights that are dropped or on no path."""
        return None if self.effective is None else self.effective.sparsity

    @property
    def collapsed(self) -> bool:
        """Whether a layer is empty or nothing reaches the output."""
        return bool(self.empty) or self.connected is False

    def __str__(self) -> str:
        """A description of the collapse in one or two sentences."""
        empty = ", ".join(self.empty)
        layers = f"No weight is left in {len(self.empty)} of {len(self.kept)} layers: {empty}." if empty else ""
        if self.connected is None:
            about = "Whether a path from input to output remains is not known."
        elif not self.connected:
            about = "No path from input to output remains, so the outputs do not depend on the input."
        elif empty:
            about = (
                "Paths from input to output remain around them (shortcuts); "
                f"{self.effective_kept} of {sum(self.kept.values())} kept weights lie on one."
            )
        else:
            about = f"{self.effective_kept} of {sum(self.kept.values())} kept weights lie on a path to the output."
        return f"{layers} {about}".strip()


def find_paths(model: nn.Module, mask: Mapping[str, Tensor], input_shape: tuple[int, ...] | None) -> Paths:
    """Find the paths through a network from an input of this shape (without the batch) along the kept weights.

    `mask` has a boolean tensor for each prunable weight by its name. For a network with zeros it is
    `{name: weight != 0 ...}`. Only empty layers are found without a shape, and for networks with unknown operations or
    products of two activations, as in attention.

    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> mask = {"0.weight": torch.tensor([[True, True], [False, False]]), "2.weight": torch.tensor([[True, True]])}
    >>> paths = find_paths(model, mask, (2,))
    >>> paths.effective_kept  # of the four, the last one begins at a unit that gets nothing
    3
    """
    kept = Mask(mask).kept_by_layer()
    parameters = dict(model.named_parameters())
    if unknown_names := [name for name in mask if name not in parameters]:
        raise OptionError(f"The mask has a layer `{unknown_names[0]}` that the model has not.")
    try:
        found = None if input_shape is None else _follow(model, mask, input_shape)
    except _NotRunError as error:
        return Paths(kept, None, None, str(error))
    if found is None:
        return Paths(kept, None, None)
    reached, gradients = found
    on_path = {
        name: layer.cpu() & (gradient > 0) for (name, layer), gradient in zip(mask.items(), gradients, strict=True)
    }
    return Paths(kept, Mask(on_path), bool((reached > 0).any()))


def _follow(model: nn.Module, mask: Mapping[str, Tensor], shape: tuple[int, ...]) -> tuple[Tensor, list[Tensor]] | None:
    """Gradients of the input and of each weight, positive on paths; None for unknown operations."""
    tensors = _ones(model)
    tensors |= {name: layer.detach().to("cpu", torch.float64).requires_grad_() for name, layer in mask.items()}
    weights = [tensors[name] for name in mask]
    start = torch.ones(1, *shape, dtype=torch.float64, requires_grad=True)
    tracer = _Tracer(start)
    try:
        with torch.enable_grad(), torch.autocast("cpu", enabled=False), inspecting(model), tracer:
            outputs = functional_call(model, tensors, (start,))
    except _UnknownOperationError:
        return None
    except Exception as error:  # a check must not end a training, whatever the network does
        raise _NotRunError(str(error).strip().partition("\n")[0] or type(error).__name__) from None
    ends = [output.sum() for output in tree_leaves(outputs) if isinstance(output, Tensor) and tracer.knows(output)]
    if not ends:
        return None
    total = torch.stack(ends).sum()
    first, *rest = torch.autograd.grad(total, [start, *weights], allow_unused=True, materialize_grads=True)
    return first, rest


def _ones(model: nn.Module) -> dict[str, Tensor]:
    """All parameters as ones and copies of all buffers, on the CPU."""
    # On the CPU and in float64 sums of ones are exact, and no library uses Winograd or FFT convolutions.
    tensors = {name: torch.ones(p.shape, dtype=torch.float64) for name, p in model.named_parameters()}
    for name, buffer in model.named_buffers():
        tensors[name] = buffer.detach().to(
            "cpu", torch.float64 if buffer.is_floating_point() else buffer.dtype, copy=True
        )
    return tensors


class _OneOrZero(torch.autograd.Function):
    """1 where a value is positive and 0 elsewhere, forward and backward."""

    @staticmethod
    def forward(_context: Any, values: Tensor) -> Tensor:
        return (values > 0).to(values.dtype)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> Tensor:
        return (gradient > 0).to(gradient.dtype)


def _one_or_zero(values: Tensor) -> Tensor:
    result: Tensor = _OneOrZero.apply(values)  # type: ignore[no-untyped-call]
    return result


class _UnknownOperationError(Exception):
    """An operation whose paths are not known."""


class _NotRunError(Exception):
    """The network cannot be run on such an input; the text says why."""


class _Tracer(TorchFunctionMode):
    """Runs a network's operations on ones and zeros, and tracks which values depend on its input."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self._active = {id(start): start}  # kept alive, so that no other tensor gets the same id

    def knows(self, value: Any) -> bool:
        """Whether a value depends on the input."""
        return id(value) in self._active

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        active = [value for value in tree_leaves((args, kwargs)) if self.knows(value)]
        if not active:
            return func(*args, **kwargs)
        result = _passed_on(_Call(func, args, kwargs, active))
        self._active |= {id(value): value for value in tree_leaves(result) if isinstance(value, Tensor)}
        return result


class _Call(NamedTuple):
    """A call of a torch function, with those of its arguments that depend on the network's input."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    active: list[Tensor]

    @property
    def name(self) -> str:
        return getattr(self.func, "__name__", "")

    def run(self) -> Any:
        return self.func(*self.args, **self.kwargs)


def _passed_on(call: _Call) -> Any:
    if call.name in QUESTIONS or _is_attribute(call.func):
        return call.run()
    for names, rule in RULES:
        if call.name in names:
            return rule(call)
    raise _UnknownOperationError(call.name)


def _is_attribute(func: Callable[..., Any]) -> bool:
    """Whether an attribute such as a shape or a device is read; not one without gradients, such as `.data`."""
    if getattr(func, "__name__", "") != "__get__":
        return False
    name = getattr(getattr(func, "__self__", None), "__name__", "")
    if name in {"data", "grad", "real", "imag"}:
        raise _UnknownOperationError(name)
    return True


def _pooled(call: _Call) -> Tensor:
    names: tuple[str, ...] = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
    if call.name.startswith("adaptive"):
        names = ("input", "output_size", "return_indices")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    dilation = given.pop("dilation", 1)
    if given.pop("return_indices", False) or any(step != 1 for step in tree_leaves(dilation)):
        raise _UnknownOperationError(call.name)
    return _one_or_zero(POOLS[call.name](**given))


def _layer(call: _Call) -> Tensor:
    args = call.args
    if len(call.active) != 1 or len(args) < 2:
        raise _UnknownOperationError(call.name)
    if call.name == "addmm":  # a bias and a product, as in the Conv1D of GPT-2
        return _layer(call._replace(func=torch.matmul, args=args[1:], kwargs={}))
    if call.name in PRODUCTS:
        return _one_or_zero(call.func(*args))
    kwargs = {key: value for key, value in call.kwargs.items() if key != "bias"}
    return _one_or_zero(call.func(*args[:2], None, *args[3:], **kwargs))


def _summed(call: _Call) -> Tensor:
    first, *others = call.active
    if call.kwargs.keys() - {"alpha"} or len(call.args) != 2:
        raise _UnknownOperationError("add")
    if len(others) == 1:  # a difference passes on what a sum does
        return _one_or_zero(first + others[0])
    shapes = [value.shape for value in call.args if isinstance(value, Tensor)]
    return first.expand(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _scaled(call: _Call) -> Tensor:
    if len(call.active) != 1 or ("div" in call.name and call.args[0] is not call.active[0]):
        raise _UnknownOperationError(call.name)
    return _summed(call._replace(kwargs={}))  # a constant factor passes on what a constant summand does


RULES: tuple[tuple[frozenset[str], Callable[[_Call], Any]], ...] = (
    (ACTIVATIONS, lambda call: call.active[0]),
    (MOVES, _Call.run),
    (MEANS, lambda call: _one_or_zero(call.run())),
    (frozenset(POOLS), _pooled),
    (LAYERS, _layer),
    (SUMS, _summed),
    (SCALINGS, _scaled),
)
