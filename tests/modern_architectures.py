"""Small networks of the kinds that came after plain CNNs, and networks of tokens and sequences, as plain modules."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Architecture:
    """A network and its inputs."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    words: int = 0  # inputs are numbers of so many words


IMAGE = (3, 16, 16)


def conv(inputs: int, outputs: int, size: int = 3, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution and its batch norm."""
    layer = nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs))


class SqueezeExcite(nn.Module):
    """Channels times what their means say."""

    def __init__(self, channels: int, gate: nn.Module) -> None:
        super().__init__()
        self.less, self.more, self.gate = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x * self.gate(self.more(functional.relu(self.less(x.mean((2, 3), keepdim=True)))))
        return made


class Residual(nn.Module):
    """A sum of what goes around and what goes through."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = x + self.layers(x)
        return made


def mobile_net_v3() -> nn.Module:
    """Hard swish, and squeeze-and-excite by a hard sigmoid."""
    return nn.Sequential(
        conv(3, 8, stride=2),
        nn.Hardswish(),
        Residual(conv(8, 16, 1), nn.Hardswish(), conv(16, 16, groups=16), SqueezeExcite(16, nn.Hardsigmoid()),
                 nn.Hardswish(), conv(16, 8, 1)),
        conv(8, 24, 1),
        nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )  # fmt: skip


def efficient_net() -> nn.Module:
    """SiLU, and squeeze-and-excite by a sigmoid."""
    return nn.Sequential(
        conv(3, 8, stride=2),
        nn.SiLU(),
        Residual(conv(8, 16, 1), nn.SiLU(), conv(16, 16, 5, groups=16), nn.SiLU(), SqueezeExcite(16, nn.Sigmoid()),
                 conv(16, 8, 1)),
        conv(8, 24, 1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 4),
    )  # fmt: skip


class ShuffleUnit(nn.Module):
    """Half of the channels goes around; then the halves are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(conv(half, half, 1), nn.ReLU(), conv(half, half, groups=half), conv(half, half, 1))

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, 1)
        joined = torch.cat([first, self.branch(second).relu()], 1)
        batch, channels, height, width = joined.shape
        mixed = joined.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return mixed.reshape(batch, channels, height, width)


def shuffle_net_v2() -> nn.Module:
    """Splits and shuffles of channels."""
    units = (ShuffleUnit(16), ShuffleUnit(16))
    return nn.Sequential(
        conv(3, 16, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *units, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, 4),
    )  # fmt: skip


class ConvNeXtBlock(nn.Module):
    """A depthwise convolution, then two linear layers on channels that come last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.gain = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gain * self.narrow(functional.gelu(self.wide(y)))
        made: Tensor = x + y.permute(0, 3, 1, 2)
        return made


def conv_next() -> nn.Module:
    """LayerNorm, GELU and permutations."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, stride=4), ConvNeXtBlock(8), ConvNeXtBlock(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.LayerNorm(8), nn.Linear(8, 4),
    )  # fmt: skip


class UNet(nn.Module):
    """Down and up again, by a transposed convolution and by bilinear upsampling, with what was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 12, 3, padding=1)
        self.third, self.up = nn.Conv2d(12, 12, 3, padding=1), nn.ConvTranspose2d(12, 12, 2, stride=2)
        self.norm, self.fourth = nn.GroupNorm(4, 24), nn.Conv2d(24, 8, 3, padding=1)
        self.upsample = nn.Upsample(scale_factor=2, mode="bilinear")
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = functional.leaky_relu(self.first(x), 0.1)
        two = functional.leaky_relu(self.second(functional.max_pool2d(one, 2)), 0.1)
        three = functional.leaky_relu(self.third(functional.max_pool2d(two, 2)), 0.1)
        four = self.fourth(self.norm(torch.cat([self.up(three), two], 1))).relu()
        made: Tensor = self.last(torch.cat([self.upsample(four), one], 1))
        return made


def signal_net() -> nn.Module:
    """Convolutions over a signal."""
    return nn.Sequential(
        nn.Conv1d(2, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(8, 12, 3, stride=2),
        nn.GELU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(12, 4),
    )  # fmt: skip


class Attention(nn.Module):
    """Attention over tokens, by itself or in windows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        made = functional.scaled_dot_product_attention(*qkv.unbind(0))
        out: Tensor = self.out(made.transpose(1, 2).reshape(batch, tokens, width))
        return out


def mlp(width: int, inner: int) -> nn.Sequential:
    """Two linear layers."""
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class ViT(nn.Module):
    """Patches, a class token, positions and blocks of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.first = nn.Conv2d(3, 16, 4, stride=4), nn.Parameter(torch.randn(1, 1, 16))
        self.places = nn.Parameter(torch.randn(1, 17, 16))
        blocks = [[Residual(nn.LayerNorm(16), Attention(16, 2)), Residual(nn.LayerNorm(16), mlp(16, 32))] for _ in "ab"]
        self.blocks = nn.Sequential(*(each for block in blocks for each in block))
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        made: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return made


class WindowBlock(nn.Module):
    """Swin's block: attention in windows of 4x4, of places that were moved before."""

    def __init__(self, width: int, shift: int) -> None:
        super().__init__()
        self.shift, self.attention, self.mlp = shift, Attention(width, 2), mlp(width, 2 * width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, channels = x.shape
        y = torch.roll(self.norm1(x), (-self.shift, -self.shift), (1, 2)) if self.shift else self.norm1(x)
        windows = y.view(batch, height // 4, 4, width // 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        windows = self.attention(windows.reshape(-1, 16, channels))
        y = windows.view(batch, height // 4, width // 4, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(batch, height, width, channels)
        x = x + (torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y)
        made: Tensor = x + self.mlp(self.norm2(x))
        return made


class Swin(nn.Module):
    """Patches, windows and means of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.blocks = nn.Conv2d(3, 8, 2, stride=2), nn.Sequential(WindowBlock(8, 0), WindowBlock(8, 2))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.blocks(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))
        return made


class Turned(nn.Module):
    """A module on tokens in the place of features."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.inner(x.transpose(1, 2)).transpose(1, 2)
        return made


class Mixer(nn.Module):
    """Linear layers over tokens and over features, in turns."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 12, 4, stride=4)
        self.blocks = nn.Sequential(
            Residual(nn.LayerNorm(12), Turned(mlp(16, 24))), Residual(nn.LayerNorm(12), mlp(12, 24))
        )
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
        return made


class Bert(nn.Module):
    """Embeddings of words and places, and PyTorch's own encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(10, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(self.words(x) + self.places(torch.arange(x.shape[1])))
        made: Tensor = self.head(torch.tanh(self.pool(x[:, 0])))
        return made


class Sequence(nn.Module):
    """Two layers of an LSTM or a GRU in both directions, and a classifier on the last state."""

    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        self.layers, self.head = kind(6, 10, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.head(self.layers(x)[0][:, -1])
        return made


ARCHITECTURES = {
    "MobileNetV3": Architecture(mobile_net_v3, IMAGE),
    "EfficientNet": Architecture(efficient_net, IMAGE),
    "ShuffleNetV2": Architecture(shuffle_net_v2, IMAGE),
    "ConvNeXt": Architecture(conv_next, IMAGE),
    "U-Net": Architecture(UNet, IMAGE),
    "1-D CNN": Architecture(signal_net, (2, 40)),
    "ViT, DeiT": Architecture(ViT, IMAGE),
    "Swin": Architecture(Swin, IMAGE),
    "MLP-Mixer": Architecture(Mixer, IMAGE),
    "BERT": Architecture(Bert, (10,), 50),
    "LSTM": Architecture(lambda: Sequence(nn.LSTM), (9, 6)),
    "GRU": Architecture(lambda: Sequence(nn.GRU), (9, 6)),
}
