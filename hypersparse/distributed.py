"""`Ranks`: the processes that train one network together, and what they have to agree on.

Decisions go through a gloo group of their own, so that they never meet the collectives of a training loop.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from hypersparse import errors
from hypersparse.errors import HypersparseError, LoopError, ModelError

T = TypeVar("T")
Ties = Literal["first", "all", "none"]
DIGIT = 11  # bits of a number that one histogram counts
APART = (
    "The ranks did not meet ({reason}). Every rank must make the same steps and calls: give all of them loaders of the "
    "same length, for instance by DistributedSampler, and see whether one of them failed."
)


class Ranks:
    """The processes of a group; one alone where torch.distributed is not initialised."""

    def __init__(self, group: distributed.ProcessGroup | None = None) -> None:
        self._group, self._alone = group, False
        self._decisions: distributed.ProcessGroup | None = None

    @classmethod
    def alone(cls) -> "Ranks":
        """One process, whatever torch.distributed says."""
        ranks = cls()
        ranks._alone = True
        return ranks

    @property
    def size(self) -> int:
        """How many they are."""
        return distributed.get_world_size(self._group) if self._is_group else 1

    @property
    def rank(self) -> int:
        """The number of this one."""
        return distributed.get_rank(self._group) if self._is_group else 0

    @property
    def several(self) -> bool:
        """Whether there is anybody to agree with."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and prints."""
        return self.rank == 0

    @property
    def _is_group(self) -> bool:
        return not self._alone and distributed.is_available() and distributed.is_initialized()

    def share(self, count: int) -> slice:
        """This rank's part of so many samples in a row.

        >>> Ranks.alone().share(10)
        slice(0, 10, None)
        """
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def sum(self, *numbers: float) -> list[float]:
        """The sums of numbers over the ranks."""
        if not self.several:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.float64)
        with _meeting():
            distributed.all_reduce(sums, group=self._control())
        found: list[float] = sums.tolist()
        return found

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order."""
        if not self.several:
            return [value]
        found: list[Any] = [None] * self.size
        with _meeting():
            distributed.all_gather_object(found, value, group=self._control())
        return found

    def concatenate(self, part: Tensor) -> Tensor:
        """The parts of all ranks, one after another."""
        return torch.cat([piece.to(part.device) for piece in self.gather(part.cpu())]) if self.several else part

    def decide(self, yes: bool) -> bool:
        """What rank 0 decides."""
        return bool(self.sum(yes if self.first else 0.0)[0])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Every rank works on its own inside the block; what fails on one raises on all."""
        failure: Exception | None = None
        try:
            yield
        except Exception as error:
            if not self.several:
                raise
            failure = error
        if self.several and any(self.sum(failure is not None)):
            _raise_first(self.gather(None if failure is None else _said(failure)), failure)

    def from_first(self, work: Callable[[], T]) -> T:
        """What rank 0 finds out, on all ranks."""
        if not self.several:
            return work()
        found: list[Any] = [None]
        with self.together():
            found = [work()] if self.first else found
        with _meeting():
            distributed.broadcast_object_list(found, group=self._control(), group_src=0)
        result: T = found[0]
        return result

    def after_first(self, work: Callable[[], T]) -> T:
        """The work of every rank, rank 0's before the others': what it leaves on disk, they find."""
        found: list[T] = []
        for turn in (True, False):
            with self.together():
                if turn == self.first:
                    found.append(work())
        return found[0]

    def mean_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their means over the ranks, in one exchange."""
        self._exchange_(list(tensors), 1 / self.size)

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over the ranks, in one exchange."""
        self._exchange_(list(tensors), 1.0)

    @torch.no_grad()
    def _exchange_(self, tensors: list[Tensor], factor: float) -> None:
        if not (self.several and tensors):
            return
        flat = _flat(tensors)
        with _meeting():
            distributed.all_reduce(flat, group=self._group)
        _spread_(tensors, flat.mul_(factor))

    @torch.no_grad()
    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of rank 0, in one exchange for each type."""
        by_type: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors if self.several else ():
            by_type.setdefault(tensor.dtype, []).append(tensor)
        for alike in by_type.values():
            flat = _flat(alike)
            with _meeting():
                distributed.broadcast(flat, group=self._group, group_src=0)
            _spread_(alike, flat)

    def check_same(self, layers: Mapping[str, Tensor] | None) -> None:
        """Raise an error on all ranks if they have different masks."""
        if not self.several or (layers is not None and is_sharded(layers)):
            return
        digests = self.gather(None if layers is None else _digest(layers))
        if len(set(digests)) > 1:
            other = next(rank for rank, digest in enumerate(digests) if digest != digests[0])
            raise LoopError(
                f"The mask of rank {other} is not that of rank 0: their weights or scores differ. Train the model in "
                "DistributedDataParallel, and begin on all ranks with the same weights."
            )

    def _control(self) -> distributed.ProcessGroup:
        """The group for decisions, made when all ranks first need it."""
        if self._decisions is None:
            members = None if self._group is None else distributed.get_process_group_ranks(self._group)
            made = distributed.new_group(
                members, timeout=_timeout(self._group), backend="gloo", use_local_synchronization=members is not None
            )
            assert made is not None
            self._decisions = made
        return self._decisions


def average_statistics_(model: nn.Module, ranks: Ranks) -> None:
    """Replace the running statistics of norms by their means over the ranks."""
    names = ("running_mean", "running_var")
    found = [getattr(module, name, None) for module in model.modules() for name in names]
    ranks.mean_(tensor for tensor in found if isinstance(tensor, Tensor))


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _spread_(tensors: Sequence[Tensor], flat: Tensor) -> None:
    for tensor, part in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape))


def _digest(layers: Mapping[str, Tensor]) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for layer in layers.values():
        found.update(np.packbits(layer.flatten().cpu().numpy()).tobytes())
    return found.digest()


@contextmanager
def _meeting() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LoopError(APART.format(reason=str(error).strip().partition("\n")[0])) from error


def _timeout(group: distributed.ProcessGroup | None) -> timedelta | None:
    """How long the ranks wait for each other in the loop's own collectives."""
    group = group or distributed.group.WORLD
    kind = "cuda" if distributed.get_backend(group) == "nccl" else "cpu"
    options = getattr(group._get_backend(torch.device(kind)), "options", None) if group else None
    return getattr(options, "_timeout", None)


def _said(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)


def _raise_first(said: Sequence[tuple[str, str] | None], own: Exception | None) -> None:
    """Raise this rank's own error, or the first one of the others'."""
    if own is not None:
        raise own
    rank, (kind, text) = next((rank, found) for rank, found in enumerate(said) if found is not None)
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, HypersparseError):
        raise known(text)
    raise LoopError(f"Rank {rank} failed with {kind}: {text}")


# Weights that FSDP2 shards: each rank holds a stretch of rows of every layer, as the local part of a DTensor.


def is_sharded(layers: Mapping[str, Tensor]) -> bool:
    """Whether these are spread over several ranks."""
    return any(hasattr(layer, "device_mesh") for layer in layers.values())


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, in the same memory; all of it where it is not sharded."""
    whole: Any = tensor.detach()
    part: Tensor = whole.to_local() if hasattr(whole, "to_local") else whole
    return part


def with_local(tensor: Tensor, part: Tensor) -> Tensor:
    """A tensor sharded like another one, of which this is the local part."""
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    made: Tensor = DTensor.from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride()
    )
    return made


class Shards:
    """Layers that are sharded over the same ranks, and what has to be counted over all of them."""

    def __init__(self, layers: Mapping[str, Tensor]) -> None:
        self.layers = layers
        found = {_shard_group(name, layer) for name, layer in layers.items()}
        if len(found) > 1:
            raise ModelError("All prunable weights must be sharded over the same ranks, or none of them.")
        self._group: distributed.ProcessGroup = found.pop()
        self._rank = distributed.get_rank(self._group)
        self._parts = {name: local(layer) for name, layer in layers.items()}

    def sums(self) -> Tensor:
        """The sum of each layer."""
        return self._reduced(torch.stack([part.sum() for part in self._parts.values()]))

    def largest(self, keep: int, ties: Ties = "first") -> dict[str, Tensor]:
        """Which are the `keep` largest of all layers; of equal ones the first, all or none of them."""
        keys = {name: _keys(part) for name, part in self._parts.items()}
        limit, equal = self._kth_largest([torch.cat([layer.flatten() for layer in keys.values()])], [keep])
        counts = self._ties({name: layer == limit[0] for name, layer in keys.items()})
        before = counts.T.flatten().cumsum(0).view(counts.T.shape).T - counts  # layer by layer, rank by rank
        return {
            name: with_local(self.layers[name], _chosen(layer, limit[0], equal[0] - before[self._rank, place], ties))
            for place, (name, layer) in enumerate(keys.items())
        }

    def largest_by_layer(self, budget: Mapping[str, int]) -> dict[str, Tensor]:
        """Which are the `budget[name]` largest of each layer; of equal ones the first."""
        keys = {name: _keys(part) for name, part in self._parts.items()}
        limit, equal = self._kth_largest([layer.flatten() for layer in keys.values()], [*budget.values()])
        counts = self._ties({name: layer == limit[place] for place, (name, layer) in enumerate(keys.items())})
        before = counts.cumsum(0) - counts
        return {
            name: with_local(
                self.layers[name], _chosen(layer, limit[place], equal[place] - before[self._rank, place], "first")
            )
            for place, (name, layer) in enumerate(keys.items())
        }

    def kth_largest(self, k: int) -> Tensor:
        """The k-th largest number of all layers."""
        flat = torch.cat([part.flatten() for part in self._parts.values()])
        limit, _ = self._kth_largest([_keys(flat)], [k])
        return _values(limit[0], flat.dtype)

    def most(self) -> float:
        """The largest number of all layers, infinite where one is not a number."""
        parts = [part.flatten().nan_to_num(torch.inf) for part in self._parts.values()]
        lowest = torch.full((1,), -torch.inf, dtype=parts[0].dtype, device=parts[0].device)
        return float(self._reduced(torch.cat([lowest, *parts]).max(), distributed.ReduceOp.MAX))

    def _kth_largest(self, groups: Sequence[Tensor], counts: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Of each group the key of its k-th largest number, and how many equal to it are among the k.

        Digit by digit, from the first: histograms of the keys that share the digits found so far are added up over the
        ranks. No weight leaves its rank.
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
            at_least = self._reduced(histograms).flip(1).cumsum(1)
            place = (at_least < left[:, None]).sum(1)
            above = torch.where(place > 0, at_least.gather(1, (place - 1).clamp_min(0)[:, None])[:, 0], 0)
            left = left - above
            found = (found << width) + ((1 << width) - 1 - place) - signed
        return found, left

    def _ties(self, equal: Mapping[str, Tensor]) -> Tensor:
        """How many numbers equal to the limit each rank has in each layer."""
        own = torch.stack([layer.sum() for layer in equal.values()])
        gathered = [torch.empty_like(own) for _ in range(distributed.get_world_size(self._group))]
        distributed.all_gather(gathered, own, group=self._group)
        return torch.stack(gathered)

    def _reduced(self, tensor: Tensor, how: Any = distributed.ReduceOp.SUM) -> Tensor:
        distributed.all_reduce(tensor, op=how, group=self._group)
        return tensor


def _shard_group(name: str, layer: Tensor) -> distributed.ProcessGroup:
    """The ranks over which the rows of a layer are spread."""
    mesh, placements = getattr(layer, "device_mesh", None), getattr(layer, "placements", ())
    split = [dimension for dimension, placement in enumerate(placements) if not placement.is_replicate()]
    if mesh is None or len(split) != 1 or not placements[split[0]].is_shard(0) or "Strided" in str(placements):
        raise ModelError(
            f"Weights are sharded along their rows, over one dimension of a mesh; `{name}` is laid out as "
            f"{list(placements) or 'a whole tensor'}. Shard all prunable weights by `fully_shard` alone."
        )
    group: distributed.ProcessGroup = mesh.get_group(split[0])
    return group


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
