import pytest
import torch

from benchmarks.workloads import effort_for, parse_counts, plan_cases, workload_of
from hypersparse.errors import OptionError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_all_cases_of_a_gpu_are_planned_most_important_first() -> None:
    cases = [(case.workload.label, case.engine, case.runs) for case in plan_cases(CUDA, quick=False)]
    captured = [(engine, runs) for engine in ("cudagraph", "fused") for runs in (1, 5, 10)]
    engines = [("reference", 1), *captured, ("eager", 1), ("compiled", 1)]
    large = [("resnet32-64x64", engine, 1) for engine in ("reference", "cudagraph", "fused")]
    assert cases == [(model, *engine) for model in ("resnet32", "vgg19") for engine in engines] + large


def test_fused_kernels_are_measured_in_bf16_alone() -> None:
    assert {case.engine for case in plan_cases(CUDA, quick=False, precision="tf32")} == {
        "reference",
        "cudagraph",
        "eager",
        "compiled",
    }


def test_on_a_cpu_nothing_is_captured_and_quick_compiles_nothing() -> None:
    full, quick = plan_cases(CPU, quick=False), plan_cases(CPU, quick=True)
    assert [case.engine for case in full] == ["reference", "eager", "compiled"] * 2
    assert [case.engine for case in quick] == ["reference", "eager"] * 2
    assert {case.runs for case in full + quick} == {1}


def test_an_epoch_is_781_steps_of_64() -> None:
    workload = workload_of("resnet32")
    assert effort_for(CUDA, quick=False).steps_per_epoch(workload) == 781
    assert effort_for(CUDA, quick=False).steps == 100
    assert effort_for(CUDA, quick=False).images_of(workload_of("resnet32-64x64")) == 100_000
    assert effort_for(CPU, quick=False, steps=7).images_of(workload) == 7 * 64


@pytest.mark.parametrize(
    ("device", "choice", "sentence"),
    [
        (CPU, {"labels": ["resnet33"]}, "did you mean `resnet32`"),
        (CPU, {"engines": ["eagre"]}, "did you mean `eager`"),
        (CPU, {"engines": ["cudagraph"]}, "Only steps on a CUDA device"),
        (CPU, {"runs": [1, 5]}, "on CUDA only"),
        (CUDA, {"runs": [0]}, "1 or more"),
        (CUDA, {"engines": ["eager"], "runs": [5]}, "captured steps"),
    ],
)
def test_choices_that_cannot_be_measured_raise_an_error(
    device: torch.device, choice: dict[str, list[str]], sentence: str
) -> None:
    with pytest.raises(OptionError, match=sentence):
        plan_cases(device, quick=False, **choice)  # type: ignore[arg-type]


def test_counts_are_whole_numbers() -> None:
    assert parse_counts(" 1, 5,10") == [1, 5, 10]
    with pytest.raises(OptionError, match="comma-separated whole numbers"):
        parse_counts("1;5")
