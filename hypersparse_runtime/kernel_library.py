"""Load the kernel: from the package, from the cache, or compiled with the machine's C compiler."""

import ctypes
import os
import platform
import stat
import tempfile
from functools import cache
from pathlib import Path

from hypersparse_runtime.compile_kernel import SOURCES, KernelError, build, file_name
from hypersparse_runtime.kernel_tables import FIELDS

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
LEVELS = {"x86_64": ("plain", "avx2", "avx512"), "aarch64": ("neon",), "arm64": ("neon",)}


class Kernel:
    """The shared library with typed functions."""

    def __init__(self, path: Path) -> None:
        try:
            self.library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelError(f"The kernel {path} cannot be loaded: {error}.") from None
        number, pointer, real = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
        signatures = {
            "hs_step_size": (number, []),
            "hs_levels": (number, []),
            "hs_int8": (number, []),
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
        self.has_int8 = bool(self.library.hs_int8())  # and those of int8.py

    def peak_gflops(self, level: int) -> float:
        """Billions of floating-point operations a second on one core, with operands in registers."""
        return max(float(self.library.hs_peak(level, 200_000)) for _ in range(5))


@cache
def load_kernel() -> Kernel:
    """The kernel for this machine. The first call compiles it, which takes some seconds."""
    shipped = SOURCES / file_name()
    if shipped.exists():
        return Kernel(shipped)
    try:
        kept = cache_folder() / file_name()
        return Kernel(kept if is_private(kept) else build(kept))
    except OSError:  # no folder of this user's alone: built for this process
        with tempfile.TemporaryDirectory(prefix="hypersparse-") as private:
            return Kernel(build(Path(private) / file_name()))


def cache_folder() -> Path:
    """The folder for compiled kernels, private to this user."""
    folder = Path.home() / ".cache" / "hypersparse" / "kernels"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not is_private(folder):
        raise PermissionError(f"{folder} belongs to another user, or others can write to it.")
    return folder


def is_private(path: Path) -> bool:
    """Whether only this user can change a file or folder: a library runs with all rights of the user."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return not stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & OTHERS_WRITE
