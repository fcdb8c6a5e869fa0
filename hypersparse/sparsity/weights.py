"""`PrunableWeights`: the prunable weights of a model, and their current mask."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from hypersparse.distributed.shards import ShardGroup, Shards, is_sharded, local, local_with_gradient, reshard_
from hypersparse.errors import ModelError, OptionError
from hypersparse.plurals import how_many
from hypersparse.sparsity.distributions import Distribution, Rule, keep_count, select, shares
from hypersparse.sparsity.layer_names import Pattern
from hypersparse.sparsity.limits import Limits, limits_of
from hypersparse.sparsity.mask import Mask, Scores
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.selection import PrunableModules, select_parameters, unwrap
from hypersparse.sparsity.summary import Summary


class PrunableWeights(Mapping[str, nn.Parameter]):
    """Every conv, linear and attention weight of a model, by name; biases, norms and embeddings never.

    The first and the last layer and 1x1 shortcuts are included. `skip` leaves layers out and `only` all others, by
    names, globs or module types. Other modules are added with `extra_prunable`:
    `PrunableWeights(model, extra_prunable={nn.LSTM: ("weight_*",)})`. The model is not wrapped or changed, except by
    the methods whose names end in `_`.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        extra_prunable: PrunableModules | None = None,
        skip: Pattern | Iterable[Pattern] = (),
        only: Pattern | Iterable[Pattern] | None = None,
    ) -> None:
        self.model = unwrap(model)
        self._parameters, self.selection = select_parameters(self.model, extra=extra_prunable, skip=skip, only=only)
        if not self._parameters:
            remedy = self.selection.remedy() or "Name its module types with `extra_prunable={ModuleType: ('weight',)}`"
            raise ModelError(
                f"{type(self.model).__name__} has no prunable weight: no conv or linear layer was found, or `skip` and "
                f"`only` leave none. {remedy}."
            )
        # The ranks over which `fully_shard` has spread the weights.
        self.shard_group: ShardGroup | None = Shards(self).group if is_sharded(self._parameters) else None
        self.limits: Limits | None = None
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
        return f"PrunableWeights({self.total} weights in {how_many(len(self), 'layer')}, mask: {self._mask})"

    @property
    def total(self) -> int:
        """The number of prunable weights."""
        return sum(weight.numel() for weight in self._parameters.values())

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(iter(self._parameters.values())).device

    @property
    def mask(self) -> Mask | None:
        """The current mask; None while no weight is pruned."""
        return self._mask

    @property
    def dropped(self) -> Tensor | None:
        """True where the mask drops weights that lie in one memory; None without a mask or such a memory."""
        return None if self._mask is None or self._whole is None else self._whole[1]

    def vector(self) -> Tensor:
        """All weights as one long vector that gradients flow through, layers in order of registration.

        Where they are sharded it has the weights of this rank.
        """
        return torch.cat([local_with_gradient(weight).flatten() for weight in self._parameters.values()])

    def set_limits_(
        self,
        sparsity: float | None,
        *,
        densities: Mapping[Pattern, float] | None = None,
        min_density: float | None = None,
    ) -> None:
        """From now on layers named by `densities` keep exactly that share, and the others at least `min_density`.

        The total stays that of `sparsity`. Masks of more weights, on the way to it, are as far on it in every layer.
        """
        if sparsity is None:
            raise OptionError("`densities` and `min_density` are for methods that prune, and this one does not.")
        keep = keep_count(self.total, sparsity)
        left_out = self.selection.left_out
        self.limits = limits_of(
            self.model, self, keep, left_out=left_out, densities=densities or {}, min_density=min_density
        )

    def select(
        self,
        scores: Scores,
        keep: int,
        distribution: Distribution = "global",
        *,
        among: Mask | None = None,
        rule: Callable[[Scores, int], Mask] = Mask.top,
    ) -> Mask:
        """The mask of the `keep` best scores, within the limits; see `distributions.select`."""
        return select(scores, keep, distribution, among=among, limits=self.limits, rule=rule)

    def shares(self, keep: int, distribution: Distribution | Rule) -> dict[str, int]:
        """How many weights each layer keeps by a rule, within the limits; see `distributions.shares`."""
        return shares(self, keep, distribution, limits=self.limits)

    def competing(self, vector: Tensor, keep: int) -> list[tuple[Tensor, int]]:
        """A vector of all weights, cut into those that compete for places, each part with its count of places.

        Without limits all compete. Layers that keep all their weights are left out.
        """
        if self.limits is None:
            return [(vector, keep)]
        sizes = [local(weight).numel() for weight in self.values()]
        parts = dict(zip(self, torch.split(vector, sizes), strict=True))
        counts: Mapping[str, int] = self.limits.exact
        if self.limits.least:
            now = self.select(magnitude(self), keep).kept_by_layer()
            counts = {**counts, **{name: least for name, least in self.limits.least.items() if now[name] <= least}}
        groups = [([name], count) for name, count in counts.items()]
        groups += [([name for name in self if name not in counts], keep - sum(counts.values()))]
        return [
            (torch.cat([parts[name] for name in names]), places)
            for names, places in groups
            if names and places < sum(self[name].numel() for name in names)
        ] or [(vector, keep)]

    def summary(self) -> Summary:
        """A table of all weights: which are prunable, their density, and why the others are not."""
        return Summary(self.selection, self._mask, self.limits)

    def set_mask_(self, mask: Mask) -> None:
        """Set the mask; its dropped weights become exactly 0.0."""
        if list(mask) != list(self) or any(mask[name].shape != self[name].shape for name in self):
            raise ModelError("The mask's layers are not this model's prunable layers.")
        if self.limits is not None:
            self.limits.check(mask)
        self._mask = mask.to(self.device)
        parts = [local(kept) for kept in self._mask.values()]
        if not self._dropped or self._dropped[0].device != self.device:
            self._dropped = [torch.empty_like(kept) for kept in parts]
        for kept, dropped in zip(parts, self._dropped, strict=True):
            torch.logical_not(kept, out=dropped)
        self.apply_mask_()
        if self._mask.is_sharded:
            self._mask.kept_by_layer()
            self.reshard_()

    def clear_mask_(self) -> None:
        """Remove the mask."""
        self._mask = None

    def apply_mask_(self) -> None:
        """Set the dropped weights to exactly 0.0 again, as after an optimizer step."""
        if self._mask is None:
            return
        pairs = zip(map(local, self.values()), self._dropped, strict=True) if self._whole is None else [self._whole]
        # Not a product: it would leave -0.0, and keep a dropped NaN alive.
        with torch.no_grad():
            for values, dropped in pairs:
                values.masked_fill_(dropped, 0.0)

    def count_nonzero_dropped(self) -> Tensor:
        """How many dropped weights of each layer are not 0.0, on this rank; a GPU is never waited for."""
        if self._mask is None:
            return torch.zeros(len(self), dtype=torch.int64, device=self.device)
        with torch.no_grad():
            pairs = zip(self.values(), self._dropped, strict=True)
            return torch.stack([((local(weight) != 0) & dropped).sum() for weight, dropped in pairs])

    def zero_dropped_(self, values: Iterable[tuple[str, Tensor]]) -> None:
        """Set other tensors of these layers to 0.0 where the mask drops, such as averages of the weights."""
        dropped = dict(zip(self, self._dropped, strict=True))
        with torch.no_grad():
            for name, value in values:
                local(value).masked_fill_(dropped[name].to(value.device), 0.0)

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
        stored = {name: local(weight).clone() for name, weight in self._parameters.items()}
        try:
            with torch.no_grad():
                for name, weight in self._parameters.items():
                    local(weight).masked_fill_(~local(mask[name]), 0.0)
            self.reshard_()
            yield
        finally:
            with torch.no_grad():
                for name, weight in self._parameters.items():
                    local(weight).copy_(stored[name])
            self.reshard_()

    def reshard_(self) -> None:
        """Under `fully_shard`, drop gathered weights: they are of before a change, and hide the sharded ones."""
        if self.shard_group is not None:
            reshard_(self.model)
