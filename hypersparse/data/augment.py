"""Random crops and flips of whole batches; drawing random numbers and applying them are separate functions.

All functions run on the device of their tensors without synchronization.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True)
class Draws:
    """Crop positions (int64) and flips (bool), one of each per image."""

    rows: Tensor  # first row of the crop in the padded image, 0 to 2 * padding
    columns: Tensor  # first column of the crop in the padded image, 0 to 2 * padding
    flips: Tensor  # True: mirrored left to right after the crop

    def __getitem__(self, part: slice | Tensor) -> "Draws":
        """The draws of some of the images."""
        return Draws(self.rows[part], self.columns[part], self.flips[part])

    def to(self, device: torch.device) -> "Draws":
        """The same draws on another device."""
        return Draws(self.rows.to(device), self.columns.to(device), self.flips.to(device))


def draw(generator: torch.Generator, count: int, *, padding: int, flip: bool) -> Draws:
    """Draw random crops for `count` images, and flips with probability 1/2 if `flip`.

    The draws are on the generator's device. Its state advances equally for all values of `padding` and `flip`.
    """
    rows = torch.randint(2 * padding + 1, (count,), generator=generator, device=generator.device)
    columns = torch.randint(2 * padding + 1, (count,), generator=generator, device=generator.device)
    flips = torch.randint(2, (count,), generator=generator, device=generator.device)
    return Draws(rows, columns, (flips if flip else torch.zeros_like(flips)).bool())


def crop_and_flip(images: Tensor, draws: Draws, padding: int) -> Tensor:
    """Pad each image with `padding` black pixels, crop it to its original size, and flip it where drawn.

    `images` [N, C, H, W] of any type; the result has the same shape and type.

    >>> image = torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8)
    >>> up_and_mirrored = Draws(torch.tensor([2]), torch.tensor([1]), torch.tensor([True]))
    >>> crop_and_flip(image, up_and_mirrored, 1).tolist()
    [[[[4, 3], [0, 0]]]]
    """
    count, channels, height, width = images.shape
    padded = pad(images, (padding, padding, padding, padding))
    across = torch.arange(width, device=images.device)
    across = torch.where(draws.flips[:, None], width - 1 - across, across)
    columns = draws.columns[:, None] + across
    rows = draws.rows[:, None] + torch.arange(height, device=images.device)
    # One index per pixel, shared by the channels: 5 times as fast on a CPU as indexing all four dimensions.
    pixels = (rows * padded.shape[3])[:, :, None] + columns[:, None, :]
    pixels = pixels.reshape(count, 1, height * width).expand(count, channels, height * width)
    return padded.reshape(count, channels, -1).gather(2, pixels).reshape(images.shape)


def normalize(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Subtract `mean` and divide by `std` (one number, or one per channel); returns float32 images.

    uint8 images are first divided by 255, so that `mean` and `std` refer to values in [0, 1];
    float images are not rescaled. `images` [N, C, ...].

    >>> normalize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), torch.tensor([0.5]), torch.tensor([0.25]))
    tensor([[[[-2.,  2.]]]])
    """
    shape = (-1,) + (1,) * (images.dim() - 2)
    # Scaling `mean` and `std` instead of the images takes two passes over the batch instead of three.
    scale = 255.0 if images.dtype == torch.uint8 else 1.0
    floats = images.to(torch.float32, copy=True)
    return floats.sub_((mean * scale).reshape(shape)).div_((std * scale).reshape(shape))
