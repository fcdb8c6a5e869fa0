"""Three lines make this FSDP2 script sparse: torchrun --nproc-per-node 2 examples/fsdp_loop.py."""

import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import hypersparse
from hypersparse import ART, Task, save_sparse
from hypersparse.distributed.checkpoint import load_checkpoint, save_checkpoint


def build() -> nn.Module:
    """The whole network, on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


distributed.init_process_group("gloo")  # "nccl" on GPUs
digits = load_digits()
images, labels = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
training = TensorDataset(images[:1437], labels[:1437])
sampler = DistributedSampler(training)
loader = DataLoader(training, batch_size=32, sampler=sampler)

model = fully_shard(build())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)  # of the sharded weights
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
    save_checkpoint("checkpoint", sparsifier)

load_checkpoint("checkpoint", sparsifier)  # as on any other number of ranks
whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if distributed.get_rank() == 0:
    network = build()
    network.load_state_dict(whole)
    with torch.no_grad():
        accuracy = (network(images[1437:]).argmax(1) == labels[1437:]).float().mean()
    size = save_sparse(network, "model.hsp", input_shape=(64,))
    kept = sum(int(network.get_parameter(name).count_nonzero()) for name in sparsifier.weights)
    print(f"{kept} of {sparsifier.weights.total} weights kept, accuracy {accuracy:.3f}, {size} bytes")
distributed.destroy_process_group()
