"""Batches for training (shuffled and augmented) and for evaluation (in file order, not augmented)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hypersparse.data.augment import Draws, crop_and_flip, draw, normalize
from hypersparse.distributed import Ranks
from hypersparse.errors import DataError, OptionError


@dataclass(frozen=True)
class _Epoch:
    """The random draws of an epoch: the order of the images, their crops and their flips."""

    order: Tensor
    draws: Draws

    def copy_(self, other: "_Epoch") -> None:
        """Copy another epoch's draws in place."""
        mine, theirs = self.draws, other.draws
        self.order.copy_(other.order)
        for name in ("rows", "columns", "flips"):
            getattr(mine, name).copy_(getattr(theirs, name))


class ShuffledBatches(ABC):
    """Training images, shuffled in every epoch, cropped, flipped and normalized on their device.

    Each image is padded with `padding` black pixels and cropped to its original size.
    With `drop_last` the last, partial batch of an epoch is left out. Of several `ranks` each takes its share of the
    same batches, in order.
    """

    def __init__(
        self,
        labels: Tensor,
        *,
        shape: Sequence[int],
        batch_size: int,
        mean: Sequence[float],
        std: Sequence[float],
        seed: int,
        padding: int = 0,
        flip: bool = False,
        drop_last: bool = True,
        ranks: Ranks | None = None,
    ) -> None:
        self._ranks = ranks or Ranks.alone()
        _check_batches(len(labels), batch_size, self._ranks.size, drop_last=drop_last)
        if (padding or flip) and len(shape) != 3:
            raise OptionError(
                f"Only images of shape [C, H, W] can be cropped and flipped; got {list(shape)}. "
                "Pass padding=0 and flip=False."
            )
        self.samples = len(labels)  # images, including those of a partial last batch
        self.batch_size = batch_size  # images in a full batch
        self.position = 0  # batches already taken in this epoch
        self._labels, self._drop_last = labels, drop_last
        self._mean, self._std = (
            torch.tensor(list(each), dtype=torch.float32, device=labels.device) for each in (mean, std)
        )
        self._padding, self._flip = padding, flip
        seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
        # On the CPU, so that the batches are the same everywhere.
        self._generators = [torch.Generator().manual_seed(number) for number in seeds]
        self._states = [generator.get_state() for generator in self._generators]  # at the start of the epoch
        self._epoch: _Epoch | None = None  # allocated once: captured steps read it at a fixed address
        self._drawn = False

    def __len__(self) -> int:
        """Batches in an epoch."""
        full, rest = divmod(self.samples, self.batch_size)
        return full + (1 if rest and not self._drop_last else 0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The remaining batches of this epoch; the next epoch begins after the last one."""
        return (self.batch(number) for number in self.numbers())

    def numbers(self) -> Iterator[int]:
        """The numbers of the remaining batches, for steps that select the batch themselves."""
        while self.position < len(self):
            self._draw_epoch()
            self.position += 1
            yield self.position - 1
        self._draw_epoch()  # advances the generators if all batches were taken before a restart
        self._states = [generator.get_state() for generator in self._generators]
        self._drawn, self.position = False, 0

    def size(self, number: int) -> int:
        """Images in a batch; the last one may be smaller."""
        return min(self.batch_size, self.samples - number * self.batch_size)

    @abstractmethod
    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """This rank's share of the batch of this epoch with this number."""

    @abstractmethod
    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in file order, normalized but not augmented."""

    @abstractmethod
    def close(self) -> None:
        """End the processes that read images, if there are any; they are started again when they are needed."""

    def state_dict(self) -> dict[str, Any]:
        """The state needed to resume with the next batch: a position and two short tensors on the CPU."""
        order, augmentation = self._states
        return {"position": self.position, "order": order.clone(), "augmentation": augmentation.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, also in another process; the arguments of the constructor must be the same."""
        states = [state["order"], state["augmentation"]]
        if any(new.numel() != old.numel() for new, old in zip(states, self._states, strict=True)):
            raise DataError(
                f"These batches were saved on another kind of device than {self._labels.device}. Its random numbers "
                "differ; resume on a device of the same kind, or start again."
            )
        for generator, saved in zip(self._generators, states, strict=True):
            generator.set_state(saved.cpu())
        self._states = [saved.cpu().clone() for saved in states]
        self._drawn, self.position = False, int(state["position"])

    def _draw_epoch(self) -> _Epoch:
        if self._epoch is None or not self._drawn:
            device, (order, augmentation) = self._labels.device, self._generators
            draws = draw(augmentation, self.samples, padding=self._padding, flip=self._flip)
            new = _Epoch(torch.randperm(self.samples, generator=order).to(device), draws.to(device))
            if self._epoch is None:
                self._epoch = new
            else:
                self._epoch.copy_(new)
            self._drawn = True
        return self._epoch

    def _part(self, number: int) -> slice:
        """This rank's share of a batch, in the order of the epoch."""
        first, share = number * self.batch_size, self._ranks.share(self.size(number))
        return slice(first + share.start, first + share.stop)

    def _draws_of(self, part: slice | Tensor) -> Draws | None:
        return self._draw_epoch().draws[part] if self._padding or self._flip else None


class Batches(ShuffledBatches):
    """Batches of images that are kept on their device.

    `images` [N, C, H, W] uint8, or float32 [N, C, ...]; `labels` [N] int64 on the same device.

    >>> images = torch.zeros(5, 1, 8, 8, dtype=torch.uint8)
    >>> batches = Batches(images, torch.arange(5), batch_size=2, mean=[0.5], std=[0.5], seed=0, flip=True)
    >>> [tuple(images.shape) for images, labels in batches]
    [(2, 1, 8, 8), (2, 1, 8, 8)]
    """

    def __init__(self, images: Tensor, labels: Tensor, **settings: Any) -> None:
        super().__init__(labels, shape=images.shape[1:], **settings)
        self._images, self._take = images, take

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        return self.select(self._part(number))

    def select(self, part: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Images of this epoch by their position in its order: a slice, or a tensor of positions on the device."""
        order = self._draw_epoch().order
        select = self._take if isinstance(part, Tensor) else take
        draws = self._draws_of(part)
        return select(self._images, self._labels, order[part], draws, self._padding, self._mean, self._std)

    def close(self) -> None:
        """There are none: the images are in memory."""

    def compile_(self) -> None:
        """Compile `select` by positions to one kernel instead of twenty, for captured steps."""
        self._take = torch.compile(take, dynamic=False)

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return in_order(self._images, self._labels, self._mean, self._std, batch_size=batch_size)


def take(
    images: Tensor, labels: Tensor, chosen: Tensor, draws: Draws | None, padding: int, mean: Tensor, std: Tensor
) -> tuple[Tensor, Tensor]:
    """The chosen images, cropped and flipped as drawn, normalized, with their labels."""
    return augment(images.index_select(0, chosen), draws, padding, mean, std), labels.index_select(0, chosen)


def augment(batch: Tensor, draws: Draws | None, padding: int, mean: Tensor, std: Tensor) -> Tensor:
    """Images cropped and flipped as drawn, and normalized."""
    return normalize(batch if draws is None else crop_and_flip(batch, draws, padding), mean, std)


def in_order(
    images: Tensor, labels: Tensor, mean: Tensor, std: Tensor, *, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images once, in file order and normalized; the last batch may be smaller."""
    parts = (slice(start, start + batch_size) for start in range(0, len(labels), batch_size))
    return ((normalize(images[part], mean, std), labels[part]) for part in parts)


def _check_batches(count: int, batch_size: int, ranks: int, *, drop_last: bool) -> None:
    if drop_last and count < batch_size:
        raise OptionError(
            f"{count} images do not fill one batch of {batch_size}: "
            f"make `batch_size` at most {count}, or pass drop_last=False."
        )
    last = 0 if drop_last else count % batch_size
    if min(batch_size, last or batch_size) < ranks:
        raise OptionError(
            f"Each of {ranks} processes takes its share of a batch; of {count} images in batches of {batch_size} one "
            "has fewer. Use fewer processes, another `batch_size`, or `drop_last`."
        )
