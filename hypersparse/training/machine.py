"""`Machine`: device, precision and engine of a run; never part of a recipe's key."""

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from hypersparse.errors import OptionError
from hypersparse.options import option, options
from hypersparse.sparsity.collapse import OnCollapse

Engine = Literal["auto", "eager", "compiled", "cudagraph", "fused"]
CAPTURED = ("cudagraph", "fused")
# Weights times pixels under which one CPU thread is used unless asked otherwise. On the digits, two threads on two idle
# cores take 22 s instead of 30 s, but when something else keeps one core busy they wait for each other: 179 s.
# The bits of a result depend on the number of threads, so it also makes small runs the same on every machine.
SMALL_NETWORK = 10_000_000
MOST_WORKERS = 16  # unless more are asked for: each takes some hundred megabytes


@options
class Machine:
    """The device, its precision, how often work is saved, and what is worth stopping for."""

    device: str = option(default="auto", help="cpu, cuda, cuda:1, or auto: a GPU where there is one.")
    precision: Literal["fp32", "tf32", "bf16"] = option(
        default="fp32", help="Of convolutions and products; weights are fp32."
    )
    engine: Engine = option(
        default="auto",
        help="How a step runs: eagerly; with a compiled network; compiled and captured as one CUDA graph (cudagraph); "
        "or captured with fused kernels for convolutions and batch norms (fused), for networks of these in bf16.",
    )
    deterministic: bool = option(default=False, help="The same bits every time on CUDA too, at some cost in speed.")
    threads: int | None = option(
        default=None, help="CPU threads; by default one for a small network, otherwise torch's choice.", ge=1
    )
    stream: Literal["auto", "always", "never"] = option(
        default="auto", help="Read the images batch by batch: auto where they take more than `memory_share`."
    )
    memory_share: float = option(
        default=0.5, help="Share of the free memory that a data set may take on the device.", gt=0, le=1
    )
    workers: int | None = option(
        default=None, help="Processes that decode streamed images; by default one for each core, at most 16.", ge=0
    )
    checkpoint_seconds: float = option(default=20.0, help="Write a checkpoint at most this often.", ge=0)
    on_collapse: OnCollapse = option(
        default="warn",
        help="When a mask leaves a layer without weights, or no path from input to output: warn, error or ignore.",
    )

    def torch_device(self) -> torch.device:
        """The device; raises an error if it is missing."""
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(name)
        except RuntimeError:
            raise OptionError(f"`device` is cpu, cuda or cuda:N; got {self.device}.") from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise OptionError(
                f"`--device {self.device}` needs a CUDA device and {torch.cuda.device_count()} were found; "
                "use `--device cpu`, or check the driver with nvidia-smi."
            )
        return device

    def chosen_engine(self) -> Engine:
        """The engine: on a GPU fused in bf16 and cudagraph otherwise unless `deterministic`, on a CPU eager."""
        if self.engine == "fused" and self.precision != "bf16":
            raise OptionError("`--engine fused` computes in bf16; add `--precision bf16`, or use `--engine cudagraph`.")
        cuda = self.torch_device().type == "cuda"
        if self.engine == "auto":
            fastest: Engine = "fused" if self.precision == "bf16" else "cudagraph"
            return fastest if cuda and not self.deterministic else "eager"
        return self.engine if cuda or self.engine not in CAPTURED else "eager"

    def captures(self) -> bool:
        """Whether steps are captured as CUDA graphs."""
        return self.chosen_engine() in CAPTURED

    def loading_workers(self) -> int:
        """Processes that decode images for a run."""
        return min(cores(), MOST_WORKERS) if self.workers is None else self.workers

    def autocast(self) -> AbstractContextManager[None]:
        """The context of every forward pass."""
        # No cache: a captured step must cast the weights again in every replay.
        kind = self.torch_device().type
        return torch.autocast(kind, torch.bfloat16, enabled=self.precision == "bf16", cache_enabled=False)

    def limit_threads_(self, weights: int, shape: tuple[int, ...]) -> None:
        """Use one CPU thread for a small network, unless `threads` is set; `active` restores the number."""
        if self.threads is None and is_small(weights, shape):
            torch.set_num_threads(1)

    @contextmanager
    def active(self) -> Iterator[torch.device]:
        """Set torch's global switches for a run, and restore them afterwards."""
        device = self.torch_device()
        before = (
            torch.backends.cuda.matmul.allow_tf32,
            torch.backends.cudnn.allow_tf32,
            torch.backends.cudnn.benchmark,
            torch.backends.cudnn.benchmark_limit,
            torch.are_deterministic_algorithms_enabled(),
            torch.get_num_threads(),
        )
        _set_switches(
            self.precision == "tf32",
            self.precision == "tf32",
            device.type == "cuda" and not self.deterministic,
            0,  # try all of cuDNN's algorithms, not the first ten
            self.deterministic,
            self.threads or before[-1],
        )
        try:
            # Streams, graphs and random numbers are the current device's unless one says otherwise.
            with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
                yield device
        finally:
            _set_switches(*before)


def is_small(weights: int, shape: tuple[int, ...]) -> bool:
    """Whether one core suffices for a network on images of this shape."""
    return weights * math.prod(shape[1:]) < SMALL_NETWORK


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _set_switches(
    matmul: bool, cudnn: bool, benchmark: bool, benchmark_limit: int | None, deterministic: bool, threads: int
) -> None:
    torch.backends.cuda.matmul.allow_tf32 = matmul
    torch.backends.cudnn.allow_tf32 = cudnn
    torch.backends.cudnn.benchmark = benchmark
    if benchmark_limit is not None:  # a CPU build has none
        torch.backends.cudnn.benchmark_limit = benchmark_limit
    if deterministic != torch.are_deterministic_algorithms_enabled():  # it imports the compiler, for two seconds
        torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)
