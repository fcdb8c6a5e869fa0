"""Products of matrices that are planes of a convolution, whose rows need not be evenly apart in memory."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hypersparse.export.trace import trace
from hypersparse_runtime import SparseModel


class PlaneProduct(nn.Module):
    """A convolution, and the product of its planes with themselves."""

    def __init__(self, *, turned: bool) -> None:
        super().__init__()
        self.conv, self.turned = nn.Conv2d(3, 3, 3, padding=1), turned

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y.transpose(2, 3) @ y if self.turned else y @ y


@pytest.mark.parametrize("side", [3, 6, 8, 20])
@pytest.mark.parametrize("turned", [False, True])
def test_planes_are_multiplied_in_every_layout(side: int, turned: bool) -> None:
    model = PlaneProduct(turned=turned).eval()
    images = torch.randn(3, 3, side, side)
    with torch.no_grad():
        expected = model(images).numpy()
    graph = trace(model, (3, side, side))
    for count in (1, 3):
        found = SparseModel(graph, engine="hypersparse", threads=1)(images[:count].numpy())
        np.testing.assert_allclose(found, expected[:count], atol=1e-5 * np.abs(expected).max())
