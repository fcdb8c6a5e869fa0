"""C source compiled with gcc for this machine. A folder holds one network: libraries of one path are loaded once."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from hypersparse.export.c_source import save_c
from hypersparse.export.quantized_graph import QuantizedGraph
from hypersparse_runtime.graph import Graph, shapes

STRICT = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wno-sign-conversion"]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc here")


def predicted(network: Graph | QuantizedGraph, inputs: Tensor, folder: Path) -> NDArray[np.generic]:
    """What the compiled source gives for inputs of the network's own type."""
    run = compiled(network, folder)
    run(inputs[-1:])  # a second call finds the arena used
    return run(inputs)


def compiled(network: Graph | QuantizedGraph, folder: Path) -> Callable[[Tensor], NDArray[np.generic]]:
    """A function that runs the compiled source on inputs of the network's own type, one by one."""
    save_c(network, folder / "net-1.c")
    command = ["gcc", *STRICT, "-O2", "-shared", "-fPIC", "-o", str(folder / "net.so"), str(folder / "net-1.c"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    predict = ctypes.CDLL(str(folder / "net.so")).net_1_predict
    if isinstance(network, QuantizedGraph):
        kinds, shape = ("int8", network.values[network.output].dtype), network.shapes[network.output]
    else:
        kinds, shape = ("float32", "float32"), shapes(network)[network.output]

    def run(inputs: Tensor) -> NDArray[np.generic]:
        given = np.ascontiguousarray(inputs.numpy().astype(kinds[0]))
        made = np.zeros((len(given), *shape), kinds[1])
        for one, out in zip(given, made, strict=True):
            predict(one.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p))
        return made

    return run
