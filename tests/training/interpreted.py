"""Runs the convolution kernel as plain Python, in a process of its own: Triton decides when a kernel is defined.

Prints the kernel's relative error for each case, as JSON. Numbers are float32: Triton 3.6 takes bf16 for integers here.
"""

import json
import os
from dataclasses import replace
from typing import Any

import torch

from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, tiling_of
from hypersparse.training.kernels.convolution import plain_weight_gradient

SHAPES = {
    "first stage": Convolution(2, 32, 32, 8, 8, 3, 1, 1),
    "into the second": Convolution(2, 32, 64, 8, 8, 3, 2, 1),
    "around it": Convolution(2, 32, 64, 8, 8, 1, 2, 0),
    "second stage": Convolution(2, 64, 64, 6, 6, 3, 1, 1),
    "into the third": Convolution(2, 64, 128, 6, 6, 3, 2, 1),
    "around that": Convolution(2, 64, 128, 6, 6, 1, 2, 0),
    "third stage": Convolution(3, 128, 128, 4, 4, 3, 1, 1),
    "odd sides": Convolution(3, 32, 32, 7, 5, 3, 1, 1),
    "odd sides, stride 2": Convolution(3, 32, 32, 7, 5, 3, 2, 1),
    "no padding": Convolution(2, 16, 48, 7, 5, 3, 1, 0),
    "padding around 1x1": Convolution(2, 16, 16, 5, 4, 1, 1, 1),
    "a pixel": Convolution(2, 16, 16, 1, 1, 3, 1, 1),
}
SMALL = Tiling(16, 16, 3, block=16, shares=4, warps=1, stages=1)
UNEVEN = Convolution(3, 32, 32, 7, 6, 3, 1, 1)  # 126 pixels: 8 blocks, the last of 14; 4 shares
LARGE = Convolution(3, 32, 32, 15, 14, 3, 1, 1)  # 630 pixels: 40 blocks
TILINGS = {
    "all taps": replace(SMALL, taps=9),
    "a tap": replace(SMALL, taps=1),
    "wide": replace(SMALL, channels=32),
    "tall": replace(SMALL, filters=32),
}


def error(convolution: Convolution, tiling: Tiling) -> float:
    """Of the kernel against its twin, relative to the largest number."""
    from hypersparse.training.kernels import conv_kernel

    sides, outs = (convolution.height, convolution.width), (convolution.out_height, convolution.out_width)
    images = torch.randn(convolution.batch, convolution.channels, *sides)
    gradients = torch.randn(convolution.batch, convolution.filters, *outs)
    found = conv_kernel.weight_gradient(images, gradients, convolution, tiling)
    assert found.is_contiguous(memory_format=torch.channels_last)
    expected = plain_weight_gradient(images, gradients, convolution.side, convolution.stride, convolution.padding)
    return float((found - expected).abs().max() / expected.abs().max())


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    from hypersparse.training.kernels import conv_kernel

    patch_tensors = interpreter._patch_lang_tensor

    def patch_and_count(tensor: Any, scope: Any) -> None:
        """Triton's own way to make a loop's length of a tensor fails with numpy 2.5."""
        patch_tensors(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_and_count
    conv_kernel.WEIGHTS = 256  # fewer programs, which take 2 ms each
    torch.manual_seed(0)
    errors = {name: error(shape, tiling_of(shape)) for name, shape in SHAPES.items()}
    errors |= {name: error(UNEVEN, tiling) for name, tiling in TILINGS.items()}
    errors["more shares than are added at once"] = error(LARGE, replace(SMALL, filters=32, channels=32, shares=40))
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
