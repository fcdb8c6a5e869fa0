"""Networks of torch and transformers: what is prunable in them, exact counts after training, and their files."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import ART, Magnitude, PrunableWeights, RigL, Task, load_sparse, save_sparse
from hypersparse.sparsity.connectivity import find_paths
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.scores import magnitude

transformers = pytest.importorskip("transformers")
TOKENS, CLASSES, WIDTH = 40, 3, 16
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH}
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=WIDTH, n_head=2, n_layer=2, vocab_size=TOKENS, n_positions=8, **ENDS)
    return transformers.GPT2LMHeadModel(config)


def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(**SIZES, vocab_size=TOKENS, max_position_embeddings=8, num_labels=CLASSES)
    return transformers.BertForSequenceClassification(config)


def vit() -> Any:
    torch.manual_seed(0)
    config = transformers.ViTConfig(**SIZES, image_size=8, patch_size=4, num_labels=CLASSES)
    return transformers.ViTForImageClassification(config)


class Encoder(nn.Module):
    """The transformer of torch, for sequences of 16 features."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, values: Tensor) -> Tensor:
        return self.head(self.encoder(values).mean(1))  # type: ignore[no-any-return]


class Projections(nn.Module):
    """Two of GPT-2's Conv1D, which stores the transpose of a linear layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        kind = transformers.pytorch_utils.Conv1D
        self.first, self.last = kind(24, WIDTH), kind(CLASSES, 24)

    def forward(self, values: Tensor) -> Tensor:
        return self.last(self.first(values).relu())  # type: ignore[no-any-return]


def outputs_of(model: nn.Module, inputs: Tensor) -> Tensor:
    outputs = model(inputs)
    return outputs if isinstance(outputs, Tensor) else outputs.logits  # type: ignore[no-any-return]


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())


def batches(inputs: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(inputs.split(8), labels.split(8), strict=True))


def data_for(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(TOKENS, (16, 6), generator=generator)
    labels = torch.arange(16) % CLASSES
    if isinstance(model, Encoder):
        return batches(torch.randn(16, 5, WIDTH, generator=generator), labels)
    if type(model).__name__.startswith("ViT"):
        return batches(torch.randn(16, 3, 8, 8, generator=generator), labels)
    return batches(tokens, tokens.roll(-1, 1) if type(model).__name__.startswith("GPT2") else labels)


def attached(model: nn.Module, **options: Any) -> hypersparse.Sparsifier:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return hypersparse.attach(model, optimizer, Magnitude(sparsity=0.5), epochs=1, **options)


def train(model: nn.Module, method: Any, **options: Any) -> hypersparse.Sparsifier:
    data = data_for(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    task = Task(loss_of, data, metric=lambda outputs, labels: -loss_of(outputs, labels), forward=outputs_of)
    sparsifier = hypersparse.attach(model, optimizer, method, epochs=1, task=task, **options)
    for _ in sparsifier.epochs():
        for inputs, labels in data:
            loss = loss_of(outputs_of(model, inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return sparsifier


def test_all_layers_of_gpt2_but_its_embeddings_are_prunable() -> None:
    weights = PrunableWeights(gpt2())
    parts = ["attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"]
    assert list(weights) == [f"transformer.h.{block}.{part}.weight" for block in (0, 1) for part in parts]
    assert weights["transformer.h.0.mlp.c_fc.weight"].shape == (WIDTH, 4 * WIDTH)
    embeddings = {name: reason for name, reason in weights.selection.skipped.items() if reason != "a bias or norm"}
    assert embeddings == {
        "transformer.wte.weight": "an embedding, tied with `lm_head.weight`",
        "transformer.wpe.weight": "an embedding",
    }


@pytest.mark.parametrize(("make", "layers"), [(bert, 14), (vit, 14), (Encoder, 9)])
def test_nearly_all_of_other_transformers_is_prunable(make: Any, layers: int) -> None:
    weights = PrunableWeights(make())
    assert len(weights) == layers
    assert weights.selection.advice() is None
    assert not [name for name in weights if "embeddings.word" in name or "norm" in name.lower()]


def test_the_weights_of_a_recurrent_network_and_how_to_add_them() -> None:
    model = nn.Sequential(nn.LSTM(4, 8), nn.Linear(8, 2))
    with pytest.warns(UserWarning, match=r"`extra_prunable=\{nn\.LSTM: \('weight_\*',\)\}` adds others"):
        attached(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparsifier = attached(model, extra_prunable={nn.LSTM: ("weight_*",)})
    assert sparsifier.weights.total == 32 * 4 + 32 * 8 + 16


@pytest.mark.parametrize(
    ("make", "head"),
    [(gpt2, "transformer.h.1.mlp.c_proj"), (bert, "classifier"), (vit, "classifier"), (Encoder, "head")],
)
@pytest.mark.parametrize(
    "method",
    [
        ART(
            sparsity=0.9, pretrain_epochs=0, strength=1e-3, growth=2.0, max_regularized_epochs=2, stop_reference="paper"
        ),
        RigL(sparsity=0.9, distribution="erk", update_every=1),
    ],
)
@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_a_transformer_is_trained_sparse_with_exact_counts(make: Any, head: str, method: Any) -> None:
    model = make()
    sparsifier = train(model, method, densities={head: 0.25}, skip="*.0.*")
    mask, weights = sparsifier.mask, sparsifier.weights
    assert mask is not None
    assert mask.kept == keep_count(weights.total, 0.9)
    assert mask[f"{head}.weight"].sum() == weights[f"{head}.weight"].numel() / 4
    assert all((weight[~mask[name]] == 0).all() for name, weight in weights.items())
    assert not [name for name in weights if ".0." in name]


@pytest.mark.parametrize(("make", "shape"), [(Encoder, (5, WIDTH)), (Projections, (WIDTH,)), (Projections, (5, WIDTH))])
def test_pruned_attention_and_conv1d_come_back_from_a_file(make: Any, shape: tuple[int, ...], tmp_path: Path) -> None:
    model = make().eval()
    weights = PrunableWeights(model)
    weights.set_mask_(weights.select(magnitude(weights), weights.total // 10))
    inputs = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    size = save_sparse(model, tmp_path / "model.hsp", input_shape=shape)
    assert size < 4 * weights.total
    found = load_sparse(tmp_path / "model.hsp")
    torch.testing.assert_close(found(inputs), model(inputs), rtol=1e-5, atol=1e-6)  # Conv1D becomes a linear layer
    other = make()
    other.load_state_dict(found.state_dict())
    assert all(torch.equal(value, weights[name]) for name, value in PrunableWeights(other).items())


def test_paths_through_conv1d_are_followed() -> None:
    model = Projections()
    weights = PrunableWeights(model)
    first, last = (torch.zeros_like(weight, dtype=torch.bool) for weight in weights.values())
    first[0, 5] = first[1, 6] = last[5, 2] = True  # inputs are rows
    paths = find_paths(model, {"first.weight": first, "last.weight": last}, (WIDTH,))
    assert (paths.connected, paths.effective_kept) == (True, 2)
