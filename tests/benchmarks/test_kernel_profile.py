import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import hypersparse
from benchmarks import kernel_profile
from benchmarks.__main__ import app
from benchmarks.kernel_profile import OTHER, kind_of, profile_workload, step_table
from benchmarks.workloads import workload_of
from hypersparse.errors import OptionError

PACKAGE = Path(hypersparse.__file__).parent


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64", "convolution, forward"),
        ("cutlass_tensorop_bf16_s16816wgrad_optimized_bf16_128x64_64x3_nhwc_align8", "convolution, weight gradient"),
        ("sm80_xmma_dgrad_implicit_gemm_bf16bf16_nhwckrsc_nhwc", "convolution, data gradient"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float>", "layout change"),
        ("triton_red_fused_convolution_native_batch_norm_7", "reductions (batch norm, loss)"),
        ("triton_poi_fused_convolution_relu_3", "elementwise"),
        ("_step", "optimizer"),
        ("_add_shares", "convolution, weight gradient"),
        ("Memset (Device)", "copy and fill"),
        ("a_step_further", OTHER),
    ],
)
def test_a_kernel_is_of_a_kind_by_its_name(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("training/kernels/sgd_kernel.py", "optimizer"),
        ("training/kernels/conv_kernel.py", "convolution, weight gradient"),
        ("sparsity/threshold_kernels.py", "penalty"),
    ],
)
def test_every_kernel_of_this_package_has_its_kind(file: str, kind: str) -> None:
    launched = set(re.findall(r"\b(_\w+)\[(?:\(|grid\])", (PACKAGE / file).read_text()))
    assert launched
    assert {kernel: kind_of(kernel) for kernel in launched} == dict.fromkeys(launched, kind)


def test_kernels_are_counted_and_timed_per_step() -> None:
    kernels = [("_step", 3.0), ("triton_poi_fused_relu_0", 4.0), ("triton_poi_fused_add_1", 2.0)] * 2
    table = step_table(kernels, steps=2, wall_microseconds=10.0)
    assert table["kernels"] == 3
    assert table["busy_microseconds"] == 9.0
    assert table["gap_microseconds"] == 1.0
    assert table["kinds"] == {
        "elementwise": {"kernels": 2.0, "microseconds": 6.0},
        "optimizer": {"kernels": 1.0, "microseconds": 3.0},
    }
    assert list(table["names"]) == ["triton_poi_fused_relu_0", "_step", "triton_poi_fused_add_1"]


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(OptionError, match="needs a CUDA device, and none was found"):
        profile_workload(workload_of("resnet8"), precision="bf16", engine="cudagraph")


def test_the_command_prints_a_row_for_each_kind_and_writes_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase = step_table([("_step", 30.0), ("_settle", 10.0)], steps=1, wall_microseconds=50.0)
    found = {"model": "resnet8", "device": "a GPU", "batch_size": 64, "phases": {"plain": phase}}
    monkeypatch.setattr(kernel_profile, "profile_workload", lambda workload, *, precision, engine: found)
    done = CliRunner().invoke(app, ["profile", "resnet8", "-o", str(tmp_path / "p.json")], catch_exceptions=False)
    rows = [line.split() for line in done.output.splitlines() if line.startswith("plain")]
    assert rows == [
        ["plain", "optimizer", "1", "30.0", "60.0", "%"],
        ["plain", "penalty", "1", "10.0", "20.0", "%"],
        ["plain", "gaps", "10.0", "20.0", "%"],
        ["plain", "step", "2", "50.0", "100.0", "%"],
    ]
    assert '"_settle"' in (tmp_path / "p.json").read_text()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
def test_a_captured_step_has_convolutions_and_an_optimizer() -> None:
    found = profile_workload(workload_of("resnet8"), precision="bf16", engine="cudagraph")
    assert list(found["phases"]) == ["plain", "regularized", "masked"]
    for phase in found["phases"].values():
        assert {"convolution, forward", "optimizer"} <= set(phase["kinds"])
        assert phase["busy_microseconds"] > 0
    assert "penalty" in found["phases"]["regularized"]["kinds"]
