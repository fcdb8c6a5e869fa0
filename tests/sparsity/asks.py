"""A network whose way depends on its values, so that nothing can be said of it beforehand."""

from torch import Tensor, nn


class Asks(nn.Module):
    """Asks whether a sum is positive."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        values: Tensor = self.layer(x)
        return values if values.sum() > 0 else -values
