"""How much memory a data set needs on the device, and whether it is streamed instead."""

import re
from pathlib import Path

import torch

from hypersparse.data.dataset import Dataset
from hypersparse.errors import DataError
from hypersparse.training.machine import Machine

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def is_streamed(dataset: Dataset, machine: Machine) -> bool:
    """Whether the images are streamed, with the same results. Raises an error if they must fit and do not."""
    if machine.stream == "always":
        return True
    if machine.stream == "never" and dataset.must_stream(dataset.train):
        raise DataError(
            f"The random crops of {dataset.name} are decoded in every epoch; leave out `--stream never`, or the "
            "`augment` of the data."
        )
    device = machine.torch_device()
    needed, free = dataset.bytes_needed(device), free_bytes(device)
    if machine.stream == "auto":
        return needed > machine.memory_share * free
    if needed > free:
        raise DataError(
            f"{dataset.name} needs {gigabytes(needed)} on {device}, where {gigabytes(free)} are free; "
            "leave out `--stream never`, or make the images smaller with --set data.size=N."
        )
    return False


def describe_memory(dataset: Dataset, machine: Machine) -> str:
    """The memory that the images of a data set need, in one line."""
    device = machine.torch_device()
    images, shape = len(dataset.train) + len(dataset.test), " x ".join(map(str, dataset.shape))
    needed = gigabytes(dataset.train.nbytes + dataset.test.nbytes)
    ending = "streamed" if is_streamed(dataset, machine) else f"kept on {device}"
    if dataset.must_stream(dataset.train):
        ending = "the training images are streamed, since every crop of them is decoded again"
    return f"{images:,} images of {shape} need {needed}; {gigabytes(free_bytes(device))} are free on {device}: {ending}"


def gigabytes(count: float) -> str:
    """A number of bytes in words.

    >>> gigabytes(184_320_000), gigabytes(7_526_400_000)
    ('184 MB', '7.5 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.{0 if count >= 1e7 else 1}f} MB"


def free_bytes(device: torch.device) -> int:
    """Free memory of a device; on a CPU within the limit of the container."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = re.search(r"MemAvailable:\s+(\d+) kB", _text(MEMINFO))
    limits = [int(found[1]) * 1024] if found else []
    limit, used = (_text(CGROUP / name).strip() for name in ("memory.max", "memory.current"))
    if limit.isdigit() and used.isdigit():
        limits.append(max(int(limit) - int(used), 0))
    return min(limits, default=1 << 62)  # not known on other systems than Linux


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""
