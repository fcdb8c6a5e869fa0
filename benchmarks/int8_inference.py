"""Layers in int8 against fp32 in the CPU runtime: times in turns with dense engines, and accuracy on all test images.

    python -m benchmarks.int8_inference ROWS.json FOLDER_OF_DATA_SETS

Networks whose data set is not there are left out.
"""

import argparse
import gc
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.inference_engines import DENSE, InferenceEngine, Predict, build_engine
from benchmarks.inference_layers import MASKS
from benchmarks.networks import MODELS, BenchmarkNetwork, load_or_generate
from benchmarks.turns import time_in_turns
from hypersparse import data, zoo
from hypersparse.errors import DataError
from hypersparse.export.sparse_file import deployed_int8, load_graph
from hypersparse.recipe import Recipe
from hypersparse.storage.files import write_json
from hypersparse.training.loaders import EvalLoader
from hypersparse_runtime import SparseModel
from hypersparse_runtime.onnx import to_onnx

SPARSITIES, BATCHES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998), (1, 64)
DENSE_INT8, CALIBRATION = "onnxruntime-int8", 64  # images that it is calibrated on
ROUNDS, SECONDS = 200, 8.0  # of a case, at most
Row = dict[str, Any]


def speed_rows(model_name: str, sparsity: float) -> Iterator[Row]:
    """Milliseconds of dense engines and of the runtime in fp32 and int8, for each batch size."""
    network = load_or_generate(model_name, sparsity, MASKS)
    plain, rounded = (SparseModel(network.graph, engine="hypersparse", threads=1, int8=int8) for int8 in (False, True))
    quantized = dense_int8(network)
    for batch in BATCHES:
        images = network.inputs(batch)
        engines = [build_engine(name, network, batch=batch, threads=1) for name in DENSE]
        engines += [InferenceEngine(DENSE_INT8, quantized, 0, 0)]
        engines += [InferenceEngine("fp32", plain, 0, 0), InferenceEngine("int8", rounded, 0, 0)]
        outputs = [each.predict(images) for each in engines][-3:]  # first calls prepare the engines for the batch size
        times = time_in_turns(engines, images, ROUNDS, until=time.perf_counter() + SECONDS)
        differences = [float(np.abs(each - outputs[1]).max() / np.abs(outputs[1]).max()) for each in outputs]
        named = {engine.engine: each.cpu for engine, each in zip(engines, times, strict=True)}
        medians = {name: 1e3 * float(np.median(each)) for name, each in named.items()}
        lows = {f"{name}_low": 1e3 * float(np.quantile(each, 0.1)) for name, each in named.items()}
        yield {
            "model": model_name,
            "sparsity": sparsity,
            "batch": batch,
            "milliseconds": medians | lows,
            "speedup_fp32": min(medians[name] for name in DENSE) / medians["fp32"],
            "speedup_int8": min(medians[name] for name in DENSE) / medians["int8"],
            "int8_layers": rounded.int8_layers,
            "difference_dense_int8": differences[0],
            "difference": differences[-1],
        }
        gc.collect()


def dense_int8(network: BenchmarkNetwork) -> Predict:
    """The dense network in ONNX Runtime with weights and activations in int8, calibrated on random images."""
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Images(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        def __init__(self) -> None:
            self.images = ({"input": image[None]} for image in network.inputs(CALIBRATION))

        def get_next(self) -> dict[str, NDArray[np.float32]] | None:
            return next(self.images, None)

    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        dense, quantized = Path(folder) / "dense.onnx", Path(folder) / "int8.onnx"
        dense.write_bytes(to_onnx(network.graph))
        types = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
        quantize_static(dense, quantized, Images(), per_channel=True, **types)
        session = InferenceSession(quantized, options, providers=["CPUExecutionProvider"])
    return lambda images: session.run(None, {"input": images})[0]


def accuracy_row(name: str, folders: Sequence[Path]) -> Row:
    """Accuracy and time of a network of the zoo: as it is stored, as an int8 file, and with its layers in int8."""
    exact = load_graph(zoo.path_of(name))
    dataset = data.load(Recipe.from_toml(str(exact.about["recipe"]), stored=True).data.name, folders)
    images = np.concatenate([part.numpy() for part, _ in EvalLoader(dataset.test, dataset, torch.device("cpu"))])
    file = deployed_int8(exact)
    graphs = {"exact": exact, "file": file, "int8": file}
    models = {
        kind: SparseModel(graph, engine="hypersparse", threads=1, int8=kind == "int8") for kind, graph in graphs.items()
    }
    found = {kind: model(images).argmax(1) for kind, model in models.items()}
    engines = [InferenceEngine(kind, model, 0, 0) for kind, model in models.items()]
    times = time_in_turns(engines, images[:1], ROUNDS, until=time.perf_counter() + SECONDS)
    row: Row = {"name": name, "images": len(images)}
    for (kind, predicted), each in zip(found.items(), times, strict=True):
        row[f"{kind}_accuracy"] = float((predicted == dataset.test.labels.numpy()).mean())
        row[f"{kind}_milliseconds"] = 1e3 * float(np.median(each.cpu))
    changed = int((found["int8"] != found["exact"]).sum())
    return row | {"changed": changed, "int8_layers": models["int8"].int8_layers}


def main(target: Path, folders: Sequence[Path]) -> None:
    """Measure and write all rows."""
    rows: list[Row] = []
    logging.disable(logging.WARNING)  # onnxruntime's advice for quantizing
    for model_name in MODELS:
        for sparsity in SPARSITIES:
            for row in speed_rows(model_name, sparsity):
                rows.append(row)
                print(row, flush=True)
    for name in zoo.names():
        try:
            rows.append(accuracy_row(name, folders))
        except DataError as error:
            print(f"{name} is left out: {error}")
            continue
        print(rows[-1], flush=True)
    write_json(target, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="a JSON file for the rows")
    parser.add_argument("folders", type=Path, nargs="*", help="where data sets lie")
    options = parser.parse_args()
    main(options.rows, options.folders)
