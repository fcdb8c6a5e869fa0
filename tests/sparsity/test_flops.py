import pytest
import torch
from torch import Tensor, nn

from hypersparse import PrunableWeights, models
from hypersparse.sparsity.flops import ForwardCost, forward_cost
from tests.sparsity.asks import Asks


def cost_of(model: nn.Module, shape: tuple[int, ...]) -> ForwardCost:
    cost = forward_cost(model, PrunableWeights(model), shape)
    assert cost is not None
    return cost


def test_two_layers_by_hand() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5))
    cost = cost_of(model, (2, 4, 4))
    # 16 pixels, 3 channels out, 2 * 9 products each, a product and a sum are two; then 48 * 5 products.
    assert cost.by_layer == {"0.weight": 2 * 16 * 3 * 18, "4.weight": 2 * 48 * 5}
    assert cost.weights == {"0.weight": 54, "4.weight": 240}
    assert cost.other == 0
    assert cost.flops() == 1728 + 480
    assert cost.flops({"0.weight": 27, "4.weight": 24}) == 1728 / 2 + 480 / 10
    assert cost.flops({"0.weight": 0, "4.weight": 0}) == 0


@pytest.mark.parametrize(("name", "multiplications"), [("resnet32", 275.6e6), ("vgg19", 398.1e6)])
def test_the_papers_networks_cost_what_is_known_of_them(name: str, multiplications: float) -> None:
    model = models.build(name, shape=(3, 32, 32), classes=10)
    assert cost_of(model, (3, 32, 32)).flops() == pytest.approx(2 * multiplications, rel=1e-3)


def test_strides_groups_and_transposed_convolutions() -> None:
    grouped = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4)
    assert cost_of(grouped, (4, 8, 8)).by_layer == {"weight": 2 * 16 * 4 * 9}
    assert cost_of(nn.ConvTranspose2d(2, 3, 3), (2, 4, 4)).by_layer == {"weight": 2 * 16 * 2 * 3 * 9}


class Twice(nn.Module):
    """One layer used twice, and a product that belongs to none."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        values = self.layer(self.layer(x))
        return values @ values.transpose(0, 1)


def test_what_is_used_twice_counts_twice_and_other_products_count_apart() -> None:
    cost = cost_of(Twice(), (3,))
    assert cost.by_layer == {"layer.weight": 2 * 2 * 9}
    assert cost.other == 2 * 3
    assert cost.flops({"layer.weight": 3}) == 6 + 36 / 3


def test_attention_counts_as_it_is() -> None:
    cost = cost_of(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), (5, 4))
    assert cost.by_layer["linear1.weight"] == 2 * 5 * 4 * 8
    assert cost.other > 0


def test_what_cannot_be_counted_is_not_guessed_at() -> None:
    model = Asks()
    assert forward_cost(model, PrunableWeights(model), (3,)) is None


def test_nothing_of_the_model_changes() -> None:
    model = models.build("resnet8", shape=(1, 8, 8), classes=4, options={"width": 4})
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    cost_of(model, (1, 8, 8))
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
