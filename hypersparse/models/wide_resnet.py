"""Wide residual networks; the default is WRN-22-2, used for CIFAR in the RigL paper.

Reference: Zagoruyko and Komodakis, "Wide residual networks", BMVC 2016.
"""

from torch import Tensor, nn
from torch.nn.functional import relu

from hypersparse.errors import OptionError
from hypersparse.models.arguments import blocks_per_stage, image_shape, positive
from hypersparse.models.initialization import initialize_

FIRST_WIDTH = 16  # channels of the first convolution, independent of the factor


class WideBlock(nn.Module):
    """Batch norm and ReLU before each of two 3x3 convolutions, and a shortcut around them."""

    def __init__(self, channels: int, width: int, *, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.changes_size = stride != 1 or channels != width
        if self.changes_size:
            self.downsample = nn.Conv2d(channels, width, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = relu(self.bn1(x))
        out = self.conv2(self.dropout(relu(self.bn2(self.conv1(active)))))
        # A shortcut convolution reads the output of batch norm and ReLU; the identity reads their input.
        total: Tensor = out + (self.downsample(active) if self.changes_size else x)
        return total


def _stage(channels: int, width: int, *, blocks: int, stride: int, dropout: float) -> nn.Sequential:
    first = WideBlock(channels, width, stride=stride, dropout=dropout)
    return nn.Sequential(first, *(WideBlock(width, width, stride=1, dropout=dropout) for _ in range(blocks - 1)))


class WideResNet(nn.Module):
    """A convolution, three stages of blocks, batch norm, global average pooling and a linear layer."""

    def __init__(self, blocks: int, factor: int, *, dropout: float, channels: int, classes: int) -> None:
        super().__init__()
        width = FIRST_WIDTH * factor
        self.conv1 = nn.Conv2d(channels, FIRST_WIDTH, 3, padding=1, bias=False)
        self.layer1 = _stage(FIRST_WIDTH, width, blocks=blocks, stride=1, dropout=dropout)
        self.layer2 = _stage(width, 2 * width, blocks=blocks, stride=2, dropout=dropout)
        self.layer3 = _stage(2 * width, 4 * width, blocks=blocks, stride=2, dropout=dropout)
        self.bn = nn.BatchNorm2d(4 * width)
        self.linear = nn.Linear(4 * width, classes)
        initialize_(self, fan="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer3(self.layer2(self.layer1(self.conv1(x))))
        logits: Tensor = self.linear(relu(self.bn(out)).mean(dim=(2, 3)))
        return logits


def wide_resnet(
    depth: int = 22, factor: int = 2, *, shape: tuple[int, ...], classes: int, dropout: float = 0.0
) -> WideResNet:
    """A wide residual network of `depth` = 6 n + 4 layers, `factor` times as wide as a plain one.

    `shape` is (channels, height, width) of an image; height and width are arbitrary.
    `dropout` is the probability in [0, 1) of zeroing a value between the two convolutions of a block.
    """
    if not 0 <= dropout < 1:
        raise OptionError(f"`dropout` is a fraction and must be in [0, 1); got {dropout!r}.")
    channels, _, _ = image_shape("wide_resnet", shape)
    blocks = blocks_per_stage("wide_resnet", depth, extra=4)
    return WideResNet(blocks, positive("factor", factor), dropout=dropout, channels=channels, classes=classes)
