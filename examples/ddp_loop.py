"""Three lines make this DistributedDataParallel script sparse: torchrun --nproc-per-node 2 examples/ddp_loop.py."""

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import hypersparse
from hypersparse import ART, Task

distributed.init_process_group("gloo")  # "nccl" on GPUs
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
training = TensorDataset(images[:1437], labels[:1437])
sampler = DistributedSampler(training)
loader = DataLoader(training, batch_size=32, sampler=sampler)

network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(network)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
criterion = nn.CrossEntropyLoss()
method = ART(sparsity=0.9, pretrain_epochs=4, strength=1e-4, growth=1.3)
sparsifier = hypersparse.attach(model, optimizer, method, epochs=4, task=Task(criterion, loader))

for epoch in sparsifier.epochs():  # instead of range(8)
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = criterion(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

with torch.no_grad():
    accuracy = (network(images[1437:]).argmax(1) == labels[1437:]).float().mean()
if distributed.get_rank() == 0:
    kept = sum(int(weight.count_nonzero()) for weight in sparsifier.weights.values())
    print(f"{kept} of {sparsifier.weights.total} weights kept, accuracy {accuracy:.3f}")
distributed.destroy_process_group()
