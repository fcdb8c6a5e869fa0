"""Crops, flips and normalisation against a slow reference that treats one image at a time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hypersparse.data.augment import Draws, crop_and_flip, draw, normalize

CPU = torch.device("cpu")


def slow_crop_and_flip(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """What torchvision's Pad, RandomCrop and RandomHorizontalFlip do, pixel by pixel."""
    height, width = images.shape[2:]
    result = torch.zeros_like(images)
    for number in range(len(images)):
        row, column, flip = draws.rows[number], draws.columns[number], draws.flips[number]
        for y in range(height):
            for x in range(width):
                source_y, source_x = y + row - padding, x + column - padding
                if 0 <= source_y < height and 0 <= source_x < width:
                    target = width - 1 - x if flip else x
                    result[number, :, y, target] = images[number, :, source_y, source_x]
    return result


@settings(max_examples=30, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    padding=st.integers(0, 4),
    flip=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_same_as_one_image_at_a_time(shape: tuple[int, int, int, int], padding: int, flip: bool, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(1, 256, shape, dtype=torch.uint8, generator=generator)
    draws = draw(generator, shape[0], padding=padding, flip=flip)
    result = crop_and_flip(images, draws, padding)
    assert result.dtype == torch.uint8
    assert torch.equal(result, slow_crop_and_flip(images, draws, padding))


def test_draws_are_uniform() -> None:
    draws = draw(torch.Generator().manual_seed(0), 9000, padding=4, flip=True)
    for places in (draws.rows, draws.columns):
        counts = places.bincount()
        assert len(counts) == 9
        assert (counts - 1000).abs().max() < 120
    assert abs(int(draws.flips.sum()) - 4500) < 150
    assert abs(torch.corrcoef(torch.stack((draws.rows, draws.columns)).float())[0, 1]) < 0.05


def test_without_padding_and_flips_images_do_not_change() -> None:
    images = torch.randint(0, 256, (5, 3, 4, 6), dtype=torch.uint8)
    draws = draw(torch.Generator(), 5, padding=0, flip=False)
    assert torch.equal(crop_and_flip(images, draws, 0), images)


def test_draws_can_be_sliced() -> None:
    draws = draw(torch.Generator(), 6, padding=2, flip=True)
    part = draws[2:5]
    assert torch.equal(part.rows, draws.rows[2:5])
    assert torch.equal(part.columns, draws.columns[2:5])
    assert torch.equal(part.flips, draws.flips[2:5])


def test_bytes_are_divided_by_255_before_normalisation() -> None:
    images = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8)
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2023, 0.1994, 0.2010])
    expected = (images / 255 - mean[:, None, None]) / std[:, None, None]
    result = normalize(images, mean, std)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 5), (4, 3, 5, 5)])
def test_floats_are_neither_rescaled_nor_changed_in_place(shape: tuple[int, ...]) -> None:
    values = torch.rand(shape)
    before = values.clone()
    result = normalize(values, torch.tensor([0.5]), torch.tensor([2.0]))
    torch.testing.assert_close(result, (values - 0.5) / 2)
    assert torch.equal(values, before)


@pytest.mark.gpu
def test_augmentation_can_be_captured_in_a_cuda_graph() -> None:
    device = torch.device("cuda")
    images = torch.randint(0, 256, (8, 3, 16, 16), dtype=torch.uint8, device=device)
    draws = draw(torch.Generator(device), 8, padding=4, flip=True)
    mean = std = torch.full((3,), 0.5, device=device)
    expected = normalize(crop_and_flip(images, draws, 4), mean, std)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = normalize(crop_and_flip(images, draws, 4), mean, std)
    graph.replay()
    assert torch.equal(captured, expected)
