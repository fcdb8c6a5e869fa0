"""Roofline model of training: the least time of an epoch, from its FLOPs, its memory traffic and the device's peaks."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.timing import wait_for_stream
from benchmarks.workloads import Effort, Workload
from hypersparse import models
from hypersparse.sparsity.weights import PrunableWeights

# Passes over memory that no implementation of a step can avoid.
ACTIVATION_PASSES = 12  # over the outputs of conv and linear layers: conv, norm, relu, forward and backward
SCORING_SHARE = 1 / 3  # of a training step's arithmetic and traffic: forward only
WEIGHT_READS = 2  # forward and backward, in the precision of the products
STATE_PASSES = 6  # fp32: write the gradient; read weight, gradient, momentum; write weight, momentum
PENALTY_PASSES = 2  # fp32, over prunable weights: find w_kappa; the two sums. The rest can be fused into the optimizer
MASK_BYTES = 1  # per prunable weight
BYTES = {"bf16": 2, "tf32": 4, "fp32": 4}

# Measured on an H200 with large matrix products and copies: FLOP/s by precision, and bytes/s.
H200_FLOPS = {"bf16": 790e12, "tf32": 395e12}
H200_BYTES = 4.3e12


@dataclass(frozen=True)
class Peaks:
    """Peak throughput of a device, and the source of the figures."""

    flops: float
    bytes_per_second: float
    source: str


@dataclass(frozen=True)
class TrainingWork:
    """Work of training on one image, and the number of weights."""

    flops: float  # forward and backward
    activations: float
    parameters: int
    prunable: int


def count_work(workload: Workload, batch: int = 2) -> TrainingWork:
    """Count the work of a workload on the meta device, without computing anything."""
    model = models.build(workload.model, shape=workload.shape, classes=workload.classes).to("meta")
    sizes: list[int] = []

    def count(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        sizes.append(output.numel())

    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(count)
    images = torch.empty(batch, *workload.shape, device="meta")
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    flops = counter.get_total_flops() / batch
    return TrainingWork(flops, sum(sizes) / batch, parameters, PrunableWeights(model).total)


def roofline_seconds(work: TrainingWork, phase: str, precision: str, peaks: Peaks, *, images: int, steps: int) -> float:
    """Least seconds of an epoch in a phase, with the scoring of the pruned copy: the larger of both bounds."""
    width = BYTES[precision]
    passes = 1 + (SCORING_SHARE if phase == "regularized" else 0)
    flops = work.flops * images * passes
    traffic = work.activations * ACTIVATION_PASSES * width * images * passes
    per_step = work.parameters * (WEIGHT_READS * width + STATE_PASSES * 4)
    if phase == "regularized":
        per_step += work.prunable * PENALTY_PASSES * 4
    elif phase == "masked":
        per_step += work.prunable * MASK_BYTES
    return max(flops / peaks.flops, (traffic + per_step * steps) / peaks.bytes_per_second)


def epoch_roofline_seconds(
    work: TrainingWork, workload: Workload, phase: str, precision: str, peaks: Peaks, effort: Effort
) -> float:
    """Least seconds of an epoch over the whole data set."""
    steps = effort.steps_per_epoch(workload)
    return roofline_seconds(work, phase, precision, peaks, images=steps * effort.batch_size, steps=steps)


def peaks_of(device: torch.device, precision: str) -> Peaks:
    """Peaks of a device: known for an H200, otherwise measured with a large product and a large copy."""
    if device.type == "cuda" and "H200" in torch.cuda.get_device_name(device) and precision in H200_FLOPS:
        return Peaks(H200_FLOPS[precision], H200_BYTES, "known for the H200")
    size, count = (8192, 2**28) if device.type == "cuda" else (1024, 2**24)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    source = torch.ones(count, device=device)
    target = torch.empty_like(source)
    allowed = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        product_seconds = shortest_seconds(lambda: left @ right, device)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    copy_seconds = shortest_seconds(lambda: target.copy_(source), device)
    return Peaks(2 * size**3 / product_seconds, 2 * source.nbytes / copy_seconds, "measured by a short trial")


def shortest_seconds(work: Callable[[], object], device: torch.device, times: int = 5) -> float:
    """Shortest time of several calls in seconds, after one warm-up call."""
    seconds = []
    for _ in range(times + 1):
        wait_for_stream(device)
        began = time.perf_counter()
        work()
        wait_for_stream(device)
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
