"""A short training of any method, for the contract that all of them keep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import Ablation, Method, PruningMethod, Sparsifier, Task, methods

# Options that make a method short; a method not named here runs with its defaults.
QUICK: dict[str, dict[str, Any]] = {
    "acdc": {"warmup": 0.0, "turn": 0.2, "final": 0.4},
    "art": {"pretrain_epochs": 2, "strength": 1e-3, "growth": 1.5, "max_regularized_epochs": 30},
    "imp": {"rounds": 2, "rewind": 0.3},
    "iter_snip": {"rounds": 5},
    "magnitude": {"dense_epochs": 2},
    "rigl": {"distribution": "erk", "update_every": 2, "search": 1.5},  # the first layer is too large to be kept whole
    "st3": {"update_every": 2},
    "synflow": {"rounds": 5},
    "topkast": {"update_every": 2, "update_until": 0.5},
}
SPARSITY = 0.8
PRUNING = [name for name in methods.names() if issubclass(methods.find(name), PruningMethod)]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def options_of(name: str, sparsity: float = SPARSITY) -> dict[str, Any]:
    return {**QUICK.get(name, {}), **({"sparsity": sparsity} if name in PRUNING else {})}


def method_of(name: str, sparsity: float = SPARSITY) -> Method:
    return methods.find(name)(**options_of(name, sparsity))


class Run:
    """A small classification, its network, and a sparsifier; `loader` shuffles with a generator of its own."""

    def __init__(
        self,
        name: str,
        make_optimizer: MakeOptimizer,
        *,
        seed: int = 0,
        sparsity: float = SPARSITY,
        ablation: Ablation | None = None,
        **options: Any,
    ) -> None:
        generator = torch.Generator().manual_seed(7)
        labels = torch.arange(48) % 3
        inputs = torch.randn(3, 2, 4, 4, generator=generator)[labels]
        inputs += 0.2 * torch.randn(inputs.shape, generator=generator)
        self.order = torch.Generator().manual_seed(seed)
        data = torch.utils.data.TensorDataset(inputs, labels)
        self.loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True, generator=self.order)
        torch.manual_seed(seed)
        self.model = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
        )
        self.optimizer = make_optimizer(self.model)
        self.sparsifier = hypersparse.attach(
            self.model,
            self.optimizer,
            method_of(name, sparsity),
            epochs=3,
            task=Task(nn.functional.cross_entropy, self.loader),
            lr=hypersparse.schedules.cosine,
            ablation=ablation,
            **options,
        )

    def train(self, after_step: Callable[[Sparsifier], None] | None = None, *, save_to: Path | None = None) -> None:
        for epoch in self.sparsifier.epochs():
            self.model.train()
            for inputs, labels in self.loader:
                outputs = self.model(inputs)
                loss = nn.functional.cross_entropy(outputs, labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.sparsifier.observe(outputs, labels)
                if after_step is not None:
                    after_step(self.sparsifier)
            if save_to is not None:
                torch.save(self.state(), save_to / str(epoch))

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "sparsifier": self.sparsifier.state_dict(),
            "order": self.order.get_state(),
        }

    def load(self, path: Path) -> None:
        saved = torch.load(path, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.sparsifier.load_state_dict(saved["sparsifier"])
        self.order.set_state(saved["order"])


def same(left: Any, right: Any) -> bool:
    """Whether two trees of numbers and tensors are equal, bit for bit."""
    if isinstance(left, Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(same(*pair) for pair in zip(left, right, strict=True))
    return bool(left == right)


def dropped_are_plus_zero(sparsifier: Sparsifier) -> None:
    if sparsifier.mask is None:
        return
    for name, weight in sparsifier.weights.items():
        dropped = weight.detach()[~sparsifier.mask[name]]
        assert (dropped.view(torch.int32) == 0).all(), f"{name} has dropped weights that are not +0.0"
