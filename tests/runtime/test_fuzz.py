"""A short part of the runtime's fuzzer: networks that fit together and are extreme, in a kernel that checks itself."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.kernel_program import write_program
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.tuning import VECTOR
from hypersparse_runtime.winograd import with_winograd
from tests.fuzz import fuzz_runtime
from tests.fuzz.checked_kernel import CheckedKernel, build_checked, set_variants_
from tests.fuzz.children import Outcome, in_child, virtual_bytes
from tests.runtime.networks import computed
from tests.runtime.test_int8 import behind_relu
from tests.runtime.test_int8 import written as in_int8_written
from tests.runtime.test_program_check import strided, written
from tests.runtime.test_winograd import conv_graph

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> CheckedKernel:
    return CheckedKernel(build_checked(tmp_path_factory.mktemp("kernel") / "kernel.so", sanitized=False))


def test_extreme_networks_are_refused_or_run_as_in_numpy(kernel: CheckedKernel, tmp_path: Path) -> None:
    counts, findings = fuzz_runtime.fuzz(range(1, 16), kernel, tmp_path)
    assert not findings
    assert counts["ran"] > 8
    assert counts["refused"] > 0


@pytest.mark.parametrize(("height", "kernel_x"), [(4, 3), (7, 3), (16, 5)])
def test_transformed_layers_stay_in_their_memory(height: int, kernel_x: int, kernel: CheckedKernel) -> None:
    graph = conv_graph((height, 16), kernel=(3, kernel_x), kept=0.7, channels=10)
    network = with_winograd(layers_of(graph), cost=0)
    assert network.layers[0].kind == "winograd_input"
    images = np.random.default_rng(1).normal(size=(9, *graph.input_shape)).astype(np.float32)
    wanted = computed(graph, images)
    for level in kernel.levels:
        for rows, lanes in ((True, 1), (False, 1), (False, 16)):
            program = write_program(place(network, rows=rows), lanes, VECTOR[level])
            set_variants_(program, kernel, level, Random(0))
            assert np.abs(kernel.outputs(program, images) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.skipif(not load_kernel().has_int8, reason="this CPU has no AVX-512 VNNI")
@pytest.mark.parametrize("sides", [(8, 8), (7, 6), (16, 16), (3, 48)], ids=str)
@pytest.mark.parametrize("folded", [True, False])
def test_layers_in_int8_stay_in_their_memory(sides: tuple[int, int], folded: bool, kernel: CheckedKernel) -> None:
    graph = behind_relu(conv_graph(sides, kept=0.7, channels=10))
    images = np.random.default_rng(1).normal(size=(2, *graph.input_shape)).astype(np.float32)
    wanted = computed(graph, images)
    program = in_int8_written(graph, folded=folded)
    set_variants_(program, kernel, "avx512", Random(0))
    assert np.abs(kernel.outputs(program, images) - wanted).max() <= 0.02 * np.abs(wanted).max()


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
