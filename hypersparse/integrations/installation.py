"""The parts of this installation: what works on this machine, and what is missing."""

import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import torch

from hypersparse import __version__
from hypersparse.plurals import how_many
from hypersparse.training.kernels.convolution import kernel_serves
from hypersparse.training.result import code_version
from hypersparse_runtime import kernel_library
from hypersparse_runtime.compile_kernel import KernelError

EXTRAS = {  # extra -> its packages and what it is for
    "onnx": (("onnx", "onnxscript"), "hypersparse export -o model.onnx"),
    "engines": (("onnxruntime", "openvino"), "dense networks in the runtime"),
    "lightning": (("lightning",), "hypersparse.integrations.lightning"),
    "transformers": (("transformers", "accelerate"), "hypersparse.integrations.transformers"),
    "accelerate": (("accelerate",), "attach in a loop of Accelerate"),
    "datasets": (("pyarrow",), "folders of Arrow and Parquet files"),
    "hub": (("huggingface_hub",), "hypersparse.integrations.hub"),
    "tensorboard": (("tensorboard",), "--track tensorboard"),
    "wandb": (("wandb",), "--track wandb:PROJECT"),
    "mlflow": (("mlflow-skinny",), "--track mlflow:URI"),
    "ray": (("ray",), "hypersparse sweep --executor ray"),
    "tune": (("optuna",), "hypersparse tune"),
    "docs": (("mkdocs-material", "mkdocstrings"), "building the documentation site"),
}
State = Literal["ok", "missing", "failed"]


@dataclass(frozen=True)
class Finding:
    """One part of the installation: whether it works, and what it is for or what to do."""

    part: str
    state: State
    found: str
    note: str = ""


def findings() -> list[Finding]:
    """The versions, devices, engines, kernel and extras of this installation."""
    return [*_versions(), *_devices(), *_engines(), _kernel(), *_extras()]


def _versions() -> Iterator[Finding]:
    yield Finding("hypersparse", "ok", __version__, code_version())
    yield Finding("Python", "ok", platform.python_version(), platform.platform())
    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs"
    yield Finding("PyTorch", "ok", str(torch.__version__), f"{built}, {how_many(torch.get_num_threads(), 'thread')}")


def _devices() -> Iterator[Finding]:
    names = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    for number, name in enumerate(names):
        yield Finding(f"GPU {number}", "ok", name, f"--device cuda:{number}")
    if not names:
        yield Finding("GPU", "missing", "none", "training runs on the CPU; see nvidia-smi if there should be one")


def _engines() -> Iterator[Finding]:
    cuda = torch.cuda.is_available()
    yield Finding("engine eager", "ok", "", "")
    compiler = _installed("triton") if cuda else shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler:
        yield Finding("engine compiled", "ok", compiler, "--engine compiled")
    else:
        yield Finding("engine compiled", "missing", "", f"needs {'Triton' if cuda else 'a C++ compiler'}")
    if cuda:
        yield Finding("engine cudagraph", "ok", "", "the default on a GPU in fp32 and tf32")
    else:
        yield Finding("engine cudagraph", "missing", "", "needs a GPU")
    if cuda and kernel_serves(torch.device("cuda")):
        yield Finding("engine fused", "ok", "", "the default on a GPU in bf16")
    else:
        yield Finding("engine fused", "missing", "", "needs Triton and a GPU such as an A100 or H100")


def _kernel() -> Finding:
    part = "sparse runtime"
    try:
        return Finding(
            part, "ok", kernel_library.load_kernel().levels[-1], "the kernel for hypersparse.runtime.SparseModel"
        )
    except KernelError as error:
        return Finding(part, "failed", "", str(error))


def _extras() -> Iterator[Finding]:
    for extra, (packages, purpose) in EXTRAS.items():
        found = {package: _installed(package) for package in packages}
        if all(found.values()):
            yield Finding(
                f"extra {extra}", "ok", ", ".join(f"{name} {number}" for name, number in found.items()), purpose
            )
        else:
            yield Finding(f"extra {extra}", "missing", "", f"{purpose}: pip install 'hypersparse[{extra}]'")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
