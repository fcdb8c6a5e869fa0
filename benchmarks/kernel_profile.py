"""Count and time the CUDA kernels of one captured training step by kind.

Kernels of a captured step run one after another, so the time that no kernel takes is a gap.
"""

import re
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.engines import batch_numbers, benchmark_recipe, build_step, random_dataset
from benchmarks.timing import wait_for_stream
from benchmarks.workloads import PHASES, Workload
from hypersparse.errors import OptionError
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import Training
from hypersparse.training.machine import Machine

BATCH_SIZE, STEPS, WARM_UP_STEPS = 64, 20, 10
OTHER = "other"
# A kernel is of the first kind whose pattern its name contains. Inductor's names list all operations of a kernel, also
# a convolution whose output it reads, so its prefixes come before the words of cuDNN's names.
KINDS = (
    ("optimizer", r"^_step$|multi_tensor|sgd"),
    ("penalty", r"^_(count_coarse|guess|move|settle|count_digit|pick|sum_tanh|write_gradient)$"),
    ("convolution, weight gradient", r"^(_sum|_add|add)_shares$|^conv_weight_gradient$|wgrad|backward_filter"),
    ("fused batch norm and ReLU", r"^(activate|tile_moments|combine_moments|relu_gradient|norm_gradient)$"),
    ("reductions (batch norm, loss)", r"^triton_(red|per)_|batch_norm|bn_fw|bn_bw|reduce_kernel"),
    ("elementwise", r"^triton_(poi|for)_|elementwise"),
    ("convolution, data gradient", r"^conv_data_gradient$|dgrad|backward_data"),
    ("layout change", r"nchwToNhwc|nhwcToNchw|transpose"),
    ("convolution, forward", r"^conv_forward$|fprop|implicit_convolve|convolve|conv2d"),
    ("matrix product", r"gemm|gemv|cutlass|splitKreduce"),
    ("selection and sorting", r"topk|[sS]ort|radix|gatherTopK"),
    ("copy and fill", r"Memcpy|Memset|copy|fill"),
)


def kind_of(kernel: str) -> str:
    """The kind of a kernel by its name.

    >>> kind_of("sm90_xmma_dgrad_implicit_gemm_bf16f32_nhwc"), kind_of("triton_poi_fused_convolution_relu_3")
    ('convolution, data gradient', 'elementwise')
    """
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel)), OTHER)


def step_table(kernels: Iterable[tuple[str, float]], *, steps: int, wall_microseconds: float) -> dict[str, Any]:
    """Kernels of one step by kind and by name, from all (name, microseconds) that ran in `steps` steps.

    `wall_microseconds` is the time of one step without the profiler. Longest first.
    """
    names: dict[str, list[float]] = {}
    for name, microseconds in kernels:
        names.setdefault(name, []).append(microseconds)
    kinds: dict[str, list[float]] = {}
    for name, times in names.items():
        kinds.setdefault(kind_of(name), []).extend(times)
    busy = sum(map(sum, names.values())) / steps
    return {
        "wall_microseconds": wall_microseconds,
        "busy_microseconds": busy,
        "gap_microseconds": wall_microseconds - busy,
        "kernels": sum(map(len, names.values())) / steps,
        "kinds": _per_step(kinds, steps),
        "names": _per_step(names, steps),
    }


def _per_step(groups: Mapping[str, list[float]], steps: int) -> dict[str, dict[str, float]]:
    longest_first = sorted(groups.items(), key=lambda group: -sum(group[1]))
    return {name: {"kernels": len(times) / steps, "microseconds": sum(times) / steps} for name, times in longest_first}


def profile_workload(workload: Workload, *, precision: str, engine: str) -> dict[str, Any]:
    """Profile a captured step of every phase of a workload; needs a CUDA device."""
    if not torch.cuda.is_available():
        raise OptionError(
            "`profile` counts the kernels of a captured step, which needs a CUDA device, and none was found. "
            "Run it on a machine with a GPU."
        )
    machine = Machine(device="cuda", precision=precision, engine=engine)  # type: ignore[arg-type]  # it checks them
    with machine.active() as device, tempfile.TemporaryDirectory() as folder:
        dataset = random_dataset(workload, workload.images, device)
        recipe = benchmark_recipe(workload, BATCH_SIZE)
        training = Training(recipe, 0, machine, device, dataset, RunFolder(folder), record=False)
        phases = {phase: _profile_phase(training, last=phase == PHASES[-1]) for phase in workload.phases}
        return {
            "model": workload.label,
            "device": torch.cuda.get_device_name(device),
            "torch": torch.__version__,
            "precision": precision,
            "engine": engine,
            "batch_size": BATCH_SIZE,
            "steps": STEPS,
            "phases": phases,
        }


def _profile_phase(training: Training, *, last: bool) -> dict[str, Any]:
    """Profile a step of the current phase, then advance to the next one unless this is the last."""
    device = training.sparsifier.weights.device
    build_step(training, training.machine.engine)
    step, numbers = training.step_of_phase(), batch_numbers(training.batches)

    def take_steps(count: int) -> None:
        for _ in range(count):
            step(next(numbers))

    take_steps(WARM_UP_STEPS)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    take_steps(STEPS)
    end.record()
    wait_for_stream(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        take_steps(STEPS)
        wait_for_stream(device)
    on_device = [event for event in profiler.events() or () if event.device_type == DeviceType.CUDA]
    kernels = [(event.name, event.device_time) for event in on_device]
    if not last:
        with training.machine.autocast():
            training.sparsifier.finish_epoch()
    return step_table(kernels, steps=STEPS, wall_microseconds=1000 * begin.elapsed_time(end) / STEPS)
