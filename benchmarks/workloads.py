"""Cases of the training benchmark: a workload, an engine and a number of concurrent runs, most important first."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hypersparse import models
from hypersparse.errors import OptionError, unknown
from hypersparse.training.machine import CAPTURED

PHASES = ("plain", "regularized", "masked")  # ART's pre-train, regularize and fine-tune
SPARSITY = 0.98
LR = 0.01  # does not affect the times; with random labels, 0.1 may diverge to NaN
REFERENCE = "reference"
ENGINES = (REFERENCE, *CAPTURED, "eager", "compiled")
MODELS = ("resnet32", "vgg19", "resnet32-64x64")
LARGE = "-64x64"
RUNS = (1, 5, 10)


@dataclass(frozen=True)
class Workload:
    """A network, and the shape and number of the images it trains on."""

    label: str
    model: str
    shape: tuple[int, int, int]
    classes: int
    images: int
    phases: tuple[str, ...] = PHASES


@dataclass(frozen=True)
class TrainingCase:
    """One engine on one workload, with a number of concurrent runs."""

    workload: Workload
    engine: str
    runs: int = 1

    @property
    def title(self) -> str:
        """The description shown while it runs."""
        return f"{self.workload.label} {self.engine}" + (f", {self.runs} at once" if self.runs > 1 else "")


@dataclass(frozen=True)
class Effort:
    """The amount of work that is timed before scaling to an epoch."""

    steps: int
    warm_up_steps: int
    batch_size: int
    images: int | None  # in memory; None: as many as the data set has
    limit_seconds: float = math.inf  # time limit for the timed steps of a phase
    threads: int | None = None  # of a CPU; None: PyTorch's default
    quick: bool = False

    def images_of(self, workload: Workload) -> int:
        """The number of images in memory."""
        return workload.images if self.images is None else min(self.images, workload.images)

    def steps_per_epoch(self, workload: Workload) -> int:
        """Full batches in an epoch of the whole data set."""
        return workload.images // self.batch_size


def effort_for(device: torch.device, *, quick: bool, steps: int | None = None) -> Effort:
    """A hundred steps on a GPU, ten on a CPU, where a step takes a second, and three small ones with `quick`.

    `quick` uses one thread: on a busy machine, threads that wait for each other would dominate the time.
    """
    if quick:
        steps = steps or 3
        return Effort(steps, 1, 8, images=8 * steps, limit_seconds=1.5, threads=1, quick=True)
    if device.type == "cuda":
        return Effort(steps or 100, 10, 64, images=None)
    steps = steps or 10
    return Effort(steps, 2, 64, images=64 * steps)


def workload_of(label: str) -> Workload:
    """The workload of a label: shape of CIFAR-10, or of TinyImageNet if the label ends in -64x64.

    >>> workload_of("resnet32-64x64").shape
    (3, 64, 64)
    """
    name = label.removesuffix(LARGE)
    if ":" not in name and name not in models.names():
        raise OptionError(unknown("model", label, {*models.names(), *MODELS}))
    if label.endswith(LARGE):
        return Workload(label, name, (3, 64, 64), 200, 100_000)
    return Workload(label, name, (3, 32, 32), 10, 50_000)


def plan_cases(
    device: torch.device,
    *,
    quick: bool,
    labels: Sequence[str] | None = None,
    engines: Sequence[str] | None = None,
    runs: Sequence[int] | None = None,
    precision: str = "bf16",
) -> list[TrainingCase]:
    """All cases, the most important first; an argument of None selects the default of the device and precision.

    Captured steps and several runs at once exist on CUDA only. The large shape is measured with the reference and
    one captured run.
    """
    cuda = device.type == "cuda"
    if labels is None:
        labels = MODELS if cuda and not quick else MODELS[:2]
    if engines is None:
        engines = ENGINES if cuda else (REFERENCE, "eager") if quick else (REFERENCE, "eager", "compiled")
        engines = [engine for engine in engines if engine != "fused" or precision == "bf16"]
    captured = not set(CAPTURED).isdisjoint(engines)
    if runs is None:
        runs = RUNS if cuda and captured else (1,)
    check_choices(cuda, engines, runs)
    cases = []
    for workload in map(workload_of, labels):
        large = workload.label.endswith(LARGE)
        for engine in (engine for engine in ENGINES if engine in engines):
            if large and cuda and engine not in (REFERENCE, *CAPTURED):
                continue
            counts = [1] if engine not in CAPTURED or large else sorted(set(runs))
            cases += [TrainingCase(workload, engine, count) for count in counts]
    return cases


def check_choices(cuda: bool, engines: Sequence[str], runs: Sequence[int]) -> None:
    """Raise an error for choices that cannot be measured on this device."""
    for engine in engines:
        if engine not in ENGINES:
            raise OptionError(unknown("engine", engine, ENGINES))
    captured = [engine for engine in engines if engine in CAPTURED]
    if captured and not cuda:
        raise OptionError(f"Only steps on a CUDA device can be captured; leave `{captured[0]}` out of --engines here.")
    if not runs or min(runs) < 1:
        raise OptionError(f"`--runs` are counts of 1 or more, such as 1,5,10; got {','.join(map(str, runs))}.")
    if max(runs) > 1 and not captured:
        raise OptionError("Several runs at once are measured with captured steps, on CUDA only; leave --runs out.")


def parse_counts(text: str, *, option: str = "--runs") -> list[int]:
    """Parse comma-separated whole numbers.

    >>> parse_counts("1,5")
    [1, 5]
    """
    if not re.fullmatch(r"\s*\d+\s*(,\s*\d+\s*)*", text):
        raise OptionError(f"`{option}` are comma-separated whole numbers, such as 1,5,10; got `{text}`.")
    return [int(part) for part in text.split(",")]


def parse_names(text: str) -> list[str]:
    """Parse comma-separated names.

    >>> parse_names("resnet32, vgg19")
    ['resnet32', 'vgg19']
    """
    return [part.strip() for part in text.split(",") if part.strip()]
