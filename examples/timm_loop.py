"""Three lines make this timm script sparse: the import, `attach` and the epochs."""

import timm
import torch
from sklearn.datasets import load_digits
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hypersparse

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
training = DataLoader(TensorDataset(images[:1437], labels[:1437]), batch_size=64, shuffle=True)

torch.manual_seed(0)
model = timm.create_model(
    "vit_tiny_patch16_224", img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=48, depth=2, num_heads=3
)
optimizer = create_optimizer_v2(model, opt="adamw", lr=4e-3, weight_decay=0.05)
scheduler = CosineLRScheduler(optimizer, t_initial=12 * len(training), warmup_t=20, t_in_epochs=False)
sparsifier = hypersparse.attach(model, optimizer, hypersparse.GMP(sparsity=0.8), epochs=12)

step = 0
for _ in sparsifier.epochs():  # instead of range(12)
    for inputs, targets in training:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        scheduler.step_update(step)

model.eval()
with torch.no_grad():
    accuracy = (model(images[1437:]).argmax(1) == labels[1437:]).float().mean()
kept = sum(int(weight.count_nonzero()) for weight in sparsifier.weights.values())
print(f"{kept} of {sparsifier.weights.total} weights kept, accuracy {accuracy:.3f}")
