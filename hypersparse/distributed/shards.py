"""`Shards`: layers whose weights FSDP2 shards over ranks, and counts over all of them.

Each rank holds some rows of every layer, as the local part of a DTensor. Ranks exchange sums and histograms, never
weights.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn

from hypersparse.errors import ModelError

Ties = Literal["first", "all", "none"]
DIGIT = 11  # bits of a number that one histogram counts


def is_sharded(layers: Mapping[str, Tensor]) -> bool:
    """Whether the layers are sharded over several ranks."""
    return any(hasattr(layer, "device_mesh") for layer in layers.values())


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, as a view; the whole tensor if it is not sharded."""
    return local_with_gradient(tensor.detach())


def local_with_gradient(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, with gradients."""
    whole: Any = tensor
    part: Tensor = whole.to_local() if hasattr(whole, "to_local") else whole
    return part


def with_local(tensor: Tensor, part: Tensor) -> Tensor:
    """A tensor sharded like another one, with this local part."""
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    made: Tensor = DTensor.from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
    return made


def sharded_like(tensor: Tensor, whole: Tensor) -> Tensor:
    """Shard a tensor that every rank holds, like another one of its shape."""
    from torch.distributed.tensor import DTensor, Shard

    assert isinstance(tensor, DTensor)
    mesh, dimension = tensor.device_mesh, _split(tensor.placements)[0]
    parts, _ = Shard(0)._split_tensor(whole, mesh.size(dimension), with_padding=False)
    return with_local(tensor, parts[mesh.get_local_rank(dimension)].contiguous())


def place_of(layers: Mapping[str, Tensor]) -> int:
    """The part of the layers on this rank; ranks with the same value hold the same part."""
    for layer in layers.values():
        if hasattr(layer, "device_mesh"):
            place: int = layer.device_mesh.get_local_rank(_split(layer.placements)[0])  # type: ignore[attr-defined]
            return place
    return 0


def largest_number(layers: Mapping[str, Tensor]) -> float:
    """The largest number of all layers, sharded or not."""
    if is_sharded(layers):
        return Shards(layers).most()
    return float(torch.stack([layer.max() for layer in layers.values()]).max())


def is_fsdp(model: nn.Module) -> bool:
    """Whether `fully_shard` was called on a module of this model."""
    return bool(_fsdp_modules(model))


def reshard_(model: nn.Module) -> None:
    """Drop gathered weights: FSDP keeps some after a forward pass without a backward pass, and would miss changes."""
    for module in _fsdp_modules(model):
        module.reshard()


def _fsdp_modules(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "reshard") and hasattr(module, "unshard")]


class ShardGroup:
    """The ranks over which weights are sharded."""

    def __init__(self, group: distributed.ProcessGroup) -> None:
        self.group = group

    def sum(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over the ranks."""
        distributed.all_reduce(tensor, group=self.group)
        return tensor

    def max(self, tensor: Tensor) -> Tensor:
        """Replace a number by its maximum over the ranks."""
        distributed.all_reduce(tensor, op=distributed.ReduceOp.MAX, group=self.group)
        return tensor

    def kth_largest(self, part: Tensor, k: int) -> Tensor:
        """The k-th largest number of a vector that is sharded over the ranks."""
        limit, _ = self.kth_keys([_keys(part)], [k])
        return _values(limit[0], part.dtype)

    def kth_keys(self, groups: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """For each group the key of its k-th largest number, and how many numbers equal to it are among the k.

        The key is found digit by digit: histograms of the keys that share the first digits are summed over the ranks.
        """
        device, bits = groups[0].device, groups[0].element_size() * 8
        left = torch.tensor(counts, device=device)
        found = torch.zeros_like(left)
        for shift in range(bits - DIGIT, -DIGIT, -DIGIT):
            low, width = max(shift, 0), min(DIGIT, shift + DIGIT)
            signed = 1 << (width - 1) if shift == bits - DIGIT else 0  # the first digit has the sign
            digits = [
                ((keys if signed else keys[keys >> (low + width) == prefix]) >> low) - (prefix << width) + signed
                for keys, prefix in zip(groups, found, strict=True)
            ]
            histograms = torch.stack([torch.bincount(each, minlength=1 << width) for each in digits])
            at_least = self.sum(histograms).flip(1).cumsum(1)
            place = (at_least < left[:, None]).sum(1)
            above = torch.where(place > 0, at_least.gather(1, (place - 1).clamp_min(0)[:, None])[:, 0], 0)
            left = left - above
            found = (found << width) + ((1 << width) - 1 - place) - signed
        return found, left


class Shards:
    """Layers that are sharded over the same ranks."""

    def __init__(self, layers: Mapping[str, Tensor]) -> None:
        self.layers = layers
        found = [_group_of(name, layer) for name, layer in layers.items()]
        if len({tuple(distributed.get_process_group_ranks(group)) for group in found}) > 1:
            raise ModelError("All prunable weights must be sharded over the same ranks, or none of them.")
        self.group = ShardGroup(found[0])  # every call of `fully_shard` may make a group of its own
        self._rank = distributed.get_rank(self.group.group)
        self._parts = {name: local(layer) for name, layer in layers.items()}

    def sums(self) -> list[int]:
        """The sum of each layer."""
        sums: list[int] = self.group.sum(torch.stack([part.sum() for part in self._parts.values()])).tolist()
        return sums

    def has_nan(self) -> bool:
        """Whether any number on any rank is NaN."""
        found = torch.stack([part.isnan().any() for part in self._parts.values()]).any()
        return bool(self.group.max(found.int()))

    def largest(self, keep: int, ties: Ties = "first") -> dict[str, Tensor]:
        """The `keep` largest numbers of all layers; of equal ones the first, all or none."""
        keys = {name: _keys(part) for name, part in self._parts.items()}
        limit, equal = self.group.kth_keys([torch.cat([layer.flatten() for layer in keys.values()])], [keep])
        counts = self._ties({name: layer == limit[0] for name, layer in keys.items()})
        before = counts.T.flatten().cumsum(0).view(counts.T.shape).T - counts  # layer by layer, rank by rank
        return {
            name: with_local(self.layers[name], _chosen(layer, limit[0], equal[0] - before[self._rank, place], ties))
            for place, (name, layer) in enumerate(keys.items())
        }

    def largest_by_layer(self, budget: Mapping[str, int]) -> dict[str, Tensor]:
        """The `budget[name]` largest numbers of each layer; of equal ones the first."""
        keys = {name: _keys(part) for name, part in self._parts.items()}
        limit, equal = self.group.kth_keys([keys[name].flatten() for name in keys], [budget[name] for name in keys])
        counts = self._ties({name: layer == limit[place] for place, (name, layer) in enumerate(keys.items())})
        before = counts.cumsum(0) - counts
        return {
            name: with_local(
                self.layers[name], _chosen(layer, limit[place], equal[place] - before[self._rank, place], "first")
            )
            for place, (name, layer) in enumerate(keys.items())
        }

    def most(self) -> float:
        """The largest number of all layers; infinite if one is NaN."""
        parts = [part.flatten().nan_to_num(torch.inf) for part in self._parts.values()]
        lowest = torch.full((1,), -torch.inf, dtype=parts[0].dtype, device=parts[0].device)
        return float(self.group.max(torch.cat([lowest, *parts]).max()))

    def _ties(self, equal: Mapping[str, Tensor]) -> Tensor:
        """The numbers equal to the limit, by rank and layer."""
        own = torch.stack([layer.sum() for layer in equal.values()])
        gathered = [torch.empty_like(own) for _ in range(distributed.get_world_size(self.group.group))]
        distributed.all_gather(gathered, own, group=self.group.group)
        return torch.stack(gathered)


def _group_of(name: str, layer: Tensor) -> distributed.ProcessGroup:
    """The ranks over which the rows of a layer are sharded."""
    mesh, placements = getattr(layer, "device_mesh", None), getattr(layer, "placements", ())
    split = _split(placements)
    if mesh is None or len(split) != 1 or not placements[split[0]].is_shard(0) or "Strided" in str(placements):
        raise ModelError(
            f"Weights are sharded along their rows, over one dimension of a mesh; `{name}` is laid out as "
            f"{list(placements) or 'a whole tensor'}. Shard all prunable weights by `fully_shard` alone."
        )
    group: distributed.ProcessGroup = mesh.get_group(split[0])
    return group


def _split(placements: Any) -> list[int]:
    return [dimension for dimension, placement in enumerate(placements) if not placement.is_replicate()]


def _keys(values: Tensor) -> Tensor:
    """Integers in the order of floating-point numbers; -0.0 is 0.0."""
    wide = (values.float() if values.element_size() < 4 else values) + 0.0
    bits = wide.view(torch.int32 if wide.element_size() == 4 else torch.int64)
    return _flipped(bits)


def _values(key: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse of `_keys`."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    bits = key.to(torch.int64 if wide == torch.float64 else torch.int32)
    return _flipped(bits).view(wide).to(dtype)


def _flipped(bits: Tensor) -> Tensor:
    return bits ^ ((bits >> (bits.element_size() * 8 - 1)) & torch.iinfo(bits.dtype).max)


def _chosen(keys: Tensor, limit: Tensor, room: Tensor, ties: Ties) -> Tensor:
    above, equal = keys > limit, keys == limit
    if ties == "none":
        return above
    return above | equal if ties == "all" else above | (equal & (equal.flatten().cumsum(0).view(equal.shape) <= room))
