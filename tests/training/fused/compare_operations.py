"""Compares the Triton kernels of fused networks with `PlainOperations`, operation by operation.

Run as a script it uses Triton's interpreter, in a process of its own: Triton decides when a kernel is defined.
"""

import copy
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from hypersparse.models.resnet import resnet
from hypersparse.models.vgg import vgg
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.fused import tilings
from hypersparse.training.fused.cudnn_operations import CudnnOperations
from hypersparse.training.fused.network import FusedNetwork
from hypersparse.training.fused.operations import Norm, Normed, Operations, PlainOperations
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.kernels.conv_tiling import Convolution

BATCH = 16
GROUPED = Convolution(12, 32, 32, 8, 8, 3, 1, 1)  # 6 tiles of 128 pixels
SMALL = {
    "stage": Convolution(2, 32, 32, 8, 8, 3, 1, 1),
    "into the next": Convolution(2, 16, 32, 8, 8, 3, 2, 1),
    "around it": Convolution(2, 16, 32, 8, 8, 1, 2, 0),
    "1x1": Convolution(2, 32, 16, 4, 4, 1, 1, 0),
    "more channels than a tile": Convolution(4, 128, 128, 4, 4, 3, 1, 1),
    "48 channels": Convolution(2, 48, 16, 8, 8, 3, 1, 1),
}


def make_norm(runs: int, channels: int, like: Tensor, *, bias: bool = False) -> Norm:
    """A batch norm with random parameters."""

    def random() -> Tensor:
        return torch.randn(runs, channels, device=like.device)

    return Norm(
        scales=random(),
        shifts=random(),
        means=random(),
        variances=random().abs(),
        bias=random() if bias else None,
        scale_gradients=random(),
        shift_gradients=random(),
        saved=torch.zeros(runs, 2, channels, device=like.device),
        momentum=0.1,
        epsilon=1e-5,
    )


def runs_of(norm: Norm, runs: slice) -> Norm:
    """The norm of some runs, in memory of its own."""
    tensors = {name: value[runs].clone() for name, value in vars(norm).items() if isinstance(value, Tensor)}
    return replace(norm, **tensors)


def results(
    operations: Operations, convolution: Convolution, made: dict[str, Tensor], norms: list[Norm]
) -> Iterator[tuple[str, Tensor]]:
    """Each operation once, on the same inputs."""
    images, weights, gradients, skip = (made[name] for name in ("images", "weights", "gradients", "skip"))
    first, second, third, fourth = norms
    normed = operations.conv(convolution, images, weights, first)
    yield "conv", normed.values
    yield "tile means", (tiles := _combined(normed.moments, normed.count))[0]
    yield "tile squares", tiles[1]
    again = operations.tile_moments(normed.values)
    yield "means of tiles alone", (tiles := _combined(*again))[0]
    yield "squares of tiles alone", tiles[1]
    yield "activate", operations.activate(normed, None, None, pool=1)
    yield "saved", first.saved
    yield "means", first.means
    yield "variances", first.variances
    other = Normed(second, made["other"], *_moments(made["other"]))
    yield "activate two", operations.activate(normed, other, None, pool=1)
    yield "activate with a shortcut", operations.activate(normed, None, made["other"], pool=1)
    if convolution.out_height % 2 == 0 and convolution.out_height > 4:
        yield "activate and pool", (pooled := operations.activate(normed, None, None, pool=2))
        sums = operations.relu_gradient(pooled + 1, pooled, normed, None, pool=2)
        yield "pool gradient", sums.gradients
        yield "pool sums", _sum(sums.tiles)
    sums = operations.relu_gradient(gradients, made["cut"], normed, other, pool=1)
    yield "relu gradient", sums.gradients
    yield "relu sums", _sum(sums.tiles)
    yield "norm gradient", operations.norm_gradient(sums, other, number=2)
    yield "scale gradients", second.scale_gradients
    yield "shift gradients", second.shift_gradients
    yield "data gradient", operations.conv_data_gradient(convolution, gradients, weights, None)
    before = Normed(third, made["before"], *_moments(made["before"]))
    around = Normed(fourth, made["around"], *_moments(made["around"]))
    for norm in (third, fourth):
        norm.saved.copy_(made["saved"])
    for name, two in (("one", None), ("two", around)):
        sums = operations.conv_relu_gradient(
            convolution, gradients, weights, skip if two else None, made["images"], before, two
        )
        yield f"data gradient before {name}", sums.gradients
        yield f"sums of {name}", _sum(sums.tiles)
    found = torch.empty_like(weights, dtype=torch.float32)
    operations.conv_weight_gradient_(convolution, images, gradients, found)
    yield "weight gradient", found


def _sum(tiles: Tensor) -> Tensor:
    """Of all tiles, run by run: torch adds in another order where there are more runs."""
    return torch.stack([each.sum(0) for each in tiles])


def _combined(moments: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean and sum of squares around it, run by run."""
    found = []
    for means, squares in (each.unbind(1) for each in moments):
        mean = means.mean(0)
        found.append((mean, squares.sum(0) + count * (means - mean).square().sum(0)))
    means, squares = zip(*found, strict=True)
    return torch.stack(means), torch.stack(squares)


def _moments(values: Tensor) -> tuple[Tensor, int]:
    """By two tiles, run by run as well."""
    tiles = [each.float().flatten(0, 2).unflatten(0, (2, -1)) for each in values]
    means = [tile.mean(1) for tile in tiles]
    squares = [(tile - mean[:, None]).square().sum(1) for tile, mean in zip(tiles, means, strict=True)]
    return torch.stack([torch.stack(means), torch.stack(squares)], 2), tiles[0].shape[1]


def inputs_of(convolution: Convolution, *, runs: int, like: Tensor) -> tuple[dict[str, Tensor], list[Norm]]:
    """Random tensors for every operation."""

    def random(*shape: int) -> Tensor:
        return torch.randn(runs, *shape, device=like.device).to(like.dtype)

    c = convolution
    inside, outside = (c.batch, c.height, c.width, c.channels), (c.batch, c.out_height, c.out_width, c.filters)
    made = {
        "images": random(*inside).relu(),
        "weights": random(c.filters, c.side, c.side, c.channels),
        "gradients": random(*outside),
        "skip": random(*inside),
        "other": random(*outside),
        "cut": random(*outside).relu(),
        "before": random(*inside),
        "around": random(*inside),
        "saved": torch.rand(runs, 2, c.channels, device=like.device),
    }
    norms = [make_norm(runs, c.filters, like, bias=bias) for bias in (True, False)]
    return made, [*norms, *(make_norm(runs, c.channels, like) for _ in range(2))]


def errors(operations: Operations, convolution: Convolution, *, runs: int, like: Tensor) -> dict[str, float]:
    """The relative error of each result against plain PyTorch."""
    made, norms = inputs_of(convolution, runs=runs, like=like)
    expected = results(PlainOperations(), convolution, made, [runs_of(norm, slice(None)) for norm in norms])
    found = results(operations, convolution, made, norms)
    return {name: _apart(mine, theirs) for (name, mine), (_, theirs) in zip(found, expected, strict=True)}


def network_gradients(
    operations: Operations, model: nn.Module, images: Tensor, *, runs: int = 1
) -> Iterator[tuple[str, Tensor]]:
    """Last activations, gradients of all weights and statistics of a network and its copies, for random gradients."""
    models = [copy.deepcopy(model) for _ in range(runs)]
    shape = tuple(images.shape[1:])
    traced = [found for each in models if (found := trace_network(each, shape))]
    memories = [FlatMemory(PrunableWeights(each)) for each in models]
    fused = FusedNetwork(traced, memories, operations, batch=len(images), shape=shape, dtype=images.dtype)
    fused.refresh_()
    values = fused.forward([images] * runs)
    yield "activations", values
    generator = torch.Generator().manual_seed(1)
    given = torch.randn(values.shape[1:], generator=generator)[None].expand(runs, -1, -1, -1, -1)
    fused.backward_(given.to(values).contiguous())
    for name, parameter in models[-1].named_parameters():
        if parameter.grad is not None and not name.endswith(".bias"):
            yield name, parameter.grad
    for name, buffer in models[-1].named_buffers():
        yield name, buffer


def network_errors(operations: Operations, model: nn.Module, images: Tensor) -> dict[str, float]:
    """The relative error of each result of a network against plain PyTorch."""
    expected = list(network_gradients(PlainOperations(), model, images))
    found = list(network_gradients(operations, model, images))
    return {name: _apart(mine, theirs) for (name, mine), (_, theirs) in zip(found, expected, strict=True)}


def optimizer_errors() -> dict[str, float]:
    """Of a step that also applies a mask and copies the weights, against doing so after it: zero."""
    from hypersparse.training.kernels.sgd_kernel import sgd_step_

    start, gradients, moments = torch.randn(3, 5000)
    dropped, copied = torch.rand(5000) < 0.5, torch.empty(5000, dtype=torch.float16)
    made = []
    for options in ({}, {"copy": copied, "dropped": dropped}):
        weights, lr = start.clone(), torch.tensor(0.1)
        sgd_step_(
            weights, gradients, None, moments.clone(), lr=lr, momentum=0.9, weight_decay=0.01, nesterov=True, **options
        )
        made.append(weights)
    expected = made[0].masked_fill(dropped, 0.0)
    return {"weights": _apart(made[1], expected), "copy": _apart(copied, expected.half())}


def _apart(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def main() -> None:
    """Print the errors of all small shapes as JSON."""
    os.environ["TRITON_INTERPRET"] = "1"
    from triton.runtime import interpreter

    from hypersparse.training.fused import triton_operations
    from hypersparse.training.fused.triton_operations import TritonOperations

    patch_tensors = interpreter._patch_lang_tensor

    def patch_and_count(tensor: Any, scope: Any) -> None:
        """Triton's own way to make a loop's length of a tensor fails with numpy 2.5."""
        patch_tensors(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patch_and_count
    torch.manual_seed(0)
    like = torch.zeros(())
    found = {name: errors(TritonOperations(), each, runs=2, like=like) for name, each in SMALL.items()}
    triton_operations.TILES, triton_operations.TILE_BLOCK, triton_operations.SMALL_BLOCK = 2, 512, 512
    triton_operations.MOST_TILES, triton_operations.GROUPS = 2, 4
    found["tiles of several blocks, and groups of tiles"] = errors(TritonOperations(), GROUPED, runs=2, like=like)
    tilings.FUSED_PAIRS = 0
    mixed = CudnnOperations(TritonOperations())
    found |= {f"{name}, by cuDNN": errors(mixed, each, runs=2, like=like) for name, each in SMALL.items()}
    tilings.FUSED_PAIRS = 16 * 32  # from the second stage on
    for model in (vgg(11, width=16, shape=(3, 16, 16), classes=4), resnet(8, width=16, shape=(3, 8, 8), classes=4)):
        model.to(memory_format=torch.channels_last).train()
        images = torch.randn(BATCH, 3, *[16 if type(model).__name__ == "VGG" else 8] * 2)
        found[type(model).__name__] = network_errors(mixed, model, images)
    found["optimizer"] = optimizer_errors()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
