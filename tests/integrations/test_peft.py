"""Models with adapters of peft: the layers they change are pruned, the adapters are not."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import BertForSequenceClassification

import hypersparse
from hypersparse import ART, GMP, Method, ModelError
from hypersparse.integrations.transformers import SparsityCallback, from_pretrained, save_pretrained
from tests.integrations.test_transformers import EPOCH, classifier, equal, texts, trainer_of
from tests.integrations.test_transformers import pytestmark as as_there

pytestmark = as_there


WORDS = torch.stack([row["input_ids"] for row in texts()])


def adapted() -> Any:
    options = LoraConfig(r=2, target_modules=["query", "value"], task_type="SEQ_CLS")
    return get_peft_model(classifier(), options)


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights that the network computes with, without those of the adapters."""
    layers = {name: module.weight.detach() for name, module in model.named_modules() if type(module) is nn.Linear}
    return {name: weight for name, weight in layers.items() if "lora" not in name and "original" not in name}


def sparsity_of(model: nn.Module) -> float:
    weights = weights_of(model).values()
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / sum(weight.numel() for weight in weights)


def train(method: Method, folder: Path, **options: Any) -> tuple[Any, SparsityCallback]:
    model, callback = adapted(), SparsityCallback(method, **options)
    trainer_of(model, folder, callback).train()
    return model, callback


@pytest.mark.parametrize(
    ("method", "options"),
    [(GMP(sparsity=0.9), {}), (ART(sparsity=0.9, pretrain_epochs=1, max_regularized_epochs=1), {"epochs": 2})],
)
def test_the_layers_are_pruned_and_the_adapters_learn(method: Method, options: Any, tmp_path: Path) -> None:
    before = adapted()
    model, callback = train(method, tmp_path, **options)
    assert callback.sparsifier is not None
    assert sorted(name.removesuffix(".weight") for name in callback.sparsifier.weights) == sorted(weights_of(model))
    assert sparsity_of(model) == pytest.approx(0.9, abs=2e-3)
    reasons = callback.sparsifier.weights.selection.skipped
    assert {reason for name, reason in reasons.items() if "lora" in name} == {
        "of an adapter, which is added to a layer's weight"
    }
    name = "base_model.model.classifier.original_module.weight"
    assert reasons[name] == "replaced by a trained copy in `modules_to_save`"
    assert torch.equal(model.get_parameter(name), before.get_parameter(name))
    changed = [name for name, weight in model.named_parameters() if "lora_B" in name and bool(weight.any())]
    assert len(changed) == 2
    frozen = "base_model.model.bert.pooler.dense.weight"
    kept = model.get_parameter(frozen) != 0
    assert torch.equal(model.get_parameter(frozen)[kept], before.get_parameter(frozen)[kept])


def test_adapters_can_be_named() -> None:
    model = adapted()
    optimizer = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    sparsifier = hypersparse.attach(
        model, optimizer, GMP(), epochs=2, only="*.lora_*", extra_prunable={"*.lora_?.default": ("weight",)}
    )
    assert len(sparsifier.weights) == 4
    assert all("lora" in name for name in sparsifier.weights)


def test_a_training_with_adapters_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    whole, resumed = adapted(), adapted()
    trainer_of(whole, tmp_path / "run", SparsityCallback(GMP()), save_strategy="steps", save_steps=EPOCH + 1).train()
    again = trainer_of(resumed, tmp_path / "again", SparsityCallback(GMP()))
    again.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{EPOCH + 1}"))
    assert equal(resumed, whole)


@pytest.mark.parametrize("dense", [True, False])
def test_the_model_comes_back_with_its_adapters(dense: bool, tmp_path: Path) -> None:
    model, _ = train(GMP(sparsity=0.9), tmp_path)
    place = tmp_path / "saved"
    assert save_pretrained(model, place, dense=dense).name == "sparse.safetensors"
    again = from_pretrained(BertForSequenceClassification, place)
    assert type(again) is type(model)
    assert equal(again, model)
    assert torch.equal(again(WORDS).logits, model.eval()(WORDS).logits)


def test_merged_layers_are_dense_again(tmp_path: Path) -> None:
    model, callback = train(GMP(sparsity=0.9), tmp_path)
    assert callback.sparsifier is not None
    assert callback.sparsifier.mask is not None
    assert sparsity_of(model.merge_and_unload()) < 0.8


def test_a_file_of_adapters_imports_nothing(tmp_path: Path) -> None:
    save_pretrained(adapted(), tmp_path, dense=False)
    place = tmp_path / "adapter_config.json"
    place.write_text(
        json.dumps(json.loads(place.read_text()) | {"megatron_config": {}, "megatron_core": "antigravity"})
    )
    with pytest.raises(ModelError, match="names a module of Megatron to import"):
        from_pretrained(BertForSequenceClassification, tmp_path)
