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
        _check_batches(len(labels), batch_size, drop_last=drop_last)
        self._ranks = ranks or Ranks.alone()
        _check_shares(len(labels), batch_size, self._ranks.size, drop_last=drop_last)
        _check_augmentation(shape, padding, flip)
        self._labels = labels
        self._mean, self._std = _on_device(mean, labels), _on_device(std, labels)
        self._batch_size, self._drop_last = batch_size, drop_last
        self._padding, self._flip = padding, flip
        seeds = np.random.SeedSequence(seed).generate_state(2).tolist()
        self._generators = [
            torch.Generator().manual_seed(number) for number in seeds
        ]  # CPU: the same batches everywhere
        self._states = [generator.get_state() for generator in self._generators]  # at the start of the epoch
        self._epoch: _Epoch | None = None  # allocated once: captured steps read it at a fixed address
        self._drawn = False
        self._position = 0

    def __len__(self) -> int:
        """Batches in an epoch."""
        full, rest = divmod(len(self._labels), self._batch_size)
        return full + (1 if rest and not self._drop_last else 0)

    @property
    def samples(self) -> int:
        """The number of images, including those of a partial last batch."""
        return len(self._labels)

    @property
    def position(self) -> int:
        """Batches already taken in this epoch."""
        return self._position

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The remaining batches of this epoch; the next epoch begins after the last one."""
        return (self.batch(number) for number in self.numbers())

    def numbers(self) -> Iterator[int]:
        """The numbers of the remaining batches, for steps that select the batch themselves."""
        while self._position < len(self):
            self._draw_epoch()
            self._position += 1
            yield self._position - 1
        self._draw_epoch()  # advances the generators if all batches were taken before a restart
        self._states = [generator.get_state() for generator in self._generators]
        self._drawn, self._position = False, 0

    @property
    def batch_size(self) -> int:
        """Images in a full batch."""
        return self._batch_size

    def size(self, number: int) -> int:
        """Images in a batch; the last one may be smaller."""
        return min(self._batch_size, len(self._labels) - number * self._batch_size)

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
        return {"position": self._position, "order": order.clone(), "augmentation": augmentation.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state, also in another process; the arguments of the constructor must be the same."""
        states = [state["order"], state["augmentation"]]
        if any(new.numel() != old.numel() for new, old in zip(states, self._states, strict=True)):
            raise DataError(
                f"These batches were saved on another kind of device than {self._labels.device}, whose random numbers "
                "differ; resume on a device of the same kind, or start again."
            )
        for generator, saved in zip(self._generators, states, strict=True):
            generator.set_state(saved.cpu())
        self._states = [saved.cpu().clone() for saved in states]
        self._drawn, self._position = False, int(state["position"])

    def _draw_epoch(self) -> _Epoch:
        if self._epoch is None or not self._drawn:
            count, device = len(self._labels), self._labels.device
            order, augmentation = self._generators
            draws = draw(augmentation, count, padding=self._padding, flip=self._flip)
            new = _Epoch(torch.randperm(count, generator=order).to(device), draws.to(device))
            if self._epoch is None:
                self._epoch = new
            else:
                self._epoch.copy_(new)
            self._drawn = True
        return self._epoch

    def _part(self, number: int) -> slice:
        """This rank's share of a batch, in the order of the epoch."""
        first, share = number * self._batch_size, self._ranks.share(self.size(number))
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

    def __init__(
        self, images: Tensor, labels: Tensor, *, mean: Sequence[float], std: Sequence[float], **settings: Any
    ) -> None:
        _check_data(images, labels, mean, std)
        super().__init__(labels, shape=images.shape[1:], mean=mean, std=std, **settings)
        self._images, self._take = images, take

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """This rank's share of the batch of this epoch with this number."""
        return self.select(self._part(number))

    def select(self, part: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Images of this epoch by their position in its order: a slice, or a tensor of positions on the device."""
        order = self._draw_epoch().order
        select = self._take if isinstance(part, Tensor) else take
        return select(
            self._images,
            self._labels,
            order[part],
            self._draws_of(part),
            self._padding,
            self._mean,
            self._std,
        )

    def close(self) -> None:
        """There are none: the images are in memory."""

    def compile_(self) -> None:
        """Compile `select` by positions to one kernel instead of twenty, for captured steps."""
        self._take = torch.compile(take, dynamic=False)

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images once, in file order, normalized but not augmented."""
        return _in_order(self._images, self._labels, batch_size, self._mean, self._std)


def take(
    images: Tensor, labels: Tensor, chosen: Tensor, draws: Draws | None, padding: int, mean: Tensor, std: Tensor
) -> tuple[Tensor, Tensor]:
    """The chosen images, cropped and flipped as drawn, normalized, with their labels."""
    return augment(images.index_select(0, chosen), draws, padding, mean, std), labels.index_select(0, chosen)


def augment(batch: Tensor, draws: Draws | None, padding: int, mean: Tensor, std: Tensor) -> Tensor:
    """Images cropped and flipped as drawn, and normalized."""
    return normalize(batch if draws is None else crop_and_flip(batch, draws, padding), mean, std)


def in_order(
    images: Tensor, labels: Tensor, *, batch_size: int, mean: Sequence[float], std: Sequence[float]
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images once, in file order and normalized; the last batch may be smaller."""
    _check_data(images, labels, mean, std)
    return _in_order(images, labels, batch_size, _on_device(mean, images), _on_device(std, images))


def _in_order(
    images: Tensor, labels: Tensor, batch_size: int, mean: Tensor, std: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    _check_batches(len(labels), batch_size, drop_last=False)
    parts = (slice(start, start + batch_size) for start in range(0, len(labels), batch_size))
    return ((normalize(images[part], mean, std), labels[part]) for part in parts)


def _on_device(numbers: Sequence[float], images: Tensor) -> Tensor:
    return torch.tensor(list(numbers), dtype=torch.float32, device=images.device)


def _check_data(images: Tensor, labels: Tensor, mean: Sequence[float], std: Sequence[float]) -> None:
    if images.dim() < 2 or images.dtype not in (torch.uint8, torch.float32):
        raise DataError(
            f"Images must be uint8 or float32 of shape [N, C, ...]; got {images.dtype} of shape {list(images.shape)}."
        )
    if len(images) != len(labels) or images.device != labels.device:
        raise DataError(
            f"Each image needs a label on the same device; got {len(images)} images on {images.device} "
            f"and {len(labels)} labels on {labels.device}."
        )
    channels = images.shape[1]
    if any(len(numbers) not in (1, channels) for numbers in (mean, std)) or min(std) <= 0:
        raise OptionError(
            f"`mean` and `std` need one number, or one for each of the {channels} channels, "
            f"and `std` must be above 0; got {list(mean)} and {list(std)}."
        )


def _check_batches(count: int, batch_size: int, *, drop_last: bool) -> None:
    if not count:
        raise DataError("There are no images to make batches of.")
    if batch_size < 1:
        raise OptionError(f"`batch_size` must be at least 1; got {batch_size}.")
    if drop_last and count < batch_size:
        raise OptionError(
            f"{count} images do not fill one batch of {batch_size}: "
            f"make `batch_size` at most {count}, or pass drop_last=False."
        )


def _check_shares(count: int, batch_size: int, ranks: int, *, drop_last: bool) -> None:
    last = 0 if drop_last else count % batch_size
    if min(batch_size, last or batch_size) < ranks:
        raise OptionError(
            f"Each of {ranks} processes takes its share of a batch; of {count} images in batches of {batch_size} one "
            "has fewer; use fewer processes, another `batch_size`, or `drop_last`."
        )


def _check_augmentation(shape: Sequence[int], padding: int, flip: bool) -> None:
    if padding < 0:
        raise OptionError(f"`padding` is a number of pixels and must be at least 0; got {padding}.")
    if (padding or flip) and len(shape) != 3:
        raise OptionError(
            f"Only images of shape [C, H, W] can be cropped and flipped; got {list(shape)}. "
            "Pass padding=0 and flip=False."
        )
