"""Two lines make this training loop sparse: `attach` and `epochs`."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hypersparse
from hypersparse import ART, Task

digits = load_digits()
images = torch.tensor(digits.data, dtype=torch.float32) / 16
labels = torch.tensor(digits.target)
training, held_out = slice(0, 1437), slice(1437, None)
loader = DataLoader(TensorDataset(images[training], labels[training]), batch_size=64, shuffle=True)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()

method = ART(sparsity=0.9, pretrain_epochs=5, strength=1e-4, growth=1.3)
sparsifier = hypersparse.attach(
    model, optimizer, method, epochs=10, task=Task(criterion, loader), lr=hypersparse.schedules.multistep()
)
for epoch in sparsifier.epochs():  # instead of range(10)
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch:3d}  {sparsifier.phase.name:10s}  loss {loss.item():.3f}")

with torch.no_grad():
    accuracy = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean()
kept = sum(int(weight.count_nonzero()) for weight in sparsifier.weights.values())
print(f"{kept} of {sparsifier.weights.total} weights kept, test accuracy {accuracy:.3f}")
