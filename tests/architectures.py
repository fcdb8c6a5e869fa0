"""Small networks of the kinds that people bring along, as plain modules."""

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
    )
