"""VGG networks with batch norm for small images, with four poolings and a single linear layer.

Reference: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
recognition", ICLR 2015.
"""

from torch import Tensor, nn

from hypersparse.errors import ModelError, OptionError
from hypersparse.models.arguments import image_shape, positive
from hypersparse.models.initialization import initialize_

CONVS_PER_STAGE = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
WIDTHS = (1, 2, 4, 8, 8)  # of the five stages, in multiples of the first
MIN_SIDE = 16  # four poolings reduce it to one pixel


def _stage(channels: int, width: int, *, convs: int, pool: bool) -> nn.Sequential:
    stage = nn.Sequential()
    for number in range(1, convs + 1):
        stage.add_module(f"conv{number}", nn.Conv2d(channels, width, 3, padding=1))
        stage.add_module(f"bn{number}", nn.BatchNorm2d(width))
        stage.add_module(f"relu{number}", nn.ReLU())
        channels = width
    if pool:
        stage.add_module("pool", nn.MaxPool2d(2))
    return stage


class VGG(nn.Module):
    """Five stages of convolutions, global average pooling and a linear layer."""

    def __init__(self, convs_per_stage: tuple[int, ...], width: int, *, channels: int, classes: int) -> None:
        super().__init__()
        convs = iter(convs_per_stage)
        first, second, third, fourth, fifth = (width * factor for factor in WIDTHS)
        self.layer1 = _stage(channels, first, convs=next(convs), pool=True)
        self.layer2 = _stage(first, second, convs=next(convs), pool=True)
        self.layer3 = _stage(second, third, convs=next(convs), pool=True)
        self.layer4 = _stage(third, fourth, convs=next(convs), pool=True)
        self.layer5 = _stage(fourth, fifth, convs=next(convs), pool=False)
        self.linear = nn.Linear(fifth, classes)
        initialize_(self, fan="fan_in")

    def forward(self, x: Tensor) -> Tensor:
        out = self.layer5(self.layer4(self.layer3(self.layer2(self.layer1(x)))))
        # The mean over the map is the paper's average pool of 2 (32x32 images) or 4 (64x64 images).
        logits: Tensor = self.linear(out.mean(dim=(2, 3)))
        return logits


def vgg(depth: int, width: int = 64, *, shape: tuple[int, ...], classes: int) -> VGG:
    """A VGG of 11, 13, 16 or 19 layers by name, whose first stage has `width` channels.

    `shape` is (channels, height, width) of an image of at least 16 x 16 pixels.
    One linear layer replaces the three of the paper, so `vgg19` has 17 layers with weights. It is the VGG of the
    HyperSparse paper, with 20 million.
    """
    if depth not in CONVS_PER_STAGE:
        raise OptionError(f"`depth` of `vgg` must be 11, 13, 16 or 19; got {depth!r}.")
    channels, *sides = image_shape(f"vgg{depth}", shape)
    if min(sides) < MIN_SIDE:
        raise ModelError(
            f"`vgg{depth}` halves its images four times and needs at least 16 x 16 pixels; "
            f"got {sides[0]} x {sides[1]}. For small images use a ResNet such as `resnet8`, or `mlp`."
        )
    return VGG(CONVS_PER_STAGE[depth], positive("width", width), channels=channels, classes=classes)
