"""Bits, nested masks, and the files they are kept in."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from hypersparse.sparsity.mask import Mask
from hypersparse.storage.checkpoint import save_tree
from hypersparse.storage.history import History, innermost, nested_masks, pack_bits, unpack_bits

EIGHT = torch.tensor([8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0])


def booleans(count: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(count)) < 0.3


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 1001])
def test_bits_are_packed_as_numpy_does_and_come_back(count: int) -> None:
    bits = booleans(count)
    packed = pack_bits(bits)
    assert packed.tolist() == np.packbits(bits.numpy()).tolist()
    assert torch.equal(unpack_bits(packed, count), bits)


def test_each_of_nested_masks_has_bits_only_for_what_the_one_before_keeps() -> None:
    packed, smallest = nested_masks(EIGHT, [4, 2, 1])
    assert [bits.tolist() for bits in packed] == [[0b10101010], [0b11000000], [0b10000000]]
    assert smallest.tolist() == [5.0, 7.0, 8.0]
    assert innermost(packed[:1], 8).int().tolist() == [1, 0, 1, 0, 1, 0, 1, 0]
    assert innermost(packed[:2], 8).int().tolist() == [1, 0, 1, 0, 0, 0, 0, 0]
    assert innermost(packed, 8).int().tolist() == [1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("distinct", [2, 5, 1000])
def test_nested_masks_are_the_masks_one_would_make_alone_also_with_ties(distinct: int) -> None:
    values = torch.randint(distinct, (300,), generator=torch.Generator().manual_seed(1)).float()
    keeps = [300, 120, 120, 31, 2, 1]
    packed, smallest = nested_masks(values, keeps)
    for number, keep in enumerate(keeps):
        mask = innermost(packed[: number + 1], 300)
        assert torch.equal(mask, Mask.top({"a": values}, keep)["a"])
        assert smallest[number] == values[mask].min()


def test_six_sparsities_take_little_more_than_a_bit_a_weight() -> None:
    packed, _ = nested_masks(torch.arange(100_000.0), [10_000, 5_000, 2_000, 1_000, 500, 200])
    assert sum(len(bits) for bits in packed) < 1.2 * 100_000 / 8


def test_epochs_are_kept_cut_and_deleted(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    history.cut(0)
    history.delete()
    for number in range(4):
        history.write(number, {"number": number, "bits": torch.tensor([number], dtype=torch.uint8), "none": None})
    (history.folder / "notes.safetensors").write_text("not ours")
    history.cut(2)
    assert history.read(1) == {"number": 1, "bits": torch.tensor([1], dtype=torch.uint8), "none": None}
    assert history.read(2) is None
    history.delete()
    assert not history.folder.exists()


def test_a_damaged_epoch_counts_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    history = History(tmp_path)
    history.write(3, {"bits": torch.zeros(100)})
    file = tmp_path / "0003.safetensors"
    file.write_bytes(file.read_bytes()[:50])
    assert history.read(3) is None
    assert "the record will lack epoch 3" in caplog.text
    save_tree(file, ["no", "table"])  # type: ignore[arg-type]
    assert history.read(3) is None


@pytest.mark.gpu
def test_the_gpu_packs_the_same_bits() -> None:
    values = torch.randn(100_001, generator=torch.Generator().manual_seed(0)).abs()
    here, smallest = nested_masks(values, [10_000, 500])
    there, also = nested_masks(values.cuda(), [10_000, 500])
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here, there, strict=True))
    assert torch.equal(smallest, also.cpu())
    assert torch.equal(innermost(there, 100_001).cpu(), innermost(here, 100_001))
