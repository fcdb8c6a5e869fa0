"""`Ranks`: the processes that train one network, and their common decisions.

Decisions use a gloo group of their own, separate from the collectives of a training loop.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from hypersparse import errors
from hypersparse.distributed.shards import local, place_of
from hypersparse.errors import HypersparseError, LoopError

T = TypeVar("T")
APART = (
    "The ranks did not meet ({reason}). Every rank must make the same steps and calls. Give all of them loaders of the "
    "same length, for instance by DistributedSampler, and see whether one of them failed."
)


class Ranks:
    """The processes of a group; a single one if torch.distributed is not initialised."""

    def __init__(self, group: distributed.ProcessGroup | None = None) -> None:
        self._group, self._alone = group, False
        self._decisions: distributed.ProcessGroup | None = None

    @classmethod
    def alone(cls) -> "Ranks":
        """A single process, even if torch.distributed is initialised."""
        ranks = cls()
        ranks._alone = True
        return ranks

    @property
    def size(self) -> int:
        """The number of processes."""
        return distributed.get_world_size(self._group) if self._is_group else 1

    @property
    def rank(self) -> int:
        """The number of this process."""
        return distributed.get_rank(self._group) if self._is_group else 0

    @property
    def several(self) -> bool:
        """Whether there is more than one process."""
        return self.size > 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    @property
    def _is_group(self) -> bool:
        return not self._alone and distributed.is_available() and distributed.is_initialized()

    def share(self, count: int) -> slice:
        """This rank's part of consecutive samples.

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

    def sum_mean(self, saved: dict[str, Any]) -> dict[str, Any]:
        """The saved state of a running mean, with the sums of its total and count over the ranks."""
        if not self.several:
            return saved
        total, count = self.sum(float(saved["total"]), saved["count"])
        return {**saved, "total": torch.full_like(saved["total"], total), "count": int(count)}

    def gather(self, value: T) -> list[T]:
        """The values of all ranks in order."""
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
        """The decision of rank 0."""
        return bool(self.sum(yes if self.first else 0.0)[0])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Every rank runs the block; an error on one rank is raised on all."""
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
        """The result of rank 0, on all ranks."""
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
        """Run on rank 0 first, then on the others, which find the files it wrote."""
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

    def check_same_place(self, place: str) -> None:
        """Raise an error on all ranks if they are at different positions of the plan."""
        places = self.gather(place)
        for rank, other in enumerate(places):
            if other != places[0]:
                raise LoopError(
                    f"Rank {rank} is at {other}, and rank 0 at {places[0]}. Attach the same method on all ranks, and "
                    "load the same state on all of them, or on none."
                )

    def check_same(self, layers: Mapping[str, Tensor] | None) -> None:
        """Raise an error on all ranks if their masks differ; for sharded masks, the ranks with the same part."""
        if not self.several:
            return
        first: dict[Any, tuple[int, bytes | None]] = {}
        found = self.gather((None, None) if layers is None else (place_of(layers), _digest(layers)))
        for rank, (place, digest) in enumerate(found):
            other, wanted = first.setdefault(place, (rank, digest))
            if digest != wanted or (place is None) != (found[0][0] is None):
                raise LoopError(
                    f"The mask of rank {rank} is not that of rank {other}: their weights or scores differ. Train the "
                    "model in DistributedDataParallel, and begin on all ranks with the same weights."
                )

    def _control(self) -> distributed.ProcessGroup:
        """The group for decisions, created when all ranks first need it."""
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
        found.update(np.packbits(local(layer).flatten().cpu().numpy()).tobytes())
    return found.digest()


@contextmanager
def _meeting() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise LoopError(APART.format(reason=str(error).strip().partition("\n")[0])) from error


def _timeout(group: distributed.ProcessGroup | None) -> timedelta | None:
    """The timeout of the loop's own collectives."""
    group = group or distributed.group.WORLD
    kind = "cuda" if distributed.get_backend(group) == "nccl" else "cpu"
    options = getattr(group._get_backend(torch.device(kind)), "options", None) if group else None
    return getattr(options, "_timeout", None)


def _said(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)


def _raise_first(said: Sequence[tuple[str, str] | None], own: Exception | None) -> None:
    """Raise this rank's own error, or the first error of another rank."""
    if own is not None:
        raise own
    rank, (kind, text) = next((rank, found) for rank, found in enumerate(said) if found is not None)
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, HypersparseError):
        raise known(text)
    raise LoopError(f"Rank {rank} failed with {kind}: {text}")
