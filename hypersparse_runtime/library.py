"""The kernel: found beside this file, in the cache, or built from its source with the machine's C compiler."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from hypersparse_runtime.program import FIELDS

SOURCES = Path(__file__).parent / "kernel"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
LEVELS = {"x86_64": ("plain", "avx2", "avx512"), "aarch64": ("neon",), "arm64": ("neon",)}
BUILD_SECONDS = 120  # that a compiler may take


class KernelError(RuntimeError):
    """The kernel cannot be built or loaded here; the message is one sentence."""


class Kernel:
    """The shared library, with its functions' types."""

    def __init__(self, path: Path) -> None:
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelError(f"The kernel {path} cannot be loaded: {error}.") from None
        number, pointer, real = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
        signatures = {
            "hs_step_size": (number, []),
            "hs_levels": (number, []),
            "hs_run": (None, [pointer, number, pointer, pointer, pointer, pointer, number, number, number, number]),
            "hs_time": (real, [pointer, pointer, pointer, number]),
            "hs_peak": (real, [number, number]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        if self.library.hs_step_size() != len(FIELDS):
            raise KernelError(f"The kernel {path} belongs to another version of hypersparse_runtime; delete it.")
        self.run, self.time = self.library.hs_run, self.library.hs_time
        known = LEVELS.get(platform.machine(), ("plain",))
        self.levels = known[: self.library.hs_levels()]  # instruction sets that this CPU has, the widest last

    def peak_gflops(self, level: int) -> float:
        """Billions of floating point operations a second of one core, with operands in registers."""
        return max(float(self.library.hs_peak(level, 200_000)) for _ in range(5))


@cache
def load_kernel() -> Kernel:
    """The kernel for this machine; built the first time, which takes a few seconds."""
    shipped = SOURCES / file_name()
    if shipped.exists():
        return Kernel(shipped)
    try:
        folder = cache_folder()
        kept = folder / file_name()
        return Kernel(kept if kept.exists() else build(kept))
    except OSError:  # no home folder to write to: built for this process alone
        with tempfile.TemporaryDirectory(prefix="hypersparse-") as private:
            return Kernel(build(Path(private) / file_name()))


def file_name() -> str:
    """Of the library for this source, system and processor: another source has another name."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return f"kernel-{sys.platform}-{platform.machine()}-{digest.hexdigest()[:16]}.so"


def cache_folder() -> Path:
    """Where built kernels are kept, for this user alone."""
    folder = Path.home() / ".cache" / "hypersparse" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def build(target: Path, compiler: str | None = None) -> Path:
    """Compile the kernel; the file appears whole or not at all."""
    compiler = compiler or next((name for name in COMPILERS if shutil.which(name)), None)
    if compiler is None:
        raise KernelError(f"No C compiler was found to build the kernel with; looked for {', '.join(COMPILERS)}.")
    handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    command = [compiler, *FLAGS, "-o", partial, str(SOURCES / "kernel.c")]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
        Path(partial).replace(target)
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[:1]
        raise KernelError(f"The kernel could not be built with {compiler}: {' '.join(reason)}") from None
    finally:
        Path(partial).unlink(missing_ok=True)
    return target
