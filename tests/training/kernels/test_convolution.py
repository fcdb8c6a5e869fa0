"""Convolutions with the kernel's gradient are what they were; on a CPU the kernel's twin stands in for it."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from hypersparse import models
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training import forward_backward
from hypersparse.training.flat_memory import FlatMemory
from hypersparse.training.forward_backward import replica_of
from hypersparse.training.kernels import convolution
from hypersparse.training.kernels.convolution import (
    KernelConv2d,
    conv_weight_gradient,
    function_cached,
    kernel_serves,
    use_kernel_,
)
from hypersparse.training.network import channels_last_

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles


def with_biases() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 16, 1, stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def residual() -> nn.Module:
    model = models.build("resnet8", shape=(3, 9, 9), classes=4, options={"width": 16})
    channels_last_(model)
    return model


def pair(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    other = copy.deepcopy(model)
    use_kernel_(other)
    return model, other


def gradients(model: Any, *, half: bool = False) -> dict[str, Tensor]:
    torch.manual_seed(1)
    images, labels = torch.randn(5, 3, 9, 9), torch.arange(5) % 4
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        outputs = model(images)
    functional.cross_entropy(outputs.float(), labels).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    for (name, one), other in zip(found.items(), expected.values(), strict=True):
        assert float((one - other).norm()) <= tolerance * float(other.norm()), name


@pytest.mark.parametrize("build", [with_biases, residual])
def test_gradients_are_those_of_the_plain_convolution(build: Any) -> None:
    plain, fast = pair(build())
    swapped = [type(module) for module in fast.modules()].count(KernelConv2d)
    assert swapped == (8 if build is residual else 2)  # all but the first, which has 3 channels
    assert_close(gradients(fast), gradients(plain), 1e-5)


@pytest.mark.parametrize("build", [with_biases, residual])
def test_the_whole_network_is_traced_as_one_graph(build: Any) -> None:
    plain, fast = pair(build())
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True, dynamic=False)
    assert_close(gradients(compiled), gradients(plain), 1e-5)


@pytest.mark.slow
def test_the_compiled_network_has_the_same_gradients() -> None:
    plain, fast = pair(with_biases())
    compiled = torch.compile(fast, fullgraph=True, dynamic=False)
    assert_close(gradients(compiled), gradients(plain), 1e-5)


@pytest.mark.parametrize("build", [with_biases, residual])
def test_in_bf16_the_gradients_agree_too(build: Any) -> None:
    model = build()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.weight.data = module.weight.data.bfloat16()
    plain, fast = pair(model)
    found, expected = gradients(fast, half=True), gradients(plain, half=True)
    assert all(found[name].dtype == gradient.dtype for name, gradient in expected.items())
    if build is residual:  # a CPU adds biases before it rounds, which a GPU does not
        assert all(torch.equal(found[name], expected[name]) for name in expected if expected[name].dim() == 1)
    assert_close(found, expected, 5e-3)


def test_names_parameters_and_hooks_stay() -> None:
    model = residual()
    seen: list[torch.Size] = []
    model.get_submodule("layer2.0.conv1").register_forward_hook(lambda _, __, out: seen.append(out.shape))
    plain, fast = pair(model)
    assert list(fast.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in fast.named_modules()] == [name for name, _ in plain.named_modules()]
    with torch.no_grad():
        fast(torch.zeros(2, 3, 8, 8))
    assert seen == [torch.Size((2, 32, 4, 4))]
    assert all(isinstance(module, nn.Conv2d) for module in fast.modules() if hasattr(module, "kernel_size"))


def test_images_that_need_no_gradient_get_none() -> None:
    layer = nn.Conv2d(16, 16, 3, padding=1)
    use_kernel_(layer)
    images = torch.randn(2, 16, 5, 5)
    with torch.autograd.profiler.profile() as profile:
        layer(images).sum().backward()
    names = {event.name for event in profile.function_events}
    assert "aten::convolution_backward" not in names
    assert "hypersparse::conv_weight_gradient" in names
    assert images.grad is None


def test_where_cudnn_was_faster_the_parent_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, fast = pair(residual())
    monkeypatch.setattr(convolution, "worth_it", lambda _: False)
    monkeypatch.setattr(convolution, "_Convolve", None)
    assert_close(gradients(fast), gradients(plain), 0)


def test_one_image_without_a_batch_is_left_to_the_parent() -> None:
    plain = nn.Conv2d(16, 16, 3, padding=1)
    fast = copy.deepcopy(plain)
    use_kernel_(fast)
    image = torch.randn(16, 5, 5)
    assert torch.equal(fast(image), plain(image))


def test_the_operator_keeps_what_it_promises_the_compiler() -> None:
    last = torch.channels_last
    for side, padding in ((1, 0), (3, 1)):
        images = torch.randn(2, 16, 6, 6).contiguous(memory_format=last)
        torch.library.opcheck(conv_weight_gradient, (images, torch.randn(2, 32, 3, 3), side, 2, padding))


def test_the_kernel_serves_gpus_with_bf16_where_triton_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def serves(device: str, *, kernel: Any = conv_weight_gradient, major: int = 9, shared: int = 228) -> bool:
        gpu = SimpleNamespace(major=major, shared_memory_per_multiprocessor=shared * 1024)
        monkeypatch.setattr(convolution, "kernel", lambda: kernel)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
        return kernel_serves(torch.device(device))

    assert serves("cuda")
    assert serves("cuda:1", major=8, shared=164)  # an A100
    assert not serves("cuda", major=8, shared=100)  # a card for games
    assert not serves("cpu")
    assert not serves("cuda", kernel=None)
    assert not serves("cuda", major=7)


def test_what_is_compiled_with_it_may_be_kept() -> None:
    config = torch._functorch.config
    before = config.autograd_cache_allow_custom_autograd_functions
    with function_cached():
        assert config.autograd_cache_allow_custom_autograd_functions
    assert config.autograd_cache_allow_custom_autograd_functions == before


def check_replica(device: str, swapped: int) -> None:
    """A replica's gradients are about those of autocast, and its network alone is changed."""
    model = residual().to(device)
    channels_last_(model)
    weights = PrunableWeights(model)
    replica = replica_of(FlatMemory(weights))
    assert replica is not None
    assert [type(module) for module in replica.model.modules()].count(KernelConv2d) == swapped
    assert KernelConv2d not in {type(module) for module in model.modules()}
    replica.refresh_()
    images, labels = torch.randn(5, 3, 9, 9, device=device), torch.arange(5, device=device) % 4
    expected = copy.deepcopy(model)
    for network in (replica.model, expected):
        with torch.autocast(device, torch.bfloat16):
            outputs = network(images)
        functional.cross_entropy(outputs.float(), labels).backward()
    replica.give_gradients_()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert_close(found, {name: parameter.grad for name, parameter in expected.named_parameters()}, 2e-2)


@pytest.mark.parametrize("serves", [True, False])
def test_a_replica_uses_the_kernel_where_it_can(serves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward_backward, "kernel_serves", lambda _: serves)
    check_replica("cpu", 8 if serves else 0)


@pytest.mark.gpu
def test_a_replica_on_a_gpu_uses_it() -> None:
    pytest.importorskip("triton")
    check_replica("cuda", 8)
