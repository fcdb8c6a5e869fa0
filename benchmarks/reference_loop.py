"""A reimplementation of the authors' training loop, the baseline of the training benchmark; not optimized.

Worker processes start again for every pass and transform one PIL image at a time. The step runs eagerly in fp32, sorts
all weights, differentiates the penalty by autograd, and applies masks layer by layer. Every step fetches three numbers
from the device. After every regularized epoch a deep copy is pruned and scored on the augmented training images.
Two things are faster than in the authors' code: images always come from memory, and there is no progress bar.
"""

import copy
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

PADDING = 4
MOST_WORKERS = 8
SHARPEST_BEND = math.atanh(1 / math.sqrt(3))
STRENGTH = 5e-6
PHASES = ("plain", "regularized", "masked")


class TransformedImages(Dataset[tuple[Tensor, int]]):
    """Images [N, H, W, 3] uint8, each cropped, flipped, made a tensor and normalised when it is asked for."""

    def __init__(self, images: np.ndarray[Any, Any], labels: list[int], mean: list[float], std: list[float]) -> None:
        self.images, self.labels, self.mean, self.std = images, labels, mean, std

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = random_crop(Image.fromarray(self.images[index]))
        if torch.rand(1).item() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return normalised(as_tensor(image), self.mean, self.std), self.labels[index]


def random_crop(image: Image.Image) -> Image.Image:
    """Pad with black pixels, then crop to the original size at a random position."""
    width, height = image.size
    padded = ImageOps.expand(image, border=PADDING, fill=0)
    top = int(torch.randint(0, 2 * PADDING + 1, (1,)).item())
    left = int(torch.randint(0, 2 * PADDING + 1, (1,)).item())
    return padded.crop((left, top, left + width, top + height))


def as_tensor(image: Image.Image) -> Tensor:
    """Float32 [3, H, W] in [0, 1]."""
    pixels = torch.from_numpy(np.array(image, copy=True))
    return pixels.permute(2, 0, 1).contiguous().float().div(255)


def normalised(image: Tensor, mean: list[float], std: list[float]) -> Tensor:
    """Subtract the mean and divide by the deviation of each channel."""
    return (image - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)


def workers_here() -> int:
    """Worker processes: eight, or as many as there are cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_WORKERS, cores)


def prunable_layers(model: nn.Module) -> list[nn.Module]:
    """Every conv and linear layer."""
    return [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def threshold(layers: list[nn.Module], sparsity: float) -> Tensor:
    """The magnitude at the place `sparsity` of all weights in order, by sorting all of them."""
    magnitudes = torch.cat([layer.weight.detach().view(-1) for layer in layers]).abs()
    return magnitudes.sort().values[int(sparsity * magnitudes.numel())]


def penalty(layers: list[nn.Module], sparsity: float) -> Tensor:
    """Eq. 2, for autograd to go through: its value is 0, its gradient is not."""
    magnitudes = torch.cat([layer.weight.view(-1) for layer in layers]).abs()
    s = SHARPEST_BEND / magnitudes.detach().sort().values[int(sparsity * magnitudes.numel())]
    total = torch.tanh(s * magnitudes).sum()
    return (magnitudes * total / total.detach() - magnitudes).sum()


def hits(outputs: Tensor, labels: Tensor, places: int) -> Tensor:
    """Share of the labels among the `places` largest outputs."""
    guesses = outputs.topk(min(places, outputs.shape[1]), dim=1).indices
    return guesses.eq(labels.view(-1, 1)).any(dim=1).float().mean()


class ReferenceLoop:
    """One network, its loader, its optimizer, and the three kinds of step."""

    def __init__(
        self,
        model: nn.Module,
        data: TransformedImages,
        *,
        batch_size: int,
        sparsity: float,
        lr: float,
        device: torch.device,
    ) -> None:
        self.model, self.device, self.sparsity, self.lr = model.to(device), device, sparsity, lr
        self.layers = prunable_layers(self.model)
        self.masks: list[Tensor] = []
        self.kept_copy: tuple[nn.Module, list[Tensor]] | None = (
            None  # of the last regularized epoch, as the original keeps it
        )
        # Workers never touch the device, so they may be forked from a process that uses it.
        self.loader = DataLoader(
            data,
            batch_size=batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers_here(),
            multiprocessing_context="fork",
        )
        self.seen: list[tuple[float, float, float]] = []
        self.new_optimizer()

    def new_optimizer(self) -> None:
        """SGD with its momentum at zero."""
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr, momentum=0.9, weight_decay=1e-4)

    def batches(self) -> Iterator[list[Tensor]]:
        """A pass over the training images; starts the workers."""
        return iter(self.loader)

    def step(self, phase: str, batch: list[Tensor]) -> None:
        """Train on one batch."""
        self.model.train()
        images, labels = batch[0].to(self.device), batch[1].to(self.device)
        outputs = self.model(images)
        loss = functional.cross_entropy(outputs, labels)
        if phase == "regularized":
            loss = loss + STRENGTH * penalty(self.layers, self.sparsity)
        self.optimizer.zero_grad()
        loss.backward()
        if phase == "masked":
            self.apply_masks()
        self.optimizer.step()
        self.note(loss, outputs, labels)

    def note(self, loss: Tensor, outputs: Tensor, labels: Tensor) -> None:
        """Fetch loss, top-1 and top-5 from the device."""
        self.seen.append((loss.item(), hits(outputs, labels, 1).item(), hits(outputs, labels, 5).item()))

    def apply_masks(self) -> None:
        """Before the optimizer's step: dropped weights and their gradients become zero, layer by layer."""
        for layer, mask in zip(self.layers, self.masks, strict=True):
            layer.weight.data *= mask.float()
            layer.weight.grad.data *= mask.float()

    def pruned_copy(self) -> tuple[nn.Module, list[Tensor]]:
        """A deep copy without its smallest weights, and what is kept of each layer."""
        pruned = copy.deepcopy(self.model)
        layers = prunable_layers(pruned)
        limit = threshold(layers, self.sparsity)
        masks = []
        for layer in layers:
            masks.append(layer.weight.detach().abs() > limit)
            layer.weight.data *= masks[-1].float()
        self.kept_copy = pruned, masks
        return pruned, masks

    def score(self, model: nn.Module, batch: list[Tensor]) -> None:
        """Loss, top-1 and top-5 of a network on one batch."""
        model.eval()
        with torch.no_grad():
            images, labels = batch[0].to(self.device), batch[1].to(self.device)
            outputs = model(images)
            self.note(functional.cross_entropy(outputs, labels), outputs, labels)

    def prune(self) -> None:
        """Continue with the last pruned copy and a new optimizer."""
        self.model, self.masks = self.kept_copy or self.pruned_copy()
        self.layers = prunable_layers(self.model)
        self.new_optimizer()
