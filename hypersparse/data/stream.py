"""Images that are read batch by batch, by worker processes that are a few batches ahead of the training."""

import hashlib
import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hypersparse.data.augment import normalize
from hypersparse.data.batches import ShuffledBatches, augment
from hypersparse.data.dataset import AnySplit
from hypersparse.errors import DataError

BatchRequest = tuple[Tensor, str | None]  # the positions of a batch in its split, and the seed of random crops


class StreamedBatches(ShuffledBatches):
    """Batches of images that are not kept on the device.

    They have the same order and augmentation as `Batches`, with any number of workers. The random crop of an encoded
    image follows from the state of the generators at the start of the epoch and from the image's position.
    """

    def __init__(self, split: AnySplit, device: torch.device, *, workers: int, **settings: Any) -> None:
        super().__init__(split.labels.to(device), shape=split.shape, **settings)
        self._split, self._workers = split, workers
        self._random_crop = getattr(split, "random_crop", False)
        self._stream: Iterator[Tensor] | None = None
        self._next = 0  # the batch that the stream gives next

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        """This rank's share of the batch with this number; reading in order is fast."""
        if self._stream is None or number != self._next or not self._drawn:
            self._stream = read_batches(self._split, self._asked(number), self._labels.device, workers=self._workers)
        part = self._part(number)
        images = augment(next(self._stream), self._draws_of(part), self._padding, self._mean, self._std)
        self._next = number + 1
        if self._next == len(self):
            self.close()
        return images, self._labels.index_select(0, self._draw_epoch().order[part])

    def in_order(self, batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        return read_in_order(
            self._split, self._labels, self._mean, self._std, batch_size=batch_size, workers=self._workers
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.close()

    def close(self) -> None:
        """End the workers; they are started again when they are needed."""
        self._stream = None

    def _asked(self, first: int) -> list[BatchRequest]:
        order = self._draw_epoch().order.cpu()
        seed = hashlib.sha256(self._states[1].numpy().tobytes()).hexdigest() if self._random_crop else None
        return [(order[self._part(number)], seed) for number in range(first, len(self))]


def read_in_order(
    split: AnySplit, labels: Tensor, mean: Tensor, std: Tensor, *, batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """All images of a split once, in their order and normalized, on the device of `labels`, `mean` and `std`."""
    parts = torch.split(torch.arange(len(split)), batch_size)
    streamed = read_batches(split, [(part, None) for part in parts], labels.device, workers=workers)
    for images, batch_labels in zip(streamed, torch.split(labels, batch_size), strict=True):
        yield normalize(images, mean, std), batch_labels


def read_batches(
    split: AnySplit, asked: Sequence[BatchRequest], device: torch.device, *, workers: int
) -> Iterator[Tensor]:
    """The images of every batch that is asked for, in that order, as they are and on the device."""
    if multiprocessing.current_process().daemon:
        workers = 0  # such a process may have no children
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")  # more workers than cores suit slow disks
        loader: DataLoader[Any] = DataLoader(
            _Reader(split),  # type: ignore[arg-type]  # a map of batches, not of samples
            sampler=asked,
            batch_size=None,
            num_workers=min(workers, len(asked)),
            pin_memory=device.type == "cuda",
            worker_init_fn=_leave_the_terminal if workers else None,
            generator=torch.Generator(),  # the default one belongs to the network
        )
        read: Iterator[Tensor | DataError] = iter(loader)  # starts the workers
    try:
        for batch in read:
            if isinstance(batch, DataError):
                raise batch
            yield batch.to(device, non_blocking=True)
    except (RuntimeError, ConnectionError, EOFError) as error:  # a worker that ends while it hands over a batch
        if type(error) is RuntimeError and "DataLoader worker" not in str(error):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(
            f"A process that decodes images ended ({reason}); there may be too little memory: pass fewer --workers."
        ) from error
    finally:
        del read  # ends the workers, whoever keeps the error


class _Reader:
    """Reads batches in a worker process."""

    def __init__(self, split: AnySplit) -> None:
        self._split = split

    def __getitem__(self, asked: BatchRequest) -> Tensor | DataError:
        try:
            return self._split.read(*asked)
        except DataError as error:
            return error  # raised there, its message would begin with a traceback


def _leave_the_terminal(worker: int) -> None:
    """A terminal sends its signals to a group of processes; the one that trains decides when the workers end."""
    os.setpgrp()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # which ends them when this program does
