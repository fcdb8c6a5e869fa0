"""A fused network against autograd, with the plain operations."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse.models.resnet import resnet
from hypersparse.models.vgg import vgg
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.fused import tilings
from hypersparse.training.fused.cudnn_operations import CudnnOperations
from hypersparse.training.fused.network import FusedNetwork, fits_kernels
from hypersparse.training.fused.operations import PlainOperations
from hypersparse.training.fused.trace import trace_network
from hypersparse.training.kernels.conv_tiling import Convolution
from tests.training.fused.compare_operations import inputs_of, results, runs_of

BATCH = 16
NETWORKS = {
    "resnet": (lambda: resnet(14, width=16, shape=(3, 16, 16), classes=10), (3, 16, 16)),
    "vgg": (lambda: vgg(11, width=16, shape=(3, 32, 32), classes=10), (3, 32, 32)),
}
PAIRS = {"none": 0, "the first": 16 * 16, "some": 16 * 32, "all": 128 * 128}  # of channels of the fused layers


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all gradients by name."""
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("fused_layers", PAIRS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_statistics_are_those_of_autograd(
    name: str, fused_layers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tilings, "FUSED_PAIRS", PAIRS[fused_layers])
    monkeypatch.setattr(tilings, "WITH_CUDNN", True)
    build, shape = NETWORKS[name]
    torch.manual_seed(0)
    models = [build().to(memory_format=torch.channels_last).train() for _ in range(2)]
    batches = [(torch.randn(BATCH, *shape), torch.randint(0, 10, (BATCH,))) for _ in models]
    expected = copy.deepcopy(models)
    for model, (images, labels) in zip(expected, batches, strict=True):
        functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
    memories = [FlatMemory(PrunableWeights(model)) for model in models]
    traced = [found for model in models if (found := trace_network(model, shape))]
    assert len(traced) == 2
    assert fits_kernels(traced[0], batch=BATCH, shape=shape)
    operations = CudnnOperations(PlainOperations())
    fused = FusedNetwork(traced, memories, operations, batch=BATCH, shape=shape, dtype=torch.float32)

    fused.refresh_()
    values = fused.forward([images for images, _ in batches])
    leaves = [value.movedim(-1, 1).requires_grad_() for value in values.detach()]
    for network, leaf, (_, labels) in zip(traced, leaves, batches, strict=True):
        functional.cross_entropy(network.tail(leaf), labels).backward()  # type: ignore[no-untyped-call]
    fused.backward_(torch.stack([leaf.grad.movedim(1, -1) for leaf in leaves if leaf.grad is not None]))

    for mine, theirs in zip(models, expected, strict=True):
        found, wanted = gradients_of(mine), gradients_of(theirs)
        assert found.keys() == wanted.keys()
        for key, gradient in wanted.items():
            assert torch.allclose(found[key], gradient, rtol=1e-3, atol=1e-5 * float(gradient.abs().max() + 1)), key
        for key, buffer in theirs.named_buffers():
            assert torch.allclose(dict(mine.named_buffers())[key].float(), buffer.float(), rtol=1e-5, atol=1e-6), key


def test_large_layers_are_refused_unless_cudnn_computes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (3, 32, 32)
    large, narrow = (trace_network(vgg(11, width=width, shape=shape, classes=10), shape) for width in (32, 8))
    assert large is not None
    assert narrow is not None
    monkeypatch.setattr(tilings, "WITH_CUDNN", False)
    assert not fits_kernels(large, batch=BATCH, shape=shape)
    monkeypatch.setattr(tilings, "WITH_CUDNN", True)
    assert fits_kernels(large, batch=BATCH, shape=shape)
    assert not fits_kernels(large, batch=BATCH - 2, shape=shape)  # 14 x 2 x 2 pixels of the last layers
    assert not fits_kernels(narrow, batch=BATCH, shape=shape)  # 8 channels


@pytest.mark.parametrize("side", [3, 1])
@pytest.mark.parametrize("stride", [1, 2])
def test_cudnn_s_convolutions_are_the_plain_ones(side: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two runs, with a filter that leaves the last row and column of the images out; the switches stay."""
    monkeypatch.setattr(tilings, "FUSED_PAIRS", 0)
    convolution = Convolution(4, 16, 32, 8, 6, side, stride, side // 2)
    torch.manual_seed(0)
    made, norms = inputs_of(convolution, runs=2, like=torch.zeros(()))
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    mixed = CudnnOperations(PlainOperations())
    expected = results(PlainOperations(), convolution, made, [runs_of(each, slice(None)) for each in norms])
    for (name, found), (_, wanted) in zip(results(mixed, convolution, made, norms), expected, strict=True):
        assert found.is_contiguous(), name
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4), name
    assert before == (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic)
