"""`synthetic`: a task made of random numbers that can be learned, for tests and timing: no files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics
from hypersparse.options import option, options

PATCHES = 4  # a template is a grid of 4 x 4 patches of one colour, coarse enough to survive cropping
TEMPLATE = (64, 192)  # range of a template's colours
NOISE = (-64, 65)  # range of what is added to each pixel; the sum is always in 0..255


@options
class SyntheticOptions:
    """How many images of what size."""

    images: int = option(default=1024, help="training images", ge=1)
    test_images: int = option(default=256, help="test images", ge=1)
    size: int = option(default=32, help="height and width of an image in pixels", ge=1)
    channels: int = option(default=3, help="channels of an image", ge=1)
    classes: int = option(default=10, help="number of classes", ge=1)
    seed: int = option(default=0, help="of the random numbers: another seed is another task", ge=0)


def load(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **values: Any
) -> Dataset:
    """Each class is a fixed random pattern of coloured patches; an image is its class's pattern plus noise.

    Whole numbers only, so the images are the same bits on every machine.
    """
    chosen = SyntheticOptions(**values)
    generator = torch.Generator().manual_seed(chosen.seed)
    grid = (chosen.classes, chosen.channels, PATCHES, PATCHES)
    patches = torch.randint(*TEMPLATE, grid, generator=generator, dtype=torch.int16)
    nearest = torch.arange(chosen.size) * PATCHES // chosen.size
    templates = patches[:, :, nearest][:, :, :, nearest]
    train = _noisy(templates, chosen.images, generator)
    test = _noisy(templates, chosen.test_images, generator)
    mean, std = channel_statistics(train.images)
    classes = tuple(f"class {number}" for number in range(chosen.classes))
    return Dataset("synthetic", train, test, classes, mean, std)


def _noisy(templates: Tensor, count: int, generator: torch.Generator) -> Split:
    labels = torch.arange(count)[torch.randperm(count, generator=generator)] % len(templates)
    noise = torch.randint(*NOISE, (count, *templates.shape[1:]), generator=generator, dtype=torch.int16)
    return Split((templates[labels] + noise).to(torch.uint8), labels)
