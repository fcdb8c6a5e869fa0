"""`PrunableWeights`: the live weights of a model that may be zeroed, and the mask that holds now."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize

from hypersparse.errors import ModelError
from hypersparse.sparsity.mask import Mask

PrunableModules = Mapping[type[nn.Module], tuple[str, ...]]
CONV_AND_LINEAR: PrunableModules = {_ConvNd: ("weight",), nn.Linear: ("weight",)}


@dataclass(frozen=True)
class Selection:
    """What was selected as prunable and what was not, with the reason."""

    selected: dict[str, int]
    skipped: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{sum(self.selected.values())} prunable weights in {len(self.selected)} layers"]
        lines += [f"  prunable  {name} ({count})" for name, count in self.selected.items()]
        lines += [f"  left out  {name}: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def unwrap(model: nn.Module) -> nn.Module:
    """The module behind `torch.compile` or a data-parallel wrapper, whose parameter names are the user's."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


class PrunableWeights(Mapping[str, nn.Parameter]):
    """Every conv and linear weight of a model, by name; biases and norms never.

    The first and the last layer and 1x1 shortcuts are included. Other modules are added with `also`:
    `PrunableWeights(model, also={nn.MultiheadAttention: ("in_proj_weight",)})`. The model is not
    wrapped or changed, except by the methods whose names end in `_`.
    """

    def __init__(self, model: nn.Module, *, also: PrunableModules | None = None) -> None:
        self.model = unwrap(model)
        self._parameters, self.selection = _select(self.model, {**CONV_AND_LINEAR, **(also or {})})
        if not self._parameters:
            raise ModelError(
                f"{type(self.model).__name__} has no prunable weight: no conv or linear layer was found. "
                "Name its module types with `also={ModuleType: ('weight',)}`."
            )
        self._mask: Mask | None = None
        self._dropped: Tensor | None = None  # True where the mask drops, laid out like `vector()`
        self._flat: Tensor | None = None  # the memory of all weights, once they lie in one
        self._flat_gradient: tuple[Tensor, list[Tensor]] | None = None  # that of their gradients, and its pieces
        self._leaf: Tensor | None = None  # what `vector()` is inside `gathering_gradient_`
        self._defers = False  # whether a gathered gradient waits for `take_gathered_gradient`
        self._gathered: Tensor | None = None

    def __getitem__(self, name: str) -> nn.Parameter:
        return self._parameters[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)

    def __repr__(self) -> str:
        return f"PrunableWeights({self.total} weights in {len(self)} layers, mask: {self._mask})"

    @property
    def total(self) -> int:
        """How many weights may be pruned."""
        return sum(weight.numel() for weight in self._parameters.values())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(iter(self._parameters.values())).device

    @property
    def mask(self) -> Mask | None:
        """The mask that holds now; None while all weights are free."""
        return self._mask

    def vector(self) -> Tensor:
        """All weights as one long vector that gradients flow through, layers in order of registration."""
        if self._leaf is not None:
            return self._leaf
        return torch.cat([weight.flatten() for weight in self._parameters.values()])

    def flatten_(self) -> None:
        """Move all weights into one stretch of memory, so that one kernel reaches them; nothing else of them changes.

        For loops that own their model: afterwards nobody may give a weight other memory. Weights that would not begin
        at a multiple of 16 bytes, where kernels are slow, or are of several types, stay where they are.
        """
        weights = list(self._parameters.values())
        aligned = all(weight.numel() * weight.element_size() % 16 == 0 for weight in weights[:-1])
        alike = len({(weight.dtype, weight.device) for weight in weights}) == 1
        if not (aligned and alike and all(map(_dense, weights))):
            return
        flat = torch.empty(self.total, dtype=weights[0].dtype, device=self.device)
        self._flat, self._dropped = flat, None
        for weight, place in zip(weights, self.pieces(flat), strict=True):
            place.copy_(weight.detach())
            weight.data = place
        if self._mask is not None:
            self.set_mask_(self._mask)

    @property
    def flat(self) -> Tensor | None:
        """The memory of all weights, after `flatten_`; None where they could not be moved."""
        return self._flat

    @property
    def flat_gradient(self) -> Tensor | None:
        """The memory of all gradients, where `copy_gradients_` was the last to set them."""
        if self._flat_gradient is None:
            return None
        memory, places = self._flat_gradient
        return (
            memory if all(weight.grad is place for weight, place in zip(self.values(), places, strict=True)) else None
        )

    def copy_gradients_(self, gradients: Sequence[Tensor]) -> None:
        """Make copies of these the gradients of flattened weights, in one stretch of memory too."""
        if self._flat is None:
            raise ModelError("The weights' gradients lie in one memory only where the weights do: call `flatten_()`.")
        if self._flat_gradient is None:
            memory = torch.empty_like(self._flat)
            self._flat_gradient = memory, self.pieces(memory)
        places = self._flat_gradient[1]
        self._gathered = None  # of a step that nobody made
        with torch.no_grad():
            torch._foreach_copy_(places, list(gradients))
        for weight, place in zip(self.values(), places, strict=True):
            weight.grad = place

    @contextmanager
    def gathering_gradient_(self) -> Iterator[None]:
        """Inside the block gradients of `vector()` are gathered; then they are added to the weights' own at once."""
        vector = self.vector() if self._flat is None else self._flat
        self._leaf = leaf = vector.detach().requires_grad_()
        try:
            yield
        finally:
            self._leaf = None
        if leaf.grad is None:
            return
        if self._defers and self.flat_gradient is not None and self._gathered is None:
            self._gathered = leaf.grad
        else:
            self.add_to_gradients_(leaf.grad)

    def defer_gathered_gradient_(self) -> None:
        """From now on a gathered gradient is not added to flat ones: the optimizer takes it and adds it as it steps."""
        self._defers = True

    def take_gathered_gradient(self) -> Tensor | None:
        """The gradient that waits to be added, laid out like `flat`; None where there is none."""
        gathered, self._gathered = self._gathered, None
        return gathered

    def set_mask_(self, mask: Mask) -> None:
        """From now on `mask` holds; its dropped weights become exactly 0.0 at once."""
        if list(mask) != list(self) or any(mask[name].shape != self[name].shape for name in self):
            raise ModelError("The mask's layers are not this model's prunable layers.")
        self._mask = mask.to(self.device)
        if self._dropped is None or self._dropped.device != self.device:  # otherwise it keeps its address
            self._dropped = torch.empty(self.total, dtype=torch.bool, device=self.device)
        for kept, dropped in zip(self._mask.values(), self.pieces(self._dropped), strict=True):
            torch.logical_not(kept, out=dropped)
        self.apply_mask_()

    def clear_mask_(self) -> None:
        """From now on all weights are free."""
        self._mask = None

    def apply_mask_(self) -> None:
        """Make the dropped weights exactly 0.0 again, as after an optimizer step."""
        if self._mask is None or self._dropped is None:
            return
        # Not a product: it would leave -0.0, and keep a dropped NaN alive.
        with torch.no_grad():
            if self._flat is not None:
                self._flat.masked_fill_(self._dropped, 0.0)
                return
            for weight, dropped in zip(self.values(), self.pieces(self._dropped), strict=True):
                weight.masked_fill_(dropped, 0.0)

    @contextmanager
    def masked_by(self, mask: Mask) -> Iterator[None]:
        """Inside the block the model is pruned by `mask`; afterwards every weight is back, bit for bit."""
        stored = {name: weight.detach().clone() for name, weight in self._parameters.items()}
        try:
            with torch.no_grad():
                for name, weight in self._parameters.items():
                    weight.masked_fill_(~mask[name], 0.0)
            yield
        finally:
            with torch.no_grad():
                for name, weight in self._parameters.items():
                    weight.copy_(stored[name])

    def pieces(self, vector: Tensor) -> list[Tensor]:
        """Cut a vector laid out like `flat`, or without one like `vector()`, into views with the weights' shapes."""
        weights = list(self._parameters.values())
        parts = torch.split(vector, [weight.numel() for weight in weights])
        if self._flat is None:
            return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
        # In one stretch of memory a weight keeps its own order, which may be channels-last.
        return [part.as_strided(weight.shape, weight.stride()) for part, weight in zip(parts, weights, strict=True)]

    def add_to_gradients_(self, gradient: Tensor) -> None:
        """Add a vector that `pieces` can cut to the weights' gradients."""
        if (memory := self.flat_gradient) is not None:
            memory.add_(gradient)
            return
        with torch.no_grad():
            there: list[Tensor] = []
            added: list[Tensor] = []
            for weight, piece in zip(self.values(), self.pieces(gradient), strict=True):
                if weight.requires_grad:
                    weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                    there.append(weight.grad)
                    added.append(piece)
            torch._foreach_add_(there, added)


def _dense(weight: Tensor) -> bool:
    """Whether the weight fills its memory without gaps, in whatever order."""
    return weight.is_contiguous() or (weight.dim() == 4 and weight.is_contiguous(memory_format=torch.channels_last))


def _select(model: nn.Module, types: PrunableModules) -> tuple[dict[str, nn.Parameter], Selection]:
    names_of = {id(parameter): name for name, parameter in model.named_parameters()}
    found: dict[str, nn.Parameter] = {}
    skipped: dict[str, str] = {}
    computed: list[str] = []  # prefixes of what parametrizations store instead of the weight
    for path, module in model.named_modules():
        dot = path and f"{path}."
        for attribute in _wanted(module, types):
            parameter = getattr(module, attribute, None)
            if parametrize.is_parametrized(module, attribute):
                skipped[dot + attribute] = "computed by a parametrization, not stored"
                computed.append(f"{dot}parametrizations.{attribute}.")
            elif isinstance(parameter, nn.Parameter):
                found[names_of[id(parameter)]] = parameter
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(f"`{name}` has no shape yet; run the model once first.")
        if name not in found and not name.startswith(tuple(computed)):
            skipped[name] = "a bias or norm" if parameter.dim() < 2 else "not in a registered module type"
    return found, Selection({name: weight.numel() for name, weight in found.items()}, skipped)


def _wanted(module: nn.Module, types: PrunableModules) -> list[str]:
    return [attribute for kind, attributes in types.items() if isinstance(module, kind) for attribute in attributes]
