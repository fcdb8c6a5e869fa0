"""The history of a run: what its record will be made of, one small file an epoch.

How much an epoch's largest weights have in common with the final mask can only be said when that mask is known. Until
then every epoch leaves its masks here, one bit a weight. A file is never written again, so nothing of it is in the
checkpoint; after a stop the epochs that will be trained again are forgotten.
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from hypersparse.errors import RunError
from hypersparse.sparsity.mask import Mask
from hypersparse.storage.checkpoint import load_tree, save_tree
from hypersparse.storage.files import writing
from hypersparse.storage.schemas import checked

Epoch = dict[str, Any]
START = "-start"  # ends the name of a file of what holds before an epoch's first step
log = logging.getLogger("hypersparse")


class History:
    """The epochs in a folder, by number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, epoch: int, content: Epoch) -> None:
        """Add an epoch: a tree of numbers and tensors."""
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        save_tree(self._file(epoch), content)

    def write_start(self, epoch: int, content: Epoch) -> None:
        """Add what holds before the first step of an epoch; reading the epoch returns it too."""
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        save_tree(self._start_file(epoch), content)

    def read(self, epoch: int) -> Epoch | None:
        """What an epoch left; None where it left nothing, or nothing that can be read."""
        content = self._read(self._file(epoch), epoch)
        return None if content is None else {**(self._read(self._start_file(epoch), epoch) or {}), **content}

    def cut(self, epochs: int) -> None:
        """Forget all epochs but the first so many; the start of the next one stays."""
        for file in self.folder.glob("*.safetensors"):
            number, first = file.stem.removesuffix(START), epochs + file.stem.endswith(START)
            if number.isdigit() and int(number) >= first:
                file.unlink()

    def delete(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, file: Path, epoch: int) -> Epoch | None:
        if not file.exists():
            return None
        try:
            return checked(load_tree(file), dict[str, Any], file)
        except RunError:
            log.warning("%s is damaged; the record will lack epoch %d.", file, epoch)
            return None

    def _file(self, epoch: int) -> Path:
        return self.folder / f"{epoch:04d}.safetensors"

    def _start_file(self, epoch: int) -> Path:
        return self.folder / f"{epoch:04d}{START}.safetensors"


def pack_bits(bits: Tensor) -> Tensor:
    """Booleans as bytes, eight in each, on the device they are on; the last byte is filled up with zeros.

    >>> pack_bits(torch.tensor([True, False, False, False, False, False, False, True, True]))
    tensor([129, 128], dtype=torch.uint8)
    """
    flat = bits.flatten().to(torch.uint8)
    rows = functional.pad(flat, (0, -flat.numel() % 8)).view(-1, 8)
    return (rows << _places(bits.device)).sum(dim=1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The first `count` booleans of what `pack_bits` made.

    >>> unpack_bits(torch.tensor([129, 128], dtype=torch.uint8), 9).int().tolist()
    [1, 0, 0, 0, 0, 0, 0, 1, 1]
    """
    rows = (packed.unsqueeze(1) >> _places(packed.device)) & 1
    return rows.flatten()[:count].bool()


def nested_masks(magnitudes: Tensor, keeps: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """The masks of the `keeps` largest of a vector, the longest first, and the smallest that each of them keeps.

    They are packed, and each has bits only for what the one before it keeps: together little more than the first one.
    """
    packed, smallest = [], []
    for keep in keeps:
        chosen = Mask.top({"all": magnitudes}, keep)["all"]
        packed.append(pack_bits(chosen))
        magnitudes = magnitudes[chosen]
        smallest.append(magnitudes.min())
    return packed, torch.stack(smallest)


def innermost(packed: Sequence[Tensor], total: int) -> Tensor:
    """The last of nested masks, as `total` booleans."""
    mask = torch.ones(total, dtype=torch.bool, device=packed[0].device)
    for bits in packed:
        inner = mask.clone()
        inner[mask] = unpack_bits(bits, int(mask.sum()))
        mask = inner
    return mask


def _places(device: torch.device) -> Tensor:
    return torch.arange(7, -1, -1, dtype=torch.uint8, device=device)
