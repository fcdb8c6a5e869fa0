"""The kernel built so that it notices what it should not touch, and programs run in it with exact memory."""

import ctypes
import subprocess
from pathlib import Path
from random import Random

import numpy as np

from hypersparse_runtime.compile_kernel import FLAGS, SOURCES, find_compiler
from hypersparse_runtime.kernel_library import Kernel
from hypersparse_runtime.kernel_program import Program
from hypersparse_runtime.tuning import TUNED, _variants, new_workspace

CHECKED = ("-DHYPERSPARSE_CHECKED", "-O0")  # 6 s of a core; 32 s with -O1
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def build_checked(target: Path, *, sanitized: bool) -> Path:
    """Compile it; the address sanitizer has to be loaded before Python (LD_PRELOAD)."""
    compiler = find_compiler()
    assert compiler is not None
    flags = [flag for flag in FLAGS if flag != "-O3"] + [*CHECKED, *(SANITIZED if sanitized else ())]
    subprocess.run([compiler, *flags, "-o", str(target), str(SOURCES / "kernel.c")], check=True)
    return target


class CheckedKernel(Kernel):
    """Ends the process where a program leaves its memory."""

    def outputs(self, program: Program, images: np.ndarray) -> np.ndarray:
        """What a program makes of images."""
        size = int(np.prod(program.output_shape))
        outputs = np.zeros((len(images), size), np.float32)
        workspace, tables = new_workspace(program), program.tables.copy()
        for first in range(0, len(images), program.lanes):  # a block of images at a time: exactly what it may touch
            part = np.ascontiguousarray(images[first : first + program.lanes])
            made = np.zeros((len(part), size), np.float32)
            touched = (tables, workspace, part, made)
            addresses = (ctypes.c_void_p * 4)(*(array.ctypes.data for array in touched))
            self.library.hs_check(addresses, (ctypes.c_int64 * 4)(*(array.nbytes for array in touched)))
            data = [array.ctypes.data for array in touched]
            sizes = (program.image_size, size, len(part), program.lanes)
            self.run(program.steps.ctypes.data, len(program.steps), *data, *sizes)
            outputs[first : first + len(part)] = made
        return outputs.reshape(len(images), *program.output_shape)


def set_variants_(program: Program, kernel: Kernel, level: str, random: Random) -> None:
    """Any of the variants that a measurement might choose."""
    program.steps["level"] = kernel.levels.index(level)
    for number in np.flatnonzero(np.isin(program.steps["kind"], TUNED)):
        step = program.steps[number : number + 1].copy()
        variants = [each.copy() for each in _variants(step, kernel, (level,))]
        program.steps[number] = random.choice(variants)[0]
