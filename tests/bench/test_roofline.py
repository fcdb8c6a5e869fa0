import pytest
import torch

from hypersparse.bench.roofline import Peaks, Work, count_work, floor_seconds, peaks_of
from hypersparse.bench.workloads import workload_of

ONE = Work(flops=6.0, activations=0.0, parameters=0, prunable=0)


def test_resnet32_needs_what_was_counted_by_hand() -> None:
    work = count_work(workload_of("resnet32"))
    assert work.flops == pytest.approx(1.65e9, rel=0.02)
    # Convolutions: 11 of 32 x 32^2, 10 of 64 x 16^2, 10 of 128 x 8^2, two shortcuts; 10 classes.
    assert work.activations == 11 * 32768 + 10 * 16384 + 10 * 8192 + 16384 + 8192 + 10
    assert work.prunable == 1_855_584


def test_arithmetic_is_the_floor_where_it_takes_longer() -> None:
    peaks = Peaks(flops=2.0, bytes_per_second=1.0, source="")
    assert floor_seconds(ONE, "plain", "bf16", peaks, images=10, steps=1) == 30.0
    assert floor_seconds(ONE, "regularized", "bf16", peaks, images=10, steps=1) == pytest.approx(40.0)


def test_memory_is_the_floor_where_it_takes_longer() -> None:
    peaks = Peaks(flops=1e9, bytes_per_second=1.0, source="")
    activations = Work(flops=0.0, activations=1.0, parameters=0, prunable=0)
    assert floor_seconds(activations, "plain", "bf16", peaks, images=1, steps=1) == 24.0
    assert floor_seconds(activations, "plain", "fp32", peaks, images=1, steps=1) == 48.0
    weights = Work(flops=0.0, activations=0.0, parameters=1, prunable=1)
    assert floor_seconds(weights, "plain", "bf16", peaks, images=1, steps=2) == 2 * (2 * 2 + 6 * 4)
    assert floor_seconds(weights, "regularized", "bf16", peaks, images=1, steps=1) == 28 + 8
    assert floor_seconds(weights, "masked", "bf16", peaks, images=1, steps=1) == 28 + 1


def test_peaks_of_an_unknown_device_are_measured() -> None:
    peaks = peaks_of(torch.device("cpu"), "fp32")
    assert peaks.flops > 1e8
    assert peaks.bytes_per_second > 1e8
    assert "trial" in peaks.source
