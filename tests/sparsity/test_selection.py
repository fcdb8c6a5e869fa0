"""Which parameters may be pruned: known module types, names, globs and types, and a reason for every other."""

import copy
import re
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import hypersparse
from hypersparse import Magnitude, ModelError, OptionError, PrunableWeights
from hypersparse.sparsity.layer_names import LayerNames


class Block(nn.Module):
    """One block as in a transformer, without its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.mlp = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, values: Tensor) -> Tensor:
        return values + self.mlp(self.norm(values))  # type: ignore[no-any-return]


class Small(nn.Module):
    """An embedding of the first layer, two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv1d(2, 4, 3)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 3)

    def forward(self, values: Tensor) -> Tensor:
        values = self.stem(values).mean(2)
        for block in self.blocks:
            values = block(values)
        return self.head(values)  # type: ignore[no-any-return]


MLPS = [f"blocks.{block}.mlp.{layer}.weight" for block in (0, 1) for layer in (0, 2)]


def chosen(model: nn.Module, **options: Any) -> list[str]:
    return list(PrunableWeights(model, **options))


EPOCHS = "Epochs: 1 pre-train, 1 fine-tune; 2 in all."


def attached(model: nn.Module, **options: Any) -> hypersparse.Sparsifier:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hypersparse.attach(model, optimizer, Magnitude(sparsity=0.5), epochs=1, **options)


# Names, globs and types


@pytest.mark.parametrize("pattern", ["blocks", "blocks.*", "blocks.*.mlp", "*.mlp.*", "*mlp", Block, nn.ModuleList])
def test_a_name_a_glob_or_a_type_means_all_that_is_below(pattern: Any) -> None:
    assert chosen(Small(), only=pattern) == MLPS
    assert chosen(Small(), skip=[pattern]) == ["stem.weight", "head.weight"]


@pytest.mark.parametrize(
    ("only", "layers"),
    [
        ("head.weight", ["head.weight"]),
        (["head", nn.Conv1d], ["stem.weight", "head.weight"]),
        ("blocks.1.mlp.[02]", MLPS[2:]),
        ((nn.Linear,), [*MLPS, "head.weight"]),
    ],
)
def test_what_only_names_is_pruned_in_the_models_order(only: Any, layers: list[str]) -> None:
    assert chosen(Small(), only=only) == layers


def test_skip_and_only_together() -> None:
    weights = PrunableWeights(Small(), only="blocks", skip=["blocks.0", "stem.bias"])
    assert list(weights) == MLPS[2:]
    skipped = weights.selection.skipped
    assert [skipped[name] for name in ("stem.weight", MLPS[0])] == ["not named by `only`", "named by `skip`"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"skip": "haed"}, "`skip` names `haed`, and no layer has such a name; did you mean `head`?"),
        ({"only": ["block.*.mlp"]}, "`block.*.mlp`, and no layer has such a name; did you mean `blocks.*.mlp`?"),
        ({"skip": [nn.LSTM]}, "`skip` names `LSTM`; the model has Block, Conv1d, LayerNorm, Linear, ModuleList"),
        ({"only": "blocks.*.norm"}, "where no weight is prunable: `blocks.0.norm.weight` is a bias or norm."),
        ({"skip": 3}, "`skip` holds names, globs or module types; got 3."),
        ({"extra_prunable": {nn.GRU: ("weight",)}}, "`extra_prunable` names `GRU`, and the model has no such module."),
        ({"extra_prunable": {nn.LayerNorm: ("wieght",)}}, "`wieght` of LayerNorm; did you mean `weight`?"),
        ({"extra_prunable": {nn.ReLU: ("weight",)}}, "`weight` of ReLU; it has no weights of its own."),
    ],
)  # fmt: skip
def test_a_name_that_means_nothing_is_an_error_with_the_nearest(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=re.escape(text)):
        PrunableWeights(Small(), **options)


def test_tied_layers_are_known_by_both_names() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3), "c": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    assert chosen(model, skip="b") == ["c.weight"]


# Known module types


def test_the_projections_of_attention_are_prunable() -> None:
    assert chosen(nn.MultiheadAttention(4, 2)) == ["in_proj_weight", "out_proj.weight"]
    apart = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=True)
    weights = PrunableWeights(apart)
    assert list(weights) == ["q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"]
    assert weights.selection.skipped["bias_k"] == "a bias or norm"


def test_recurrent_weights_are_prunable_where_they_are_named() -> None:
    model = nn.Sequential(nn.LSTM(3, 4, 2), nn.Linear(4, 2))
    assert chosen(model) == ["1.weight"]
    both = [f"0.weight_{part}_l{layer}" for layer in (0, 1) for part in ("ih", "hh")]
    assert chosen(model, extra_prunable={nn.LSTM: ("weight_*",)}) == [*both, "1.weight"]
    assert chosen(model, extra_prunable={"0": ("weight_hh_l?",)}) == [both[1], both[3], "1.weight"]


def test_masks_keep_recurrent_weights_in_their_flat_memory() -> None:
    """cuDNN reads all weights of a recurrent layer from one memory, which no weight may leave."""
    model = nn.LSTM(3, 4)
    before = [weight.data_ptr() for weight in model._flat_weights]
    weights = PrunableWeights(model, extra_prunable={nn.LSTM: ("weight_*",)})
    weights.set_mask_(weights.select({name: weight.detach().abs() for name, weight in weights.items()}, 10))
    assert [weight.data_ptr() for weight in model._flat_weights] == before
    assert sum(int(weight.count_nonzero()) for weight in model._flat_weights[:2]) == 10


def test_an_embedding_is_left_out_also_where_a_linear_layer_shares_it() -> None:
    model = nn.ModuleDict({"table": nn.Embedding(5, 3), "body": nn.Linear(3, 3), "head": nn.Linear(3, 5, bias=False)})
    model["head"].weight = model["table"].weight
    weights = PrunableWeights(model)
    assert (list(weights), weights.total) == (["body.weight"], 9)
    assert weights.selection.skipped["table.weight"] == "an embedding, tied with `head.weight`"
    assert chosen(model, extra_prunable={nn.Embedding: ("weight",)}) == ["table.weight", "body.weight"]


def test_a_linear_layer_first_and_its_embedding_later() -> None:
    model = nn.ModuleDict({"head": nn.Linear(3, 5), "table": nn.Embedding(5, 3), "body": nn.Linear(3, 3)})
    model["table"].weight = model["head"].weight
    weights = PrunableWeights(model)
    assert list(weights) == ["body.weight"]
    assert weights.selection.skipped["head.weight"] == "an embedding, tied with `table.weight`"


# Computed weights


def under_weight_norm() -> nn.Module:
    return parametrizations.weight_norm(nn.Linear(6, 4))


def under_old_weight_norm() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(6, 4))


def under_torch_prune() -> nn.Module:
    return prune.l1_unstructured(nn.Linear(6, 4), "weight", 0.5)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (under_weight_norm, "under weight_norm, which divides an empty row by 0; remove it from the layer first"),
        (under_old_weight_norm, "under weight_norm, which divides an empty row by 0; remove it from the layer first"),
        (under_torch_prune, "under torch.nn.utils.prune; call prune.remove first"),
        (
            lambda: parametrizations.orthogonal(nn.Linear(6, 4)),
            "computed by _Orthogonal; its zeros are not zeros of what is stored",
        ),
    ],
)
def test_a_weight_that_is_computed_is_left_out_with_the_reason(make: Any, reason: str) -> None:
    selection = PrunableWeights(nn.Sequential(make(), nn.Linear(2, 2))).selection
    assert list(selection.selected) == ["1.weight"]
    biases = dict.fromkeys(["0.bias", "1.bias"], "a bias or norm")
    assert selection.skipped == {"0.weight": reason, **biases}
    with pytest.raises(OptionError, match=re.escape(f"is {reason}.")):
        PrunableWeights(nn.Sequential(make(), nn.Linear(2, 2)), only="0.weight")


def test_why_weight_norm_is_left_out() -> None:
    model = parametrizations.weight_norm(nn.Linear(6, 4))
    with torch.no_grad():
        model.parametrizations.weight.original1[0] = 0.0  # type: ignore[index, union-attr]
    assert model(torch.ones(1, 6))[0].isnan().tolist() == [True, False, False, False]


@pytest.mark.parametrize("make", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_zeros_under_spectral_norm_are_zeros_of_the_weight(make: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), make(nn.Linear(6, 4)))
    assert chosen(model, only="2") == chosen(model)[1:]
    sparsifier = attached(model)
    optimizer = sparsifier.state.optimizer
    for _ in sparsifier.epochs():
        model(torch.randn(8, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert sparsifier.mask is not None
    model.eval()
    model(torch.zeros(1, 5))  # the old one computes its weight in the forward pass
    kept = list(sparsifier.mask.values())[1]
    assert 0 < int(kept.sum()) < 24
    assert (model[2].weight.detach()[~kept] == 0).all()
    assert (model[2].weight.detach()[kept] != 0).all()


# What `attach` says


def test_the_summary() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.Embedding(4, 2), nn.Linear(3, 20))
    sparsifier = attached(model, densities={"0": 0.5})
    assert str(sparsifier.summary()).splitlines() == [
        "layer     shape   prunable  density  why not",
        "0.weight  3 x 2   6         0.5",
        "2.weight  4 x 2   no        -        an embedding",
        "3.weight  20 x 3  60        -",
        "66 of 74 weights are prunable; 4 biases and norms are not.",
        EPOCHS,
    ]
    assert sparsifier.begin_epoch()
    sparsifier.weights.set_mask_(
        sparsifier.weights.select({name: weight.detach().abs() for name, weight in sparsifier.weights.items()}, 33)
    )
    assert [sparsifier.summary().density(name) for name in ("0.weight", "2.weight", "3.weight")] == ["0.5", "-", "0.5"]
    assert str(sparsifier.summary()).endswith(
        f"66 of 74 weights are prunable, and 33 are kept; 4 biases and norms are not.\n{EPOCHS}"
    )


def test_a_warning_where_most_of_the_network_would_stay_dense() -> None:
    model = nn.Sequential(nn.Embedding(100, 3), nn.LSTM(3, 4), nn.Bilinear(2, 2, 2), nn.Linear(4, 2))
    said = (
        r"Only 8 of 128 matrix weights are prunable \(6%\)\. `extra_prunable=\{nn\.LSTM: \('weight_\*',\), "
        r"nn\.Bilinear: \('weight',\)\}` adds others\. "
        r"`print\(sparsifier\.summary\(\)\)` lists all of them with the reasons\."
    )
    with pytest.warns(UserWarning, match=said):
        attached(copy.deepcopy(model))
    attached(model, extra_prunable={nn.LSTM: ("weight_*",), nn.Bilinear: ("weight",)})


def test_where_nothing_is_prunable_the_reason_is_said() -> None:
    normed = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(ModelError, match=r"`0\.weight` is under weight_norm, .*; remove it from the layer first\."):
        PrunableWeights(normed)
    pruned = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    prune.l1_unstructured(pruned[0], "weight", amount=0.5)
    with pytest.warns(UserWarning, match=r"\(20%\)\. `0\.weight` is under torch\.nn\.utils\.prune; call prune\.remove"):
        attached(pruned)
    with pytest.raises(OptionError, match=r"`only` names `0`, where no weight is prunable: `0\.weight_orig` is under"):
        attached(pruned, only="0")


def test_no_warning_about_what_the_caller_left_out() -> None:
    attached(Small(), only="head")
    attached(Small(), skip="blocks")


def test_the_layers_of_large_models_are_named_quickly() -> None:
    model = nn.ModuleList([Block() for _ in range(40)])
    assert len(LayerNames(model).matching(["*.mlp", Block, "39"], "skip")) == 240
