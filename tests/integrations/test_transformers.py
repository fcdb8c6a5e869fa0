"""`SparsityCallback` in real trainers of Transformers; models are built from configs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from hypersparse import ART, GMP, SNIP, Method, OptionError, RunError
from hypersparse.integrations.transformers import SparsityCallback, from_pretrained, save_pretrained

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),  # these networks learn for a few steps
]
SAMPLES, BATCH = 48, 8
EPOCH = SAMPLES // BATCH  # steps


def classifier() -> BertForSequenceClassification:
    set_seed(3)
    config = BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=2
    )
    return BertForSequenceClassification(config)


def texts() -> list[dict[str, Any]]:
    """The label is whether the first word is one of the first ten."""
    words = torch.randint(20, (SAMPLES, 6), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": row, "labels": int(row[0] < 10)} for row in words]


class Zeros(TrainerCallback):  # type: ignore[misc]
    """Notes after every step the share of zeros in the linear layers, and the learning rate of the next."""

    def __init__(self) -> None:
        self.sparsities: list[float] = []
        self.rates: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, lr_scheduler: Any, **_: Any) -> None:
        self.sparsities.append(sparsity_of(model))
        self.rates.append(lr_scheduler.get_last_lr()[0])


def sparsity_of(model: nn.Module) -> float:
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / sum(weight.numel() for weight in weights)


def trainer_of(model: nn.Module, folder: Path, *callbacks: Any, data: Any = None, **options: Any) -> Trainer:
    defaults = {"num_train_epochs": 4, "save_strategy": "no", "learning_rate": 1e-2, "seed": 3}
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        **{**defaults, **options},
    )
    data = texts() if data is None else data
    return Trainer(model, arguments, train_dataset=data, eval_dataset=data, callbacks=list(callbacks))


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("options", [{}, {"bf16": True}, {"gradient_accumulation_steps": 4}])
def test_zeros_are_exact_and_the_linear_schedule_is_untouched(options: dict[str, Any], tmp_path: Path) -> None:
    zeros, plain, model = Zeros(), Zeros(), classifier()
    trainer = trainer_of(model, tmp_path / "sparse", SparsityCallback(GMP(sparsity=0.9)), zeros, **options)
    trainer.train()
    assert sparsity_of(model) == zeros.sparsities[-1] == pytest.approx(0.9, abs=2e-3)
    assert zeros.sparsities == sorted(zeros.sparsities)
    assert trainer.state.log_history[-1]["sparsity"] == pytest.approx(0.9, abs=2e-3)

    trainer_of(classifier(), tmp_path / "dense", plain, **options).train()
    assert plain.rates == zeros.rates
    assert set(plain.sparsities) == {0.0}


@pytest.mark.parametrize("stop", [4, EPOCH, 2 * EPOCH + 1])
def test_a_training_goes_on_from_a_checkpoint_with_the_same_bits(stop: int, tmp_path: Path) -> None:
    art = ART(sparsity=0.8, pretrain_epochs=1, strength=1e-3, max_regularized_epochs=1)
    whole = classifier()
    options = {"save_strategy": "steps", "save_steps": stop, "save_total_limit": 3 * EPOCH}
    trainer_of(whole, tmp_path / "run", SparsityCallback(art, epochs=2), **options).train()

    resumed = classifier()
    again = trainer_of(resumed, tmp_path / "again", SparsityCallback(art, epochs=2))
    again.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{stop}"))
    assert sparsity_of(resumed) == pytest.approx(0.8, abs=2e-3)
    assert equal(resumed, whole)


def test_a_method_that_scores_takes_the_training_data_and_the_models_loss(tmp_path: Path) -> None:
    model, zeros = classifier(), Zeros()
    callback = SparsityCallback(SNIP(sparsity=0.8, data="batch"))
    trainer_of(model, tmp_path, callback, zeros, max_steps=3, bf16=True).train()
    assert zeros.sparsities == pytest.approx([0.8] * 3, abs=2e-3)
    assert callback.sparsifier is not None
    task = callback.sparsifier.state.task
    with torch.no_grad():
        predicted = torch.stack([model.eval()(row["input_ids"][None]).logits[0].argmax() for row in texts()])
    assert task.score(model) == pytest.approx(
        float((predicted == torch.tensor([r["labels"] for r in texts()])).float().mean())
    )


def test_scoring_leaves_the_order_of_the_data_alone(tmp_path: Path) -> None:
    """ART that removes nothing trains like a method that scores nothing."""

    def losses(method: Method, **options: Any) -> list[float]:
        callback = SparsityCallback(method, **options)
        trainer = trainer_of(classifier(), tmp_path, callback, num_train_epochs=3, logging_steps=1, optim="sgd")
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    art = ART(sparsity=0.0, pretrain_epochs=0, strength=1e-30, max_regularized_epochs=2)
    assert losses(art, epochs=1) == losses(GMP(sparsity=0.0))


class Scores(TrainerCallback):  # type: ignore[misc]
    """Puts given scores in the place of those measured."""

    def __init__(self, scores: list[float]) -> None:
        self.scores = iter(scores)

    def on_evaluate(self, args: Any, state: Any, control: Any, *, metrics: dict[str, float], **_: Any) -> None:
        metrics["eval_score"] = next(self.scores)


def test_the_best_model_is_never_a_dense_one(tmp_path: Path) -> None:
    art = ART(sparsity=0.8, pretrain_epochs=2, strength=1e-3, max_regularized_epochs=1)
    model = classifier()
    trainer = trainer_of(
        model,
        tmp_path,
        SparsityCallback(art, epochs=3),
        Scores([0.9, 0.95, 0.5, 0.6, 0.55, 0.52]),  # the third is measured after pruning
        EarlyStoppingCallback(early_stopping_patience=2),
        num_train_epochs=6,
        save_strategy="epoch",
        eval_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
    )
    trainer.train()
    assert trainer.state.best_metric == 0.6
    assert trainer.state.best_global_step == 4 * EPOCH
    assert sparsity_of(model) == pytest.approx(0.8, abs=2e-3)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == [f"checkpoint-{4 * EPOCH}"]


def resnet() -> ResNetForImageClassification:
    set_seed(3)
    config = ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=2
    )
    return ResNetForImageClassification(config)


def test_images_get_a_network_file_and_every_folder_a_model_card(tmp_path: Path) -> None:
    images = torch.randn(SAMPLES, 1, 16, 16)
    data = [{"pixel_values": image, "labels": int(image.mean() > 0)} for image in images]
    model = resnet()
    trainer_of(model, tmp_path, SparsityCallback(GMP(sparsity=0.9)), data=data, eval_strategy="epoch").train()
    card = (tmp_path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\ntags:\n- hypersparse\n")
    assert "# ResNetForImageClassification, 90.0" in card
    assert "| method | GMP |\n| sparsity | 0.9 |" in card
    assert "| eval_loss |" in card
    assert "| resnet.embedder.embedder.convolution.weight |" in card

    assert (tmp_path / "model.hsp").stat().st_size < (tmp_path / "model.safetensors").stat().st_size
    dense = ResNetForImageClassification.from_pretrained(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    sparse = from_pretrained(ResNetForImageClassification, tmp_path)
    assert all(
        torch.equal(one, other)
        for one, other in zip(dense.state_dict().values(), sparse.state_dict().values(), strict=True)
    )
    assert equal(sparse, model)


def test_a_model_with_tied_weights_comes_back_from_its_sparse_tensors(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.weight.masked_fill_(torch.rand_like(module.weight) < 0.9, 0.0)
    assert save_pretrained(model, tmp_path, dense=False).name == "sparse.safetensors"
    assert {path.name for path in tmp_path.iterdir()} >= {"config.json"}
    assert not (tmp_path / "model.safetensors").exists()
    again = from_pretrained(LlamaForCausalLM, tmp_path)
    assert equal(again, model)
    assert again.lm_head.weight is again.model.embed_tokens.weight
    words = torch.arange(6)[None]
    assert torch.equal(again(words).logits, model.eval()(words).logits)


def test_a_folder_without_weights_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"has no weights: model\.safetensors, model\.hsp or sparse\.safetensors"):
        from_pretrained(BertForSequenceClassification, tmp_path)


class Endless(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from texts()


def test_data_without_a_length_needs_the_steps_of_an_epoch(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="steps_per_epoch=N"):
        trainer_of(classifier(), tmp_path, SparsityCallback(GMP()), data=Endless(), max_steps=9).train()
    model = classifier()
    callback = SparsityCallback(GMP(sparsity=0.9), steps_per_epoch=3)
    trainer_of(model, tmp_path, callback, data=Endless(), max_steps=9).train()
    assert sparsity_of(model) == pytest.approx(0.9, abs=2e-3)


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        (ART(), {}, "ART decides itself when to prune: pass `epochs`"),
        (ART(), {"epochs": 9}, "does not fit the trainer's 4 epochs.*pre-train 60"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(method: Method, options: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=said):
        trainer_of(classifier(), tmp_path, SparsityCallback(method, **options)).train()


def test_sharded_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its FSDP needs a GPU, so the answer of what looks for shards is given."""
    monkeypatch.setattr("hypersparse.integrations.transformers.is_sharded", lambda sparsifier: True)
    with pytest.raises(OptionError, match="its checkpoints cannot hold a plan"):
        trainer_of(classifier(), tmp_path, SparsityCallback(GMP())).train()


def test_callbacks_made_of_a_checkpoint_are_refused(tmp_path: Path) -> None:
    trainer_of(classifier(), tmp_path, SparsityCallback(GMP()), save_strategy="epoch", save_total_limit=1).train()
    again = trainer_of(classifier(), tmp_path, SparsityCallback(GMP()), restore_callback_states_from_checkpoint=True)
    with pytest.raises(OptionError, match="leave it False"):
        again.train(resume_from_checkpoint=True)


def test_labels_of_other_kinds_are_scored_by_the_models_loss(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = LlamaForCausalLM(config)
    data = [{"input_ids": row["input_ids"], "labels": row["input_ids"]} for row in texts()]
    callback = SparsityCallback(ART(sparsity=0.5, pretrain_epochs=1, strength=1e-3), epochs=1)
    trainer_of(model, tmp_path, callback, data=data, num_train_epochs=3).train()
    assert callback.sparsifier is not None
    with torch.no_grad():
        losses = [model.eval()(row["input_ids"][None], labels=row["labels"][None]).loss for row in data]
    mean: Tensor = torch.stack(losses).mean()
    assert callback.sparsifier.state.task.score(model) == pytest.approx(-float(mean), rel=1e-4)
