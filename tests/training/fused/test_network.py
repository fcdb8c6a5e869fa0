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
from hypersparse.training.fused.network import FusedNetwork, fits_kernels
from hypersparse.training.fused.operations import PlainOperations
from hypersparse.training.fused.trace import trace_network

BATCH = 16
NETWORKS = {
    "resnet": (lambda: resnet(14, width=16, shape=(3, 16, 16), classes=10), (3, 16, 16)),
    "vgg": (lambda: vgg(11, width=16, shape=(3, 32, 32), classes=10), (3, 32, 32)),
}


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of all gradients by name."""
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_and_statistics_are_those_of_autograd(name: str) -> None:
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
    fused = FusedNetwork(traced, memories, PlainOperations(), batch=BATCH, shape=shape, dtype=torch.float32)

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
