"""The history of a run: the data from which its record is computed, one small file per epoch.

The intersection of an epoch's largest weights with the final mask needs the final mask. Until it is known, each epoch
stores its masks here, one bit per weight. Files are never rewritten, so checkpoints do not contain them. After a stop
the files of epochs that will be trained again are deleted.
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

    def write(self, epoch: int, content: Epoch, *, part: str = "") -> None:
        """Add a tree of numbers and tensors: an epoch, or its part `START`, which holds before its first step."""
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        save_tree(self._file(epoch, part), content)

    def read(self, epoch: int) -> Epoch | None:
        """The data of an epoch with its start; None if there is no file or it is damaged."""
        content = self._read(epoch)
        return None if content is None else {**(self._read(epoch, START) or {}), **content}

    def cut(self, epochs: int) -> None:
        """Forget all epochs but the first so many; the start of the next one stays."""
        for file in self.folder.glob("*.safetensors"):
            number, first = file.stem.removesuffix(START), epochs + file.stem.endswith(START)
            if number.isdigit() and int(number) >= first:
                file.unlink()

    def delete(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, epoch: int, part: str = "") -> Epoch | None:
        file = self._file(epoch, part)
        if not file.exists():
            return None
        try:
            return checked(load_tree(file), dict[str, Any], file)
        except RunError:
            log.warning("%s is damaged; the record will lack epoch %d.", file, epoch)
            return None

    def _file(self, epoch: int, part: str) -> Path:
        return self.folder / f"{epoch:04d}{part}.safetensors"


def pack_bits(bits: Tensor) -> Tensor:
    """Pack booleans into bytes on their device, eight in each; the last byte is padded with zeros.

    >>> pack_bits(torch.tensor([True, False, False, False, False, False, False, True, True]))
    tensor([129, 128], dtype=torch.uint8)
    """
    flat = bits.flatten().to(torch.uint8)
    rows = functional.pad(flat, (0, -flat.numel() % 8)).view(-1, 8)
    return (rows << _places(bits.device)).sum(dim=1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    """The inverse of `pack_bits`: the first `count` booleans.

    >>> unpack_bits(torch.tensor([129, 128], dtype=torch.uint8), 9).int().tolist()
    [1, 0, 0, 0, 0, 0, 0, 1, 1]
    """
    rows = (packed.unsqueeze(1) >> _places(packed.device)) & 1
    return rows.flatten()[:count].bool()


def nested_masks(magnitudes: Tensor, keeps: Sequence[int]) -> tuple[list[Tensor], Tensor]:
    """Packed masks of the `keeps` largest values of a vector, the longest first, and the smallest value of each.

    Each mask has bits only for the values that the one before it keeps.
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
