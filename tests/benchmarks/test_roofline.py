import pytest
import torch

from benchmarks.roofline import Peaks, TrainingWork, count_work, peaks_of, roofline_seconds
from benchmarks.workloads import workload_of

ONE_IMAGE = TrainingWork(flops=6.0, activations=0.0, parameters=0, prunable=0)


def test_the_work_of_resnet32_matches_a_count_by_hand() -> None:
    work = count_work(workload_of("resnet32"))
    assert work.flops == pytest.approx(1.65e9, rel=0.02)
    # Convolutions: 11 of 32 x 32^2, 10 of 64 x 16^2, 10 of 128 x 8^2, two shortcuts; 10 classes.
    assert work.activations == 11 * 32768 + 10 * 16384 + 10 * 8192 + 16384 + 8192 + 10
    assert work.prunable == 1_855_584


def test_flops_bound_the_time_if_they_take_longer() -> None:
    peaks = Peaks(flops=2.0, bytes_per_second=1.0, source="")
    assert roofline_seconds(ONE_IMAGE, "plain", "bf16", peaks, images=10, steps=1) == 30.0
    assert roofline_seconds(ONE_IMAGE, "regularized", "bf16", peaks, images=10, steps=1) == pytest.approx(40.0)


def test_memory_traffic_bounds_the_time_if_it_takes_longer() -> None:
    peaks = Peaks(flops=1e9, bytes_per_second=1.0, source="")
    activations = TrainingWork(flops=0.0, activations=1.0, parameters=0, prunable=0)
    assert roofline_seconds(activations, "plain", "bf16", peaks, images=1, steps=1) == 24.0
    assert roofline_seconds(activations, "plain", "fp32", peaks, images=1, steps=1) == 48.0
    weights = TrainingWork(flops=0.0, activations=0.0, parameters=1, prunable=1)
    assert roofline_seconds(weights, "plain", "bf16", peaks, images=1, steps=2) == 2 * (2 * 2 + 6 * 4)
    assert roofline_seconds(weights, "regularized", "bf16", peaks, images=1, steps=1) == 28 + 8
    assert roofline_seconds(weights, "masked", "bf16", peaks, images=1, steps=1) == 28 + 1


def test_peaks_of_an_unknown_device_are_measured() -> None:
    peaks = peaks_of(torch.device("cpu"), "fp32")
    assert peaks.flops > 1e8
    assert peaks.bytes_per_second > 1e8
    assert "trial" in peaks.source
