"""Compile the kernel to WebAssembly: `python -m hypersparse_runtime.compile_wasm` (needs clang and wasm-ld).

The result, `kernel/kernel.wasm`, is committed, since wheels are built without clang. It holds the digest of the sources
that it was compiled from.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hypersparse_runtime.compile_kernel import BUILD_SECONDS, SOURCES, KernelError

WASM = SOURCES / "kernel.wasm"
LINKERS = ("wasm-ld", "wasm-ld-14", "wasm-ld-16", "wasm-ld-18", "wasm-ld-19")
FLAGS = (
    *("--target=wasm32", "-O3", "-msimd128", "-mbulk-memory", "-std=gnu11"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-w"),
)
EXPORTS = ("hs_run", "hs_step_size", "__heap_base")
LINK_FLAGS = ("--no-entry", "--strip-all", *(f"--export={name}" for name in EXPORTS))
UNROLL = re.compile(r"^#pragma GCC unroll.*$", re.MULTILINE)  # clang unrolls what it names too early, by a wrong factor
SECTION = b"hypersparse sources"


def source_digest() -> str:
    """The digest of the sources of `kernel.wasm`."""
    digest = hashlib.sha256(" ".join((*FLAGS, *LINK_FLAGS, UNROLL.pattern)).encode())
    for source in sorted(SOURCES.glob("*.[ch]")):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def stored_origin(wasm: bytes) -> tuple[str, str]:
    """The digest of the sources and the compiler that a built file names in its last section; empty if it has none."""
    _, _, origin = wasm.rpartition(bytes([len(SECTION)]) + SECTION)
    digest, _, compiler = origin.decode("ascii", errors="replace").partition(" ")
    return digest, compiler


def compiler_version(compiler: str) -> str:
    """The first line of `clang --version`, such as `Debian clang version 14.0.6`."""
    return _run([compiler, "--version"], "").decode("ascii", errors="replace").splitlines()[0][:60]


def find_tools() -> tuple[str, str] | None:
    """Clang and its linker for WebAssembly."""
    compiler, linker = shutil.which("clang"), next(filter(None, map(shutil.which, LINKERS)), None)
    return (compiler, linker) if compiler and linker else None


def build_wasm() -> bytes:
    """The kernel as a WebAssembly module without imports."""
    tools = find_tools()
    if tools is None:
        raise KernelError("Building for WebAssembly needs clang and wasm-ld: apt-get install clang lld.")
    with tempfile.TemporaryDirectory() as folder:
        object_file, module = Path(folder) / "kernel.o", Path(folder) / "kernel.wasm"
        text = _run([tools[0], *FLAGS, "-E", "kernel.c"], "").decode()
        _run([tools[0], *FLAGS, "-x", "cpp-output", "-c", "-", "-o", str(object_file)], UNROLL.sub("", text))
        _run([tools[1], *LINK_FLAGS, str(object_file), "-o", str(module)], "")
        content = module.read_bytes()
    name = bytes([len(SECTION)]) + SECTION
    payload = name + f"{source_digest()} {compiler_version(tools[0])}".encode()
    assert len(payload) < 128, "the size of a section is one byte"
    return content + b"\0" + bytes([len(payload)]) + payload  # a custom section


def _run(command: list[str], source: str) -> bytes:
    try:
        done = subprocess.run(
            command, input=source.encode(), capture_output=True, check=True, timeout=BUILD_SECONDS, cwd=SOURCES
        )
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", b"") or str(error).encode()).decode().strip().splitlines()[:1]
        raise KernelError(f"The kernel could not be built with {Path(command[0]).name}: {' '.join(reason)}") from None
    return done.stdout


if __name__ == "__main__":
    built = build_wasm()
    WASM.write_bytes(built)
    sys.stdout.write(f"{WASM}: {len(built):,} bytes\n")
