import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from benchmarks import reference_loop
from hypersparse import models
from hypersparse.sparsity import penalties
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.weights import PrunableWeights

CPU = torch.device("cpu")


def small_loop(batch_size: int = 4, lr: float = 0.1) -> reference_loop.ReferenceLoop:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8, 3), dtype=np.uint8)
    data = reference_loop.TransformedImages(pixels, [number % 4 for number in range(16)], [0.5] * 3, [0.25] * 3)
    model = models.build("resnet8", shape=(3, 8, 8), classes=4, options={"width": 4})
    loop: reference_loop.ReferenceLoop = reference_loop.ReferenceLoop(
        model, data, batch_size=batch_size, sparsity=0.9, lr=lr, device=CPU
    )
    return loop


def one_batch() -> list[torch.Tensor]:
    return [torch.randn(4, 3, 8, 8), torch.arange(4)]


@pytest.mark.parametrize("sparsity", [0.5, 0.9, 0.98])
def test_autograd_through_its_penalty_gives_our_gradient(sparsity: float) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(32, 4))
    layers = reference_loop.prunable_layers(model)
    value = reference_loop.penalty(layers, sparsity)
    value.backward()
    weights = PrunableWeights(model)
    vector = weights.vector().detach()
    ours = penalties.hypersparse_grad(vector, keep_count(vector.numel(), sparsity))
    theirs = torch.cat([layer.weight.grad.flatten() for layer in layers])
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    assert abs(value.item()) < 1e-3


def test_its_masked_steps_keep_dropped_weights_at_zero() -> None:
    loop = small_loop()
    loop.step("plain", one_batch())
    loop.prune()
    for _ in range(3):
        loop.step("masked", one_batch())
    weights = torch.cat([layer.weight.flatten() for layer in loop.layers])  # type: ignore[attr-defined]
    masks = torch.cat([mask.flatten() for mask in loop.masks])  # type: ignore[attr-defined]
    assert (weights[~masks] == 0).all()
    # Strictly above the threshold, as in the authors' code.
    assert int(masks.sum()) == keep_count(masks.numel(), 0.9) - 1


def test_the_pruned_copy_does_not_change_the_network() -> None:
    loop = small_loop()
    before = [layer.weight.clone() for layer in loop.layers]  # type: ignore[attr-defined]
    pruned, _ = loop.pruned_copy()
    loop.score(pruned, one_batch())
    assert all(torch.equal(layer.weight, old) for layer, old in zip(loop.layers, before, strict=True))  # type: ignore[attr-defined]
    assert not pruned.training


def test_a_regularized_step_shrinks_weights_more_than_a_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {}
    for phase in ("plain", "regularized"):
        torch.manual_seed(0)
        monkeypatch.setattr(reference_loop, "STRENGTH", 1e-2)
        loop = small_loop(lr=0.01)
        loop.step(phase, one_batch())
        sums[phase] = sum(layer.weight.abs().sum().item() for layer in loop.layers)  # type: ignore[attr-defined]
    assert sums["regularized"] < sums["plain"]


def test_transforms_keep_shape_and_range() -> None:
    image = Image.fromarray(np.full((6, 9, 3), 255, dtype=np.uint8))
    assert reference_loop.random_crop(image).size == image.size
    tensor = reference_loop.as_tensor(image)
    assert tensor.shape == (3, 6, 9)
    assert tensor.dtype == torch.float32
    assert tensor.unique().tolist() == [1.0]
    assert reference_loop.normalised(tensor, [0.5] * 3, [0.25] * 3).unique().tolist() == [2.0]


def test_a_crop_is_padded_with_black_and_moved_by_at_most_four_pixels() -> None:
    image = Image.fromarray(np.full((8, 8, 3), 255, dtype=np.uint8))
    kept = {int((np.array(reference_loop.random_crop(image)) > 0).all(axis=2).sum()) for _ in range(200)}
    assert min(kept) >= 16
    assert max(kept) == 64


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Python 3.12 on forks
def test_workers_return_batches() -> None:
    batches = list(small_loop().batches())
    assert [tuple(images.shape) for images, _ in batches] == [(4, 3, 8, 8)] * 4
    assert sorted(int(label) for _, labels in batches for label in labels) == sorted(list(range(4)) * 4)


def test_hits_count_the_top_places() -> None:
    outputs = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    labels = torch.tensor([0, 0])
    assert float(reference_loop.hits(outputs, labels, 1)) == 0.5
    assert float(reference_loop.hits(outputs, labels, 5)) == 1.0
