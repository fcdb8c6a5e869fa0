"""Adapters learn what pruning costs: the frozen layers of a trained transformer lose 80 % of their weights."""

import torch
from peft import LoraConfig, get_peft_model
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import ViTConfig, ViTForImageClassification

import hypersparse

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
training = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=64, shuffle=True)


def train_one_epoch(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model.train()
    for inputs, targets in training:
        loss = model(pixel_values=inputs, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


torch.manual_seed(0)
sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 3}
config = ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes)
trained = ViTForImageClassification(config)  # in place of a downloaded network
optimizer = torch.optim.AdamW(trained.parameters(), lr=2e-3)
for _ in range(6):
    train_one_epoch(trained, optimizer)

lora = LoraConfig(target_modules="all-linear", r=4, modules_to_save=["classifier"])
model = get_peft_model(trained, lora)
optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=3e-3)
sparsifier = hypersparse.attach(model, optimizer, hypersparse.GMP(sparsity=0.8), epochs=8)
print(sparsifier.summary())
for _ in sparsifier.epochs():  # instead of range(8)
    train_one_epoch(model, optimizer)

model.eval()
with torch.no_grad():
    accuracy = (model(pixel_values=images[1437:]).logits.argmax(1) == labels[1437:]).float().mean()
kept = sum(int(weight.count_nonzero()) for weight in sparsifier.weights.values())
print(f"{kept} of {sparsifier.weights.total} weights kept, accuracy {accuracy:.3f}")
