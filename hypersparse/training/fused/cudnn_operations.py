"""`CudnnOperations`: a fused network whose large convolutions are cuDNN's, on the same tensors.

cuDNN takes [runs, N, H, W, C] as images in the channels-last layout: nothing is copied but the gradients of weights,
into float32. Fused kernels compute everything between two such convolutions.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hypersparse.training.fused.operations import Norm, Normed, Operations, Sums
from hypersparse.training.fused.tilings import fuses
from hypersparse.training.kernels.conv_tiling import Convolution

# Whether cuDNN times its algorithms. Each thread times its own, so concurrent runs may get other bits.
TIMED = False
_SWITCHES = threading.Lock()  # they are the process's


class CudnnOperations:
    """Convolutions that `fuses` leaves to cuDNN, and the operations of `fused` for all others and for norms."""

    def __init__(self, fused: Operations) -> None:
        self._fused = fused
        self.tile_moments, self.activate = fused.tile_moments, fused.activate
        self.relu_gradient, self.norm_gradient = fused.relu_gradient, fused.norm_gradient

    def conv(self, convolution: Convolution, images: Tensor, weights: Tensor, norm: Norm) -> Normed:
        """A convolution, with the sums for its batch norm."""
        if fuses(convolution):
            return self._fused.conv(convolution, images, weights, norm)
        values = _convolve(convolution, images, weights, transposed=False)
        return Normed(norm, values, *self.tile_moments(values))

    def conv_data_gradient(
        self, convolution: Convolution, gradients: Tensor, weights: Tensor, skip: Tensor | None
    ) -> Tensor:
        """The gradients of the images of a convolution, plus `skip`."""
        if fuses(convolution):
            return self._fused.conv_data_gradient(convolution, gradients, weights, skip)
        results = _convolve(convolution, gradients, weights, transposed=True)
        return results if skip is None else results.add_(skip)

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
        if fuses(convolution):
            return self._fused.conv_relu_gradient(convolution, gradients, weights, skip, activations, first, second)
        results = self.conv_data_gradient(convolution, gradients, weights, skip)
        return self.relu_gradient(results, activations, first, second, pool=1)

    def conv_weight_gradient_(
        self, convolution: Convolution, images: Tensor, gradients: Tensor, results: Tensor
    ) -> None:
        """Write the gradients of the weights [runs, K, S, S, C]."""
        if fuses(convolution):
            self._fused.conv_weight_gradient_(convolution, images, gradients, results)
            return
        side = convolution.side
        # Only its shape and type are read.
        weights = images.new_empty(convolution.filters, side, side, convolution.channels)
        for image, gradient, result in zip(images, gradients, results, strict=True):
            with _same_algorithms():
                _, made, _ = torch.ops.aten.convolution_backward(
                    _channels_first(gradient),
                    _channels_first(image),
                    _channels_first(weights),
                    None,
                    **_options(convolution),
                    transposed=False,
                    output_padding=[0, 0],
                    output_mask=[False, True, False],
                )
            result.copy_(made.movedim(1, -1))


def _convolve(convolution: Convolution, images: Tensor, weights: Tensor, *, transposed: bool) -> Tensor:
    """A convolution of images [runs, N, H, W, C], or the gradient of images from that of the outputs."""
    odd = [0, 0]
    if transposed:  # rows and columns at the end that no filter reached
        c = convolution
        odd = [(side + 2 * c.padding - c.side) % c.stride for side in (c.height, c.width)]
    made = []
    for image, weight in zip(images, weights, strict=True):
        with _same_algorithms():
            values = torch.ops.aten.convolution(
                _channels_first(image),
                _channels_first(weight),
                None,
                **_options(convolution),
                transposed=transposed,
                output_padding=odd,
            )
        made.append(values.movedim(1, -1))
    return (made[0][None] if len(made) == 1 else torch.stack(made)).contiguous()  # that of a single run is not copied


def _options(convolution: Convolution) -> dict[str, Any]:
    stride, padding = convolution.stride, convolution.padding
    return {"stride": [stride, stride], "padding": [padding, padding], "dilation": [1, 1], "groups": 1}


def _channels_first(values: Tensor) -> Tensor:
    return values.movedim(-1, 1)


@contextmanager
def _same_algorithms() -> Iterator[None]:
    """Let cuDNN choose among deterministic algorithms, by its rules for a shape and not by timing."""
    cudnn = torch.backends.cudnn
    with _SWITCHES:
        before = cudnn.benchmark, cudnn.deterministic
        cudnn.benchmark, cudnn.deterministic = TIMED, True
        try:
            yield
        finally:
            cudnn.benchmark, cudnn.deterministic = before
