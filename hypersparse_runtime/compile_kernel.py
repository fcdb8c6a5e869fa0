"""Compile the kernel from its source. Only the standard library is used, since wheels are built with this file too."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "kernel"
COMPILERS = ("cc", "gcc", "clang")
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")
BUILD_SECONDS = 300  # that a compiler may take; 13 s of one core are usual


class KernelError(RuntimeError):
    """The kernel cannot be compiled or loaded on this machine; the message is one sentence."""


def file_name(machine: str | None = None) -> str:
    """The library's file name for this source, system and processor; the name changes with the source."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return f"kernel-{sys.platform}-{machine or platform.machine()}-{digest.hexdigest()[:16]}.so"


def find_compiler() -> str | None:
    """The C compiler of this machine."""
    return next((name for name in COMPILERS if shutil.which(name)), None)


def build(target: Path, *, compiler: str | None = None) -> Path:
    """Compile the kernel; the file appears whole or not at all."""
    compiler = compiler or find_compiler()
    if compiler is None:
        raise KernelError(f"No C compiler was found to build the kernel with; looked for {', '.join(COMPILERS)}.")
    handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".so")
    os.close(handle)
    command = [compiler, *FLAGS, "-o", partial, str(SOURCES / "kernel.c")]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
        Path(partial).chmod(0o755)
        Path(partial).replace(target)
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[:1]
        raise KernelError(f"The kernel could not be built with {compiler}: {' '.join(reason)}") from None
    finally:
        Path(partial).unlink(missing_ok=True)
    return target
