"""`PrunableWeights`: the live weights of a model that may be pruned, and their current mask."""

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

    The first and the last layer and 1x1 shortcuts are included. Other modules are added with `extra_prunable`:
    `PrunableWeights(model, extra_prunable={nn.MultiheadAttention: ("in_proj_weight",)})`. The model is not
    wrapped or changed, except by the methods whose names end in `_`.
    """

    def __init__(self, model: nn.Module, *, extra_prunable: PrunableModules | None = None) -> None:
        self.model = unwrap(model)
        self._parameters, self.selection = _select(self.model, {**CONV_AND_LINEAR, **(extra_prunable or {})})
        if not self._parameters:
            raise ModelError(
                f"{type(self.model).__name__} has no prunable weight: no conv or linear layer was found. "
                "Name its module types with `extra_prunable={ModuleType: ('weight',)}`."
            )
        self._mask: Mask | None = None
        self._dropped: list[Tensor] = []  # True where the mask drops; keeps its addresses, which a captured step reads
        self._whole: tuple[Tensor, Tensor] | None = None  # weights and `_dropped`, where they lie in one memory each

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
        """The current mask; None while no weight is pruned."""
        return self._mask

    def vector(self) -> Tensor:
        """All weights as one long vector that gradients flow through, layers in order of registration."""
        return torch.cat([weight.flatten() for weight in self._parameters.values()])

    def set_mask_(self, mask: Mask) -> None:
        """Set the mask; its dropped weights become exactly 0.0."""
        if list(mask) != list(self) or any(mask[name].shape != self[name].shape for name in self):
            raise ModelError("The mask's layers are not this model's prunable layers.")
        self._mask = mask.to(self.device)
        if not self._dropped or self._dropped[0].device != self.device:
            self._dropped = [torch.empty_like(kept) for kept in self._mask.values()]
        for kept, dropped in zip(self._mask.values(), self._dropped, strict=True):
            torch.logical_not(kept, out=dropped)
        self.apply_mask_()

    def clear_mask_(self) -> None:
        """Remove the mask."""
        self._mask = None

    def apply_mask_(self) -> None:
        """Set the dropped weights to exactly 0.0 again, as after an optimizer step."""
        if self._mask is None:
            return
        pairs = zip(self.values(), self._dropped, strict=True) if self._whole is None else [self._whole]
        # Not a product: it would leave -0.0, and keep a dropped NaN alive.
        with torch.no_grad():
            for values, dropped in pairs:
                values.masked_fill_(dropped, 0.0)

    def use_memory_(self, values: Tensor, dropped: Tensor, parts: Sequence[Tensor]) -> None:
        """Use one memory for all weights, `values`, and one for what is dropped, `dropped` with its layers `parts`.

        One kernel applies the mask then. Nobody may give a weight other memory afterwards.
        """
        self._whole, self._dropped = (values, dropped), list(parts)
        if self._mask is not None:
            self.set_mask_(self._mask)

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
