"""Build the kernel into the wheel, so that users need no compiler; without one here, they do.

For another processor: CC=aarch64-linux-gnu-gcc _PYTHON_HOST_PLATFORM=linux-aarch64.
"""

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).resolve().parents[2] / "hypersparse_runtime"


class KernelHook(BuildHookInterface):  # type: ignore[misc]  # hatchling has no types
    """Called by hatchling for every wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library and the platform it is for."""
        if version == "editable":
            return
        spec = importlib.util.spec_from_file_location("compile_kernel", PACKAGE / "compile_kernel.py")
        assert spec is not None
        assert spec.loader is not None
        compile_kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compile_kernel)
        compiler = os.environ.get("CC") or compile_kernel.find_compiler()
        if compiler is None:
            return
        machine = sysconfig.get_platform().rpartition("-")[2]
        folder = Path(self.directory) / "kernel"
        folder.mkdir(parents=True, exist_ok=True)
        built = compile_kernel.build(folder / compile_kernel.file_name(machine), compiler=compiler)
        build_data["force_include"][str(built)] = f"hypersparse_runtime/kernel/{built.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
