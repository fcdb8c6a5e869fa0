"""A short part of the runtime's fuzzer: networks that fit together and are extreme, in a kernel that checks itself."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz import fuzz_runtime
from tests.fuzz.checked_kernel import CheckedKernel, build_checked
from tests.fuzz.children import Outcome, in_child, virtual_bytes
from tests.runtime.test_program_check import strided, written

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> CheckedKernel:
    return CheckedKernel(build_checked(tmp_path_factory.mktemp("kernel") / "kernel.so", sanitized=False))


def test_extreme_networks_are_refused_or_run_as_in_numpy(kernel: CheckedKernel, tmp_path: Path) -> None:
    counts, findings = fuzz_runtime.fuzz(range(1, 16), kernel, tmp_path)
    assert not findings
    assert counts["ran"] > 8
    assert counts["refused"] > 0


@pytest.mark.parametrize("name", ["input", "output"])
def test_the_checked_kernel_ends_where_a_step_leaves_its_memory(name: str, kernel: CheckedKernel) -> None:
    program = written(strided(), rows=False)
    images = np.zeros((1, 3, 32, 32), np.float32)
    assert kernel.outputs(program, images).shape == (1, 4)
    steps = program.steps.copy()
    steps[name][-2] = program.workspace_floats

    def work() -> Outcome:
        kernel.outputs(replace(program, steps=steps), images)
        return Outcome("ran")

    assert in_child(work, baseline=virtual_bytes()).said == "signal SIGABRT"
