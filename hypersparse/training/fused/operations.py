"""The operations of a fused network, in plain PyTorch: what the Triton kernels compute, for tests and other devices.

All tensors have a leading axis of runs. Images and activations are [runs, N, H, W, C], weights [runs, K, S, S, C].
Arithmetic is in float32; results have the type of the images.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional, grad

from hypersparse.training.kernels.conv_tiling import Convolution


@dataclass(frozen=True)
class Norm:
    """A batch norm of every run: its parameters, statistics and gradients [runs, C], and what a step saves."""

    scales: Tensor
    shifts: Tensor
    means: Tensor
    variances: Tensor
    bias: Tensor | None  # of the convolution before it, which only moves the mean
    scale_gradients: Tensor
    shift_gradients: Tensor
    saved: Tensor  # [runs, 2, C]: mean and inverse standard deviation of the batch
    momentum: float
    epsilon: float


@dataclass(frozen=True)
class Normed:
    """The output of a convolution, its sums by tiles of `count` pixels, and the batch norm that takes it."""

    norm: Norm
    values: Tensor  # [runs, N, H, W, C]
    moments: Tensor  # [runs, tiles, 2, C]: the mean of each tile, and the sum of squares around it
    count: int


@dataclass(frozen=True)
class Sums:
    """Gradients before a ReLU, and their sums by tiles: alone, and times each normalized input of the ReLU."""

    gradients: Tensor  # [runs, N, H, W, C]
    tiles: Tensor  # [runs, tiles, 1 + norms, C]


class Operations(Protocol):
    """What a fused network needs; `PlainOperations` defines the results."""

    def conv(self, convolution: Convolution, images: Tensor, weights: Tensor, norm: Norm) -> Normed:
        """A convolution, with the sums for its batch norm."""

    def tile_moments(self, values: Tensor) -> tuple[Tensor, int]:
        """The `moments` and the `count` of the output of a convolution."""

    def activate(self, first: Normed, second: Normed | None, shortcut: Tensor | None, *, pool: int) -> Tensor:
        """The ReLU of the normed values, plus others or a shortcut; updates the norms' statistics."""

    def relu_gradient(
        self, gradients: Tensor, activations: Tensor, first: Normed, second: Normed | None, *, pool: int
    ) -> Sums:
        """The gradients before the ReLU from those after it."""

    def norm_gradient(self, sums: Sums, normed: Normed, *, number: int) -> Tensor:
        """The gradients of a convolution's output; sets the gradients of its norm, the first or second of the ReLU."""

    def conv_data_gradient(
        self, convolution: Convolution, gradients: Tensor, weights: Tensor, skip: Tensor | None
    ) -> Tensor:
        """The gradients of the images of a convolution, plus `skip`."""

    def conv_relu_gradient(
        self,
        convolution: Convolution,
        gradients: Tensor,
        weights: Tensor,
        skip: Tensor | None,
        activations: Tensor,
        first: Normed,
        second: Normed | None,
    ) -> Sums:
        """`conv_data_gradient`, then `relu_gradient` without pooling."""

    def conv_weight_gradient_(
        self, convolution: Convolution, images: Tensor, gradients: Tensor, results: Tensor
    ) -> None:
        """Write the gradients of the weights [runs, K, S, S, C]."""


class PlainOperations:
    """The operations in plain PyTorch."""

    def conv(self, convolution: Convolution, images: Tensor, weights: Tensor, norm: Norm) -> Normed:
        made = [
            functional.conv2d(
                _channels_first(image), _channels_first(weight), stride=convolution.stride, padding=convolution.padding
            )
            for image, weight in zip(images.float(), weights.float(), strict=True)
        ]
        values = _channels_last(torch.stack(made)).to(images.dtype)
        return Normed(norm, values, *self.tile_moments(values))

    def tile_moments(self, values: Tensor) -> tuple[Tensor, int]:
        """The `moments` and the `count` of the output of a convolution."""
        pixels = values.float().flatten(1, 3)
        mean = pixels.mean(1)
        squares = (pixels - mean[:, None]).square().sum(1)
        return torch.stack([mean, squares], 1)[:, None], pixels.shape[1]

    def activate(self, first: Normed, second: Normed | None, shortcut: Tensor | None, *, pool: int) -> Tensor:
        value = _normalize_(first)
        if second is not None:
            value = value + _normalize_(second)
        if shortcut is not None:
            value = value + shortcut.float()
        return _pooled(value.relu(), pool).to(first.values.dtype)

    def relu_gradient(
        self, gradients: Tensor, activations: Tensor, first: Normed, second: Normed | None, *, pool: int
    ) -> Sums:
        before = gradients.float()
        if pool == 1:
            before = before * (activations > 0)
        else:
            with torch.enable_grad():
                affine = _affine(first).requires_grad_()
                (before,) = torch.autograd.grad(_pooled(affine.relu(), pool), affine, before)
        before = before.to(gradients.dtype)
        rounded = before.float()
        inputs = [_normalized(each) for each in (first, second) if each is not None]
        sums = [rounded, *(rounded * each for each in inputs)]
        return Sums(before, torch.stack([each.sum((1, 2, 3)) for each in sums], 1)[:, None])

    def norm_gradient(self, sums: Sums, normed: Normed, *, number: int) -> Tensor:
        norm, totals = normed.norm, sums.tiles.sum(1)
        total, product = totals[:, 0], totals[:, number]
        norm.shift_gradients.copy_(total)
        norm.scale_gradients.copy_(product)
        pixels = normed.values[0, ..., 0].numel()
        centered = sums.gradients.float() - _spread(total / pixels) - _normalized(normed) * _spread(product / pixels)
        return (centered * _spread(norm.scales * norm.saved[:, 1])).to(normed.values.dtype)

    def conv_data_gradient(
        self, convolution: Convolution, gradients: Tensor, weights: Tensor, skip: Tensor | None
    ) -> Tensor:
        shape = (convolution.batch, convolution.channels, convolution.height, convolution.width)
        made = [
            grad.conv2d_input(  # type: ignore[no-untyped-call]
                shape,
                _channels_first(weight),
                _channels_first(gradient),
                stride=convolution.stride,
                padding=convolution.padding,
            )
            for gradient, weight in zip(gradients.float(), weights.float(), strict=True)
        ]
        result = _channels_last(torch.stack(made))
        return (result if skip is None else result + skip.float()).to(gradients.dtype)

    def conv_relu_gradient(
        self,
        convolution: Convolution,
        gradients: Tensor,
        weights: Tensor,
        skip: Tensor | None,
        activations: Tensor,
        first: Normed,
        second: Normed | None,
    ) -> Sums:
        result = self.conv_data_gradient(convolution, gradients, weights, skip)
        return self.relu_gradient(result, activations, first, second, pool=1)

    def conv_weight_gradient_(
        self, convolution: Convolution, images: Tensor, gradients: Tensor, results: Tensor
    ) -> None:
        shape = (convolution.filters, convolution.channels, convolution.side, convolution.side)
        for image, gradient, result in zip(images.float(), gradients.float(), results, strict=True):
            made = grad.conv2d_weight(  # type: ignore[no-untyped-call]
                _channels_first(image),
                shape,
                _channels_first(gradient),
                stride=convolution.stride,
                padding=convolution.padding,
            )
            result.copy_(_channels_last(made))


def _channels_first(values: Tensor) -> Tensor:
    return values.movedim(-1, -3)


def _channels_last(values: Tensor) -> Tensor:
    return values.movedim(-3, -1).contiguous()


def _spread(values: Tensor) -> Tensor:
    return values[:, None, None, None]


def _normalize_(normed: Normed) -> Tensor:
    """Normalize by the batch's statistics, and update those of the norm."""
    norm, (mean, squares) = normed.norm, normed.moments.unbind(2)
    count = normed.count * mean.shape[1]
    variance = (squares.sum(1) + normed.count * (mean - mean.mean(1, keepdim=True)).square().sum(1)) / count
    mean = mean.mean(1)
    norm.saved.copy_(torch.stack([mean, (variance + norm.epsilon).rsqrt()], 1))
    norm.means.lerp_(mean if norm.bias is None else mean + norm.bias, norm.momentum)
    norm.variances.lerp_(variance * (count / (count - 1)), norm.momentum)
    return _affine(normed)


def _normalized(normed: Normed) -> Tensor:
    mean, inverse = normed.norm.saved.unbind(1)
    return (normed.values.float() - _spread(mean)) * _spread(inverse)


def _affine(normed: Normed) -> Tensor:
    return _normalized(normed) * _spread(normed.norm.scales) + _spread(normed.norm.shifts)


def _pooled(values: Tensor, pool: int) -> Tensor:
    if pool == 1:
        return values
    pooled = functional.max_pool2d(_channels_first(values).flatten(0, 1), pool)
    return _channels_last(pooled.view(*values.shape[:2], *pooled.shape[1:]))
