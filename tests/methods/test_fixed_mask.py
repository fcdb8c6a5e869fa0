"""`Fixed`: a given mask, and masks that are read from networks pruned elsewhere."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import hypersparse
from hypersparse import Fixed, Mask, Method, ModelError, OptionError, PrunableWeights, Sparsifier, scores
from hypersparse.integrations.pretrained import write_card
from tests.methods.small import perceptron, three_classes, trained


def pruned(keep: int = 27) -> nn.Sequential:
    """A network of 108 weights of which so many are not 0.0."""
    model = perceptron()
    weights = PrunableWeights(model)
    Mask.top(scores.magnitude(weights), keep).apply_to_(model)
    return model


def attached(model: nn.Module, method: Method) -> Sparsifier:
    return hypersparse.attach(model, torch.optim.SGD(model.parameters(), 0.1), method, epochs=2)


def zeros(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach() == 0 for name, weight in PrunableWeights(model).items()}


def test_the_mask_of_a_pruned_network_stays_through_the_training() -> None:
    model = pruned()
    before, values = zeros(model), PrunableWeights(model).vector().detach().clone()
    sparsifier = trained(Fixed(Mask.from_zeros(model)), model, three_classes(), epochs=3)
    assert [(phase.name, phase.epochs) for phase in sparsifier.plan] == [("train", 3)]
    assert sparsifier.is_sparse
    assert sparsifier.sparsity == pytest.approx(0.75)
    assert sparsifier.mask == Mask({name: ~layer for name, layer in before.items()})
    after = PrunableWeights(model).vector().detach()
    assert torch.equal(after == 0, values == 0)
    assert not torch.equal(after, values)


def test_layers_that_the_mask_lacks_stay_dense() -> None:
    mask = Mask.from_zeros(pruned())
    only = Mask({"3.weight": mask["3.weight"]})
    sparsifier = trained(Fixed(only), perceptron(), three_classes())
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept_by_layer() == {"0.weight": 72, "3.weight": mask.kept_by_layer()["3.weight"]}


@pytest.mark.parametrize(
    ("mask", "options", "said"),
    [
        ({"5.weight": (3, 12)}, {}, r"a layer `5\.weight` of shape \(3, 12\), which is not there or of another shape"),
        ({"3.weight": (12, 3)}, {}, r"a layer `3\.weight` of shape \(12, 3\), which is not there or of another shape"),
        ({"3.weight": (3, 12)}, {"skip": "3"}, r"a layer `3\.weight` .* which is named by `skip` in this model"),
        ({"0.bias": (12,)}, {}, r"a layer `0\.bias` .* which is a bias or norm in this model"),
    ],
)
def test_a_mask_of_another_network_is_an_error(mask: dict[str, tuple[int, ...]], options: Any, said: str) -> None:
    layers = {name: torch.ones(shape, dtype=torch.bool) for name, shape in mask.items()}
    with pytest.raises(ModelError, match=said):
        trained(Fixed(Mask(layers)), perceptron(), three_classes(), **options)


def test_a_mask_against_the_densities_is_an_error() -> None:
    with pytest.raises(OptionError, match="against `densities`"):
        trained(Fixed(Mask.from_zeros(pruned())), perceptron(), three_classes(), densities={"3": 0.5})


def test_a_network_without_zeros_has_no_mask() -> None:
    with pytest.raises(ModelError, match=r"No prunable weight of this model is exactly 0\.0"):
        Mask.from_zeros(perceptron())


def test_networks_of_torch_prune() -> None:
    model = perceptron()
    layers = [(model[0], "weight"), (model[3], "weight")]
    prune.global_unstructured(layers, pruning_method=prune.L1Unstructured, amount=81)
    mask = Mask.from_zeros(model)
    assert list(mask) == ["0.weight", "3.weight"]
    assert mask.kept == 27
    for module, name in layers:
        prune.remove(module, name)
    assert Mask.from_zeros(model) == mask == Mask.from_zeros(pruned())
    sparsifier = trained(Fixed(mask), model, three_classes())
    assert sparsifier.mask == mask


def test_a_network_of_which_torch_prune_has_pruned_one_layer() -> None:
    model = perceptron()
    prune.random_unstructured(model[0], "weight", amount=0.5)
    mask = Mask.from_zeros(model)
    assert mask.kept_by_layer() == {"0.weight": 36, "3.weight": 36}
    with pytest.warns(UserWarning, match="36 of 108 matrix weights are prunable"):
        sparsifier = hypersparse.attach(
            model, torch.optim.SGD(model.parameters(), 0.1), Fixed(Mask({"3.weight": mask["3.weight"]})), epochs=1
        )
    assert "torch.nn.utils.prune; call prune.remove first" in str(sparsifier.summary())


def test_a_recurrent_network_where_its_weights_are_named() -> None:
    model = nn.LSTM(4, 4)
    with torch.no_grad():
        model.weight_hh_l0[0] = 0.0
    mask = Mask.from_zeros(model, extra_prunable={nn.LSTM: ("weight_*",)})
    assert mask.kept_by_layer() == {"weight_ih_l0": 64, "weight_hh_l0": 60}


def test_where_dropped_weights_are_not_zero() -> None:
    model = pruned()
    mask = Mask.from_zeros(model)
    mask.check_zeros(model)
    with torch.no_grad():
        model[3].weight[mask["3.weight"].logical_not()] = 1.0  # type: ignore[index]
    count = 36 - mask.kept_by_layer()["3.weight"]
    with pytest.raises(ModelError, match=rf"^{count} weights of `3\.weight` should be 0\.0 by the mask"):
        mask.check_zeros(model)
    mask.apply_to_(model)
    mask.check_zeros(model)


def test_it_is_saved_and_goes_on() -> None:
    model = pruned()
    first = trained(Fixed(Mask.from_zeros(model)), model, three_classes())
    saved = first.state_dict()
    other = perceptron()
    second = hypersparse.attach(
        other, torch.optim.SGD(other.parameters(), 0.1), Fixed(Mask.from_zeros(pruned())), epochs=2
    )
    second.load_state_dict(saved)
    assert second.done
    assert second.mask == first.mask


def test_a_model_card_names_it(tmp_path: Path) -> None:
    model = pruned()
    method = Fixed(Mask.from_zeros(model))
    write_card(tmp_path, model, PrunableWeights(model), method=method, recipe={}, metrics={})
    card = (tmp_path / "README.md").read_text()
    assert "| method | Fixed |\n| mask | Mask(27 of 108 kept, sparsity 0.75, 2 layers) |" in card
