"""Three lines make this Accelerate script sparse: the import, `attach` and the state in the checkpoints."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hypersparse

digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
training = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=32, shuffle=True)
held_out = DataLoader(TensorDataset(images[1437:], labels[1437:]), batch_size=64)

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12 * len(training))
model, optimizer, training, held_out, scheduler = accelerator.prepare(model, optimizer, training, held_out, scheduler)
sparsifier = hypersparse.attach(model, optimizer, hypersparse.GMP(sparsity=0.9), epochs=12)
accelerator.register_for_checkpointing(sparsifier)

for _ in sparsifier.epochs():  # instead of range(12)
    for inputs, targets in training:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(inputs), targets))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()

hits = []
with torch.no_grad():
    for inputs, targets in held_out:
        hits.append(accelerator.gather_for_metrics(model(inputs).argmax(1) == targets))
accuracy = torch.cat(hits).float().mean()
kept = sum(int(weight.count_nonzero()) for weight in sparsifier.weights.values())
accelerator.print(f"{kept} of {sparsifier.weights.total} weights kept, accuracy {accuracy:.3f}")
