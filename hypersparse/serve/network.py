"""`Served`: a sparse network, and the same network with stored zeros."""

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special

from hypersparse.errors import ModelError
from hypersparse.export.graph_module import to_module
from hypersparse.export.input_normalization import Normalisation
from hypersparse.plurals import how_many
from hypersparse.serve.images import DIGIT, Pixels, as_png
from hypersparse_runtime import Graph, GraphError, SparseModel
from hypersparse_runtime.dense_engines import DENSE_ENGINES, OnnxRuntimeEngine, is_installed
from hypersparse_runtime.engine_selection import Engine
from hypersparse_runtime.graph import shapes
from hypersparse_runtime.onnx import to_onnx

SHOWN = 5  # classes, the most probable first
CALLS, LEAST_CALLS = 25, 3  # of each network per image, in turns
SECONDS = 0.4  # the time limit of calls
ENGINES = {
    "hypersparse": "hypersparse",
    "numpy": "numpy",
    "torch": "PyTorch",
    **{engine.name: engine.title for engine in DENSE_ENGINES},
}

Outputs = NDArray[np.float32]


@dataclass(frozen=True)
class Labels:
    """The classes, and notes about missing facts in the file."""

    classes: tuple[str, ...]
    normalisation: Normalisation
    notes: tuple[str, ...] = field(default=())


class Served:
    """A network that predicts, and is timed in turns with its dense twin."""

    def __init__(self, name: str, graph: Graph, file_bytes: int) -> None:
        self.name, self.bytes = name, file_bytes
        self.shape = tuple(graph.input_shape)
        try:
            outputs = shapes(graph)[graph.output]
            self._gives_shares = graph.nodes[-1].op == "softmax"
            _check(name, self.shape, outputs)
            self.labels = describe(graph.about, self.shape, outputs[0])
            self._sparse = SparseModel(graph, threads=1)
            self._dense: Engine = _dense(graph)
            self.dense_bytes = len(to_onnx(graph))
        except GraphError as error:
            raise ModelError(f"{name} cannot be served: {error}") from None
        self.layers = _layers(graph)
        self._about = graph.about

    def about(self) -> dict[str, Any]:
        """Facts about the network, as JSON values."""
        sparse = self._sparse.engine == "hypersparse"
        return {
            "name": self.name,
            "bytes": self.bytes,
            "dense_bytes": self.dense_bytes,
            "input": list(self.shape),
            "draws": self.shape[0] == 1,
            "digits": self.shape == DIGIT or all(len(name) == 1 and name.isdigit() for name in self.labels.classes),
            "classes": len(self.labels.classes),
            "names": list(self.labels.classes),
            "layers": self.layers,
            "kept": sum(layer["kept"] for layer in self.layers),
            "total": sum(layer["total"] for layer in self.layers),
            "products": self._sparse.products if sparse else self._sparse.dense_products,
            "dense_products": self._sparse.dense_products,
            "engine": _engine_words(self._sparse.engine),
            "dense_engine": _engine_words(self._dense.name),
            "profile": str(self._about.get("profile", "")),
            "values": str(self._about.get("values", "")),
            "notes": list(self.labels.notes),
        }

    @property
    def dark_on_light(self) -> bool:
        """Whether its images are bright on average, as drawings on paper."""
        return sum(self.labels.normalisation.mean) / self.shape[0] > 0.5

    def predict(self, pixels: Pixels) -> dict[str, Any]:
        """The most probable classes of an image by the sparse network, and its time, as JSON values."""
        inputs, outputs = self.labels.normalisation(pixels[None]), self._room()
        began = time.perf_counter()
        self._sparse(inputs, out=outputs)
        return self._said(self._shares(outputs), time.perf_counter() - began)

    def compare(self, pixels: Pixels) -> dict[str, Any]:
        """Predictions and times of both networks in turns, the difference of outputs, and their input."""
        inputs, sparse, dense = self.labels.normalisation(pixels[None]), self._room(), self._room()
        times = timed_in_turns(
            lambda: self._sparse(inputs, out=sparse), lambda: self._dense.run(inputs, dense), seconds=SECONDS
        )
        return {
            **self._said(self._shares(sparse), times[0]),
            "dense": self._best(self._shares(dense), times[1]),
            "calls": times[2],
            "difference": float(np.abs(sparse - dense).max()),
            "seen": "data:image/png;base64," + base64.b64encode(as_png(pixels)).decode(),
        }

    def _room(self) -> Outputs:
        return np.empty((1, len(self.labels.classes)), np.float32)

    def _shares(self, outputs: Outputs) -> Outputs:
        if not np.isfinite(outputs).all():
            raise ModelError("The network's outputs for this image are not all finite numbers.")
        shares: Outputs = outputs[0]
        return shares if self._gives_shares else special.softmax(shares.astype(np.float64)).astype(np.float32)

    def _said(self, shares: Outputs, seconds: float) -> dict[str, Any]:
        order = np.argsort(-shares, kind="stable")[:SHOWN].tolist()
        top = [{"class": self.labels.classes[place], "share": float(shares[place])} for place in order]
        return {"top": top, "sparse": self._best(shares, seconds)}

    def _best(self, shares: Outputs, seconds: float) -> dict[str, Any]:
        best = int(shares.argmax())
        return {"class": self.labels.classes[best], "share": float(shares[best]), "milliseconds": 1000 * seconds}


class TorchEngine:
    """PyTorch on the CPU, used without ONNX Runtime."""

    name = "torch"

    def __init__(self, graph: Graph) -> None:
        self._module = to_module(graph)

    def run(self, images: NDArray[Any], outputs: NDArray[Any]) -> None:
        """Compute a batch of outputs from a batch of inputs, both float32."""
        with torch.inference_mode():
            outputs[...] = self._module(torch.from_numpy(images)).numpy()


def timed_in_turns(
    first: Callable[[], object], second: Callable[[], object], *, seconds: float
) -> tuple[float, float, int]:
    """The median seconds of each function and the number of calls, without the warm-up calls."""
    first()
    second()
    times: tuple[list[float], list[float]] = ([], [])
    began = time.perf_counter()
    while len(times[0]) < LEAST_CALLS or (len(times[0]) < CALLS and time.perf_counter() - began < seconds):
        for call, spent in zip((first, second), times, strict=True):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return median(times[0]), median(times[1]), len(times[0])


def describe(about: Mapping[str, Any], shape: tuple[int, ...], outputs: int) -> Labels:
    """Classes and normalisation of a file; without them numbers and plain pixels, with a note."""
    notes = []
    classes = about.get("classes")
    if not (isinstance(classes, list) and len(classes) == outputs and all(isinstance(one, str) for one in classes)):
        notes.append("The file does not name its classes, so they are numbers here.")
        classes = [str(number) for number in range(outputs)]
    normalisation = Normalisation.read(about, shape[0])
    if normalisation is None:
        notes.append("The file does not say how images are normalised: pixels go in as 0 to 1, which may be wrong.")
        normalisation = Normalisation(255.0, (0.0,) * shape[0], (1.0,) * shape[0])
    elif normalisation.scale == 1:
        notes.append(
            "The network was trained on numbers that are no pixels: pixels go in as 0 to 1, which may be wrong."
        )
        normalisation = Normalisation(255.0, normalisation.mean, normalisation.std)
    return Labels(tuple(classes), normalisation, tuple(notes))


def _check(name: str, shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise ModelError(f"A network to try takes images of 1 or 3 channels; {name} takes the shape {shape}.")
    if len(outputs) != 1 or outputs[0] < 2:
        raise ModelError(f"A network to try tells classes apart; {name} gives outputs of the shape {outputs}.")


def _dense(graph: Graph) -> Engine:
    return OnnxRuntimeEngine(graph, threads=1) if is_installed(OnnxRuntimeEngine.name) else TorchEngine(graph)


def _engine_words(engine: str) -> str:
    threads = torch.get_num_threads() if engine == "torch" else 1
    return f"{ENGINES[engine]}, {how_many(threads, 'thread')}"


def _layers(graph: Graph) -> list[dict[str, Any]]:
    """Names, shapes and nonzero weights of the layers, in order."""
    layers = []
    for node in graph.nodes:
        weight = graph.array(node, "weight") if node.weighted else None
        if weight is not None:
            name = node.tensors["weight"].removesuffix(".weight")
            kept = int(np.count_nonzero(weight))
            layers.append({"name": name, "shape": list(weight.shape), "kept": kept, "total": prod(weight.shape)})
    return layers
