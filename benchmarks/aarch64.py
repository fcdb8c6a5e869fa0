"""Instructions of the sparse runtime on 64-bit ARM, beside dense ONNX Runtime, counted by QEMU.

QEMU executes programs for other processors and counts their instructions with a plugin. It knows neither pipelines nor
caches, so these figures are no times. What a process does once is left out: two runs differ by the images they compute.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo import dense_twin
from hypersparse import zoo
from hypersparse.errors import OptionError
from hypersparse.export.onnx import save_graph_onnx
from hypersparse.export.sparse_file import load_graph
from hypersparse_runtime import SparseModel
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.kernel_program import write_program
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from tests.runtime.replay import replay, set_tiles_

ROOT = Path(__file__).parents[1]
PLUGIN = Path(__file__).with_name("firmware") / "count_instructions.c"
TOOLS = ("gcc", "aarch64-linux-gnu-gcc", "qemu-aarch64")
FLAGS = ["-O3", "-std=gnu11", "-static", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"]
SECONDS = 600
FEW, MORE = 1, 3  # images
MOST_APART = 1e-5  # of the largest output
RUN_ONNX = """
import sys, numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
images = numpy.load(sys.argv[2])
for image in images[: int(sys.argv[3])]:
    session.run(None, {session.get_inputs()[0].name: image[None]})
"""
Row = dict[str, Any]


def measure_zoo(names: Sequence[str], python: Sequence[str], ended: Callable[[Row], None]) -> list[Row]:
    """A row for each network. `python` is the command of a Python for 64-bit ARM with ONNX Runtime, or nothing."""
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        raise OptionError(f"{missing[0]} is not installed; Debian has it in gcc-aarch64-linux-gnu or qemu-user.")
    rows, dense = [], {}
    with tempfile.TemporaryDirectory() as folder:
        counter = Counter(Path(folder))
        for name in names:
            entry, graph = zoo.entry(name), load_graph(zoo.path_of(name))
            images = np.random.default_rng(0).normal(size=(MORE, *graph.input_shape)).astype(np.float32)
            key = entry.model, graph.input_shape
            if python and key not in dense:
                dense[key] = counter.of_onnx(dense_twin(entry.model, graph).graph, images, python)
            ours = min(counter.of_runtime(graph, images, rows=rows) for rows in (True, False))
            row = {"name": name, "sparse_runtime": ours, "onnxruntime": dense.get(key)}
            rows.append({**row, "fewer": dense[key] / ours if python else None})
            ended(rows[-1])
    return rows


class Counter:
    """Counts the instructions of programs in a folder that has the plugin and the kernel."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.plugin, self.kernel = folder, folder / "count.so", folder / "replay"
        _run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(self.plugin), str(PLUGIN)])
        sources = ("tests/runtime/replay.c", "hypersparse_runtime/kernel/kernel.c")
        _run(["aarch64-linux-gnu-gcc", *FLAGS, "-o", str(self.kernel), *(str(ROOT / source) for source in sources)])

    def of_runtime(self, graph: Graph, images: NDArray[np.float32], *, rows: bool) -> float:
        """Instructions of one image in the kernel, whose outputs are checked, in one of the two layouts of values."""
        program = write_program(place(with_lazy_bias(without_dead_channels(layers_of(graph))), rows=rows), 1, vector=4)
        set_tiles_(program)
        wanted = SparseModel(graph, engine="numpy")(images)

        def run(count: int) -> None:
            found = replay(program, images[:count], self.folder, [*self._qemu(), str(self.kernel)])
            if np.abs(found - wanted[:count]).max() > MOST_APART * np.abs(wanted).max():
                raise RuntimeError("The kernel for 64-bit ARM computes other outputs.")

        return self._of_one(run)

    def of_onnx(self, graph: Graph, images: NDArray[np.float32], python: Sequence[str]) -> float:
        """Instructions of one image in ONNX Runtime."""
        model, inputs = self.folder / "dense.onnx", self.folder / "images.npy"
        save_graph_onnx(graph, model, batch=1)
        np.save(inputs, images)
        command = [*self._qemu(), *python, "-c", RUN_ONNX, str(model), str(inputs)]
        return self._of_one(lambda count: _run([*command, str(count)]))

    def _qemu(self) -> list[str]:
        return ["qemu-aarch64", "-plugin", f"{self.plugin},out={self.folder / 'count'}"]

    def _of_one(self, run: Callable[[int], object]) -> float:
        counts = []
        for count in (FEW, MORE):
            run(count)
            counts.append(int((self.folder / "count").read_text()))
        return (counts[1] - counts[0]) / (MORE - FEW)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr + done.stdout)[-2000:]}")
