"""What may be pruned, what not and why, and masks held on live weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import unwrap
from hypersparse.sparsity.weights import PrunableWeights


class Residual(nn.Module):
    """A first conv with bias, a 1x1 shortcut, norms of two kinds, and a last linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.shortcut = nn.Conv2d(4, 4, 1, bias=False)
        self.group = nn.GroupNorm(2, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.norm(self.first(images)).relu()
        hidden = self.group(hidden + self.shortcut(hidden))
        return self.last(hidden.mean((2, 3)))  # type: ignore[no-any-return]


def bits(tensor: Tensor) -> list[int]:
    return tensor.detach().flatten().view(torch.int32).tolist()


# Selection


def test_every_conv_and_linear_weight_is_selected_in_order() -> None:
    weights = PrunableWeights(Residual())
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == {
        "first.weight": (4, 3, 3, 3),
        "shortcut.weight": (4, 4, 1, 1),
        "last.weight": (2, 4),
    }
    assert (weights.total, len(weights)) == (108 + 16 + 8, 3)


def test_biases_and_norms_are_never_selected() -> None:
    skipped = PrunableWeights(Residual()).selection.skipped
    assert skipped == dict.fromkeys(
        ["first.bias", "norm.weight", "norm.bias", "group.weight", "group.bias", "last.bias"], "a bias or norm"
    )


def test_every_parameter_is_selected_or_left_out_even_where_names_begin_alike() -> None:
    model = nn.Module()
    model.table = nn.ParameterDict({"1": torch.zeros(2), "10": torch.zeros(2), "100": torch.zeros(2, 2)})
    model.linear = nn.Linear(2, 2)
    selection = PrunableWeights(model).selection
    assert {**selection.selected, **selection.skipped}.keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv3d, nn.ConvTranspose2d])
def test_all_kinds_of_convolution(kind: type[nn.Conv1d]) -> None:
    assert list(PrunableWeights(nn.Sequential(kind(2, 2, 3)))) == ["0.weight"]


def test_tied_weights_count_once_under_their_first_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    weights = PrunableWeights(model)
    assert (list(weights), weights.total) == (["0.weight"], 9)


def test_a_model_without_prunable_weights_is_an_error() -> None:
    with pytest.raises(ModelError, match=r"Sequential has no prunable weight.*`extra_prunable="):
        PrunableWeights(nn.Sequential(nn.BatchNorm1d(3), nn.Embedding(2, 3)))


@pytest.mark.parametrize("lazy", [nn.LazyLinear, nn.LazyConv2d, nn.LazyBatchNorm1d])
def test_a_layer_without_a_shape_is_an_error(lazy: type[nn.Module]) -> None:
    arguments = {nn.LazyLinear: (2,), nn.LazyConv2d: (2, 3)}.get(lazy, ())
    model = nn.Sequential(nn.Linear(2, 2), lazy(*arguments))
    with pytest.raises(ModelError, match=r"`1\.weight` has no shape yet; run the model once first"):
        PrunableWeights(model)


def test_a_compiled_model_has_the_users_names() -> None:
    model = Residual()
    compiled = torch.compile(model, backend="eager")
    assert list(PrunableWeights(compiled)) == list(PrunableWeights(model))
    assert PrunableWeights(compiled)["last.weight"] is model.last.weight
    assert unwrap(compiled) is model


def test_a_data_parallel_model_has_the_users_names() -> None:
    model = Residual()
    assert list(PrunableWeights(nn.DataParallel(model))) == list(PrunableWeights(model))


def test_the_model_is_not_changed_by_looking() -> None:
    model = Residual()
    before = {name: (id(parameter), parameter.clone()) for name, parameter in model.named_parameters()}
    PrunableWeights(model).vector()
    assert type(model) is Residual
    for name, parameter in model.named_parameters():
        assert id(parameter) == before[name][0]
        assert torch.equal(parameter, before[name][1])
    assert not model._forward_pre_hooks
    assert not model._forward_hooks


# Weights as one vector


def test_gradients_flow_through_the_vector() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 3)))
    assert weights.vector().tolist() == [*weights["0.weight"].flatten().tolist(), *weights["1.weight"].flatten()]
    (weights.vector() * torch.arange(5.0)).sum().backward()
    assert weights["0.weight"].grad is not None
    assert weights["1.weight"].grad is not None
    assert weights["0.weight"].grad.tolist() == [[0.0, 1.0]]
    assert weights["1.weight"].grad.tolist() == [[2.0], [3.0], [4.0]]


# Masks


def four_weights(values: list[float]) -> PrunableWeights:
    weights = PrunableWeights(nn.Sequential(nn.Linear(4, 1)))
    with torch.no_grad():
        weights["0.weight"].copy_(torch.tensor([values]))
    return weights


KEEP_FIRST = Mask({"0.weight": torch.tensor([[True, False, False, False]])})
KEEP_LAST = Mask({"0.weight": torch.tensor([[False, False, False, True]])})


def test_dropped_weights_are_exactly_plus_zero() -> None:
    weights = four_weights([-1.5, -2.0, torch.nan, -torch.inf])
    weights.set_mask_(KEEP_FIRST)
    assert bits(weights["0.weight"]) == bits(torch.tensor([-1.5, 0.0, 0.0, 0.0]))
    with torch.no_grad():
        weights["0.weight"].fill_(-3.0)
    weights.apply_mask_()
    assert bits(weights["0.weight"]) == bits(torch.tensor([-3.0, 0.0, 0.0, 0.0]))


def test_a_new_mask_replaces_the_old_one_at_the_same_address() -> None:
    weights = four_weights([1.0, 2.0, 3.0, 4.0])
    weights.set_mask_(KEEP_FIRST)
    address = weights._dropped[0].data_ptr()
    weights.set_mask_(KEEP_LAST)
    assert weights.mask == KEEP_LAST
    assert weights._dropped[0].data_ptr() == address
    with torch.no_grad():
        weights["0.weight"].fill_(5.0)
    weights.apply_mask_()
    assert weights["0.weight"].tolist() == [[0.0, 0.0, 0.0, 5.0]]
    assert KEEP_FIRST["0.weight"].tolist() == [[True, False, False, False]]  # a mask is a value


def test_without_a_mask_nothing_is_zeroed() -> None:
    weights = four_weights([1.0, 2.0, 3.0, 4.0])
    weights.apply_mask_()
    weights.set_mask_(KEEP_FIRST)
    weights.clear_mask_()
    with torch.no_grad():
        weights["0.weight"].fill_(5.0)
    weights.apply_mask_()
    assert weights.mask is None
    assert weights["0.weight"].tolist() == [[5.0] * 4]


@pytest.mark.parametrize(
    "mask", [Mask({"other": torch.ones(1, 4).bool()}), Mask({"0.weight": torch.ones(4, 1).bool()})]
)
def test_a_mask_of_other_layers_is_an_error(mask: Mask) -> None:
    with pytest.raises(ModelError, match="not this model's prunable layers"):
        four_weights([1.0, 2.0, 3.0, 4.0]).set_mask_(mask)


def test_masked_by_prunes_inside_and_restores_bit_for_bit() -> None:
    weights = four_weights([-0.0, torch.nan, 1e-42, 4.0])
    before = bits(weights["0.weight"])
    with weights.masked_by(KEEP_LAST):
        assert bits(weights["0.weight"]) == bits(torch.tensor([0.0, 0.0, 0.0, 4.0]))
    assert bits(weights["0.weight"]) == before
    assert weights.mask is None


def test_masked_by_restores_after_an_exception() -> None:
    weights = four_weights([1.0, 2.0, 3.0, 4.0])
    parameter = weights["0.weight"]
    with pytest.raises(RuntimeError, match="in the middle"), weights.masked_by(KEEP_FIRST):
        raise RuntimeError("in the middle")
    assert parameter.tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert weights["0.weight"] is parameter


def test_masked_by_a_foreign_mask_restores_too() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(4, 1), nn.Linear(1, 1)))
    before = weights.vector().tolist()
    with pytest.raises(KeyError), weights.masked_by(KEEP_FIRST):
        pass
    assert weights.vector().tolist() == before


def test_a_saved_mask_holds_on_another_model(tmp_path: Path) -> None:
    first, second = PrunableWeights(Residual()), PrunableWeights(Residual())
    mask = Mask.top({name: weight.detach().abs() for name, weight in first.items()}, 20)
    mask.save(tmp_path / "mask")
    second.set_mask_(Mask.load(tmp_path / "mask"))
    assert int(second.vector().count_nonzero()) == 20
    assert repr(second).startswith("PrunableWeights(132 weights in 3 layers, mask: Mask(20 of 132 kept")
