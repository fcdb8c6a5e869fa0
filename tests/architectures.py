"""Small networks of the kinds that people bring along, as plain modules."""

import torch
from torch import Tensor, nn


class InvertedResidual(nn.Module):
    """MobileNetV2's block: wider, depthwise, narrower; ReLU6 but at the end."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, factor: int) -> None:
        super().__init__()
        inner = inputs * factor
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(inplace=True),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.shortcut else y


def mobile_net(classes: int = 4) -> nn.Module:
    """Like MobileNetV2, for images of 3 channels."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU6(),
        InvertedResidual(8, 8, stride=1, factor=2),
        InvertedResidual(8, 12, stride=2, factor=3),
        InvertedResidual(12, 12, stride=1, factor=3),
        nn.Conv2d(12, 32, 1),
        nn.BatchNorm2d(32),
        nn.Hardtanh(0.0, 6.0),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, classes),
        nn.Softmax(1),
    )


class Fire(nn.Module):
    """SqueezeNet's block: few channels, then 1x1 and 3x3 convolutions side by side."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.one = nn.Conv2d(squeezed, expanded, 1)
        self.three = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x).relu()
        return torch.cat([self.one(x).relu(), self.three(x).relu()], 1)


def squeeze_net(classes: int = 4) -> nn.Module:
    """Like SqueezeNet, for images of 3 channels."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        Fire(12, 4, 8),
        Fire(16, 4, 10),
        nn.MaxPool2d(2),
        Fire(20, 6, 12),
        nn.Dropout(0.5),
        nn.Conv2d(24, classes, 1),
        nn.ReLU6(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class DenseLayer(nn.Module):
    """DenseNet's layer: all that was made before, normalised, gives a few more channels."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, made: list[Tensor]) -> Tensor:
        x = self.conv1(self.norm1(torch.cat(made, 1)).relu())
        y: Tensor = self.conv2(self.norm2(x).relu())
        return y


class DenseBlock(nn.Module):
    """Layers that each read all before them."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + place * growth, growth) for place in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        made = [x]
        for layer in self.layers:
            made.append(layer(made))
        return torch.cat(made, 1)


def dense_net(classes: int = 4) -> nn.Module:
    """Like DenseNet, for images of 3 channels."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        DenseBlock(8, 4, 3),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.Conv2d(20, 10, 1, bias=False),
        nn.AvgPool2d(2),
        DenseBlock(10, 4, 3),
        nn.BatchNorm2d(22),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(22, classes),
        nn.LogSoftmax(1),
    )
