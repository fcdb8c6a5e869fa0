"""`synthetic`: a learnable task of random patterns, for tests and timing; needs no files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hypersparse.data.dataset import Dataset, Progress, Split, channel_statistics
from hypersparse.options import option, options

PATCHES = 4  # a template is a grid of 4 x 4 patches of one colour, coarse enough to be recognizable after cropping
TEMPLATE = (64, 192)  # range of a template's colours
NOISE = (-64, 65)  # range of what is added to each pixel; the sum is always in 0..255


@options
class SyntheticOptions:
    """The number, size and classes of the images."""

    images: int = option(default=1024, help="Training images.", ge=1)
    test_images: int = option(default=256, help="Test images.", ge=1)
    size: int = option(default=32, help="Height and width of an image in pixels.", ge=1)
    channels: int = option(default=3, help="Channels of an image.", ge=1)
    classes: int = option(default=10, help="Number of classes.", ge=1)
    seed: int = option(default=0, help="Seed of the random numbers; each seed is another task.", ge=0)


def load(
    folders: Sequence[Path] = (), *, download: bool = False, progress: Progress | None = None, **values: Any
) -> Dataset:
    """Generate images: each is the random pattern of coloured patches of its class, plus noise.

    Only integer arithmetic is used, so the images are identical on every machine.
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
