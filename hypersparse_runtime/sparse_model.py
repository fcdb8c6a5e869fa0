"""`SparseModel`: a network ready to predict."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypersparse_runtime.compile_kernel import KernelError
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.dense_engines import DENSE_ENGINES, DenseEngine, NumpyEngine, installed_engines
from hypersparse_runtime.engine_selection import Engine, Fastest, trial
from hypersparse_runtime.file import read
from hypersparse_runtime.graph import INPUT, Graph, shapes
from hypersparse_runtime.kernel_library import load_kernel
from hypersparse_runtime.lowering import dense_products, layers_of
from hypersparse_runtime.sparse_engine import SparseEngine
from hypersparse_runtime.sparse_layers import Network

ENGINES = ("auto", "hypersparse", *(engine.name for engine in DENSE_ENGINES), "numpy")
SURELY_SPARSE = 0.08  # share of the products from which dense engines are not even tried
SURELY_DENSE = 0.6
HALF_DENSE = 0.25  # from which dense engines are faster as a rule, where nothing is measured
MOST_TRIED = 2**33  # products of a dense network that is run to measure it: some 0.3 s; VGG-16 for 224x224 has 1.5e10
SURELY_TRIED, PER_WEIGHT = 2**29, 2**12  # fewer, and for each weight: huge kernels run at a hundredth of the speed
MOST_DENSE = 512  # operations of a network that dense engines are tried with: OpenVINO takes 0.4 ms or more for each
CLEARLY = 2.0  # times as fast as a dense engine on single images: then in batches too, where VGG-19 keeps 0.6 of that


class SlowWarning(UserWarning):
    """The network runs on an engine that does not profit from its zeros."""


class SparseModel:
    """A network that predicts on the CPU and computes only its nonzero weights.

    >>> from hypersparse_runtime.graph import INPUT, Node
    >>> weight = np.array([[0, 2, 0], [1, 0, 0]], dtype=np.float32)
    >>> model = SparseModel(Graph((3,), (Node("linear", (INPUT,), "y", {"weight": "w"}),), {"w": weight}))
    >>> model(np.array([[1, 2, 3]], dtype=np.float32)).tolist()
    [[4.0, 1.0]]
    """

    def __init__(
        self,
        graph: Graph,
        *,
        threads: int | None = None,
        engine: str = "auto",
        instructions: str | None = None,
        int8: bool = False,
    ) -> None:
        """`threads` share the images of a batch; by default as many as there are cores.

        `engine` is `hypersparse`, the sparse kernel, or one of the dense engines `onnxruntime`, `openvino` and `numpy`.
        `auto` takes the kernel if the network has few enough weights, else the fastest installed engine.
        `instructions` restricts the kernel to an instruction set. `int8` lets it round weights and inputs of layers to
        int8 where that is faster; `int8_layers` counts them.
        """
        if engine not in ENGINES:
            raise ValueError(f"`engine` is one of {', '.join(ENGINES)}; got `{engine}`.")
        if threads is not None and threads < 1:
            raise ValueError(f"`threads` is a count of 1 or more; got {threads}.")
        self.graph = graph
        self.input_shape = tuple(graph.input_shape)
        self.output_shape = shapes(graph)[graph.output]
        self.threads = threads or cores()
        self.dense_products = dense_products(graph)
        self._ids = id_count(graph)
        network = without_dead_channels(layers_of(graph))
        self.products = network.products()
        self._engine = self._chosen(network, engine, instructions, int8=int8)

    @classmethod
    def load(
        cls, path: str | Path, *, threads: int | None = None, engine: str = "auto", int8: bool = False
    ) -> "SparseModel":
        """The network in a `.hsp` file; raises FileError with one sentence if the file is damaged."""
        return cls(read(path), threads=threads, engine=engine, int8=int8)

    @property
    def engine(self) -> str:
        """The name of the engine for single images."""
        return self.engine_for(1)

    def engine_for(self, images: int) -> str:
        """The name of the engine for batches of this size."""
        if images < 1:
            raise ValueError(f"`images` is a count of 1 or more; got {images}.")
        engine = self._engine
        return (engine.engine_for(images) if isinstance(engine, Fastest) else engine).name

    @property
    def int8_layers(self) -> int:
        """The number of layers that run in int8 for single images."""
        engine = self._engine
        chosen = engine.engine_for(1) if isinstance(engine, Fastest) else engine
        return chosen.int8_layers if isinstance(chosen, SparseEngine) else 0

    @property
    def about(self) -> dict[str, Any]:
        """Classes, normalisation and other facts stored in the file."""
        return dict(self.graph.about)

    def __call__(self, images: NDArray[Any], *, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Outputs for a batch (number, channels, height, width), written to `out` if given."""
        if not isinstance(images, np.ndarray) or images.dtype != np.float32 or not images.flags.c_contiguous:
            images = self._as_floats(images)
        if images.shape[1:] != self.input_shape or images.ndim != len(self.input_shape) + 1:
            expected = ", ".join(["number", *map(str, self.input_shape)])
            raise ValueError(f"The network takes images of the shape ({expected}); got {images.shape}.")
        shape = (len(images), *self.output_shape)
        if out is None:
            out = np.empty(shape, dtype=np.float32)
        elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError(f"`out` must be a writeable float32 array of the shape {shape} without gaps.")
        if len(images):
            self._check_ids(images)
            self._engine.run(images, out)
        return out

    def _check_ids(self, inputs: NDArray[Any]) -> None:
        """Token numbers must be rows of the embedding; the kernel would clip them."""
        if self._ids is None:
            return
        low, high = float(inputs.min()), float(inputs.max())
        if not (low >= 0 and high < self._ids and (inputs == np.floor(inputs)).all()):
            most = self._ids - 1
            raise ValueError(
                f"The network takes token numbers, whole numbers from 0 to {most}; got {low:g} to {high:g}."
            )

    def _as_floats(self, images: Any) -> NDArray[np.float32]:
        """Convert images of another type or order; refuse values that cannot be images."""
        given = np.asarray(images)
        if given.dtype.kind not in "fiub":
            raise ValueError(f"Images are arrays of numbers, best of float32; got {given.dtype}.")
        if given.dtype.kind in "iu" and given.ndim > 1 and "normalisation" in self.graph.about:
            raise ValueError(
                f"The network takes normalised images, (pixel / scale - mean) / std with what `about['normalisation']` "
                f"says, as float32; got {given.dtype}, as pixels are."
            )
        return np.ascontiguousarray(given, dtype=np.float32)

    def _chosen(self, network: Network, engine: str, instructions: str | None, *, int8: bool) -> Engine:
        if engine == "numpy":
            return NumpyEngine(self.graph)
        if engine not in ("auto", "hypersparse"):
            return self._handed_over(engine)
        share = self.products / max(self.dense_products, 1)
        may_be_dense = len(self.graph.nodes) <= MOST_DENSE and installed_engines()
        if engine == "auto" and instructions is None and share > SURELY_DENSE and may_be_dense:
            return self._fastest([*map(self._made, installed_engines())])
        try:
            sparse = self._sparse(network, instructions, int8=int8)
        except KernelError as error:
            if engine == "hypersparse":
                raise
            return self._without_kernel(str(error))
        return sparse if engine == "hypersparse" else self._perhaps_dense(sparse, share)

    def _perhaps_dense(self, sparse: SparseEngine, share: float) -> Engine:
        """A dense engine, if so many products remain that it is faster."""
        if share < SURELY_SPARSE or len(self.graph.nodes) > MOST_DENSE:
            return sparse
        if not installed_engines():
            if share > HALF_DENSE:
                warnings.warn(_dense_sentence(share), SlowWarning, stacklevel=5)
            return sparse
        first, *others = installed_engines()
        if not self._is_tried():
            return sparse if share < HALF_DENSE else self._made(first)
        dense = self._made(first)
        seconds, dense_seconds = trial([sparse, dense], 1, self.input_shape, self.output_shape, threads=self.threads)
        if dense_seconds > CLEARLY * seconds:
            return sparse
        return self._fastest([sparse, dense, *map(self._made, others)])

    def _is_tried(self) -> bool:
        """Whether dense engines are timed at load."""
        weights = sum(array.size for array in self.graph.tensors.values())
        return self.dense_products <= min(MOST_TRIED, max(SURELY_TRIED, PER_WEIGHT * weights))

    def _sparse(self, network: Network, instructions: str | None, *, int8: bool) -> SparseEngine:
        kernel = load_kernel()
        levels = (
            kernel.levels[1:] or kernel.levels
        )  # plain code rounds each product, and a network has the same bits always
        if instructions is not None:
            if instructions not in kernel.levels:
                raise ValueError(f"This CPU's instruction sets are {', '.join(kernel.levels)}; got `{instructions}`.")
            levels = (instructions,)
        return SparseEngine(network, kernel, threads=self.threads, levels=levels, int8=int8)

    def _without_kernel(self, reason: str) -> Engine:
        if installed_engines():
            names = " or ".join(engine.title for engine in installed_engines())
            warnings.warn(f"{reason} The network runs dense, in {names}.", SlowWarning, stacklevel=5)
            return self._fastest([*map(self._made, installed_engines())])
        warnings.warn(f"{reason} The network runs in numpy, which is slow.", SlowWarning, stacklevel=5)
        return NumpyEngine(self.graph)

    def _handed_over(self, engine: str) -> Engine:
        for each in installed_engines():
            if each.name == engine:
                return self._made(each)
        raise ValueError(f"The engine `{engine}` is a package that is not installed here: pip install {engine}.")

    def _made(self, engine: DenseEngine) -> Engine:
        return engine(self.graph, threads=self.threads)

    def _fastest(self, engines: list[Engine]) -> Engine:
        if len(engines) == 1 or not self._is_tried():
            return engines[0]
        return Fastest(engines, self.input_shape, self.output_shape, threads=self.threads)


def id_count(graph: Graph) -> int | None:
    """The rows of the smallest embedding that reads the input; None if there is none."""
    views, counts = {INPUT}, []
    for node in graph.nodes:
        if node.operation.rearranges and node.inputs[0] in views:
            views.add(node.output)
        if node.op == "embedding" and node.inputs[0] in views:
            counts.append(len(graph.tensors[node.tensors["weight"]]))
    return min(counts, default=None)


def takes_tokens(graph: Graph) -> bool:
    """Whether embeddings alone read the input."""
    views, embeddings = {INPUT}, 0
    for node in graph.nodes:
        if node.op == "constant" or views.isdisjoint(node.inputs):
            continue
        if node.operation.rearranges:
            views.add(node.output)
        elif node.op == "embedding":
            embeddings += 1
        else:
            return False
    return embeddings > 0 and graph.output not in views


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _dense_sentence(share: float) -> str:
    return (
        f"The network needs {share:.0%} of a dense one's products, too many for a sparse kernel to be faster. "
        "Install onnxruntime or openvino to run it there."
    )
