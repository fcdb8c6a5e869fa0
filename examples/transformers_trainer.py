"""Two lines make this Transformers script sparse: the import and the callback."""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainingArguments, set_seed

from hypersparse import GMP
from hypersparse.integrations.transformers import SparsityCallback

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
rows = [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, digits.target, strict=True)]

set_seed(0)
config = ResNetConfig(
    num_channels=1, embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10
)
model = ResNetForImageClassification(config)
folder = tempfile.TemporaryDirectory()
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        folder.name,
        num_train_epochs=8,
        per_device_train_batch_size=32,
        learning_rate=1e-2,
        eval_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=rows[:1437],
    eval_dataset=rows[1437:],
    compute_metrics=lambda result: {"accuracy": float((result.predictions.argmax(1) == result.label_ids).mean())},
    callbacks=[SparsityCallback(GMP(sparsity=0.8))],
)
trainer.train()

accuracy = trainer.evaluate()["eval_accuracy"]
weights = [weight for weight in model.parameters() if weight.dim() > 1]
kept, total = sum(int(weight.count_nonzero()) for weight in weights), sum(weight.numel() for weight in weights)
print(f"{kept} of {total} weights kept, accuracy {accuracy:.3f}")
print("files:", ", ".join(sorted(path.name for path in Path(folder.name).iterdir() if path.is_file())))
folder.cleanup()
