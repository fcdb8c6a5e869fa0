"""Residual networks for small images, at twice the usual width.

Reference: He et al., "Deep residual learning for image recognition", CVPR 2016.
"""

from torch import Tensor, nn
from torch.nn.functional import relu

from hypersparse.models.arguments import blocks_per_stage, image_shape, positive
from hypersparse.models.initialization import initialize_


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut around them."""

    def __init__(self, channels: int, width: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        # Registered after conv2: the order determines the layer index in the paper's figure 3.
        self.downsample = nn.Identity() if stride == 1 and channels == width else _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(out)) + self.downsample(x))


def _shortcut(channels: int, width: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width))


def _stage(channels: int, width: int, *, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(channels, width, stride=stride)
    return nn.Sequential(first, *(BasicBlock(width, width, stride=1) for _ in range(blocks - 1)))


class ResNet(nn.Module):
    """A convolution, three stages of blocks, global average pooling and a linear layer."""

    def __init__(self, blocks: int, width: int, *, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, blocks=blocks, stride=1)
        self.layer2 = _stage(width, 2 * width, blocks=blocks, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, blocks=blocks, stride=2)
        self.linear = nn.Linear(4 * width, classes)
        initialize_(self, fan="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        out = relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        logits: Tensor = self.linear(out.mean(dim=(2, 3)))
        return logits


def resnet(depth: int, width: int = 32, *, shape: tuple[int, ...], classes: int) -> ResNet:
    """A residual network of `depth` = 6 n + 2 layers whose first stage has `width` channels.

    `shape` is (channels, height, width) of an image; height and width are arbitrary. A depth of 32 is the ResNet of the
    HyperSparse paper, with 1.9 million weights.

    >>> model = resnet(8, width=4, shape=(1, 8, 8), classes=10)
    >>> sum(parameter.numel() for parameter in model.parameters())
    5142
    """
    channels, _, _ = image_shape(f"resnet{depth}", shape)
    blocks = blocks_per_stage("resnet", depth, extra=2)
    return ResNet(blocks, positive("width", width), channels=channels, classes=classes)
