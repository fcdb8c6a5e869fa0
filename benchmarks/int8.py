"""Files of the zoo's networks in fp16 and with weights in int8: their sizes, and the accuracy of each."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hypersparse import data, zoo
from hypersparse.data.dataset import Dataset
from hypersparse.export.sparse_file import deployed, deployed_int8, exact, load_graph, save_graph
from hypersparse.recipe import Recipe
from hypersparse.training.loaders import EvalLoader
from hypersparse_runtime import SparseModel
from hypersparse_runtime.graph import Graph

BATCH = 64
Row = dict[str, Any]


def measure_zoo(names: Sequence[str], folders: Sequence[Path], ended: Callable[[Row], None]) -> list[Row]:
    """A row for each network: bytes and accuracy of its exact file, in fp16 and in int8, on all test images."""
    rows = []
    for name in names:
        graph = load_graph(zoo.path_of(name))
        recipe = Recipe.from_toml(str(graph.about["recipe"]), stored=True)
        dataset = data.load(recipe.data.name, folders)
        rows.append({"name": name, "images": len(dataset.test), **_row(graph, dataset)})
        ended(rows[-1])
    return rows


def _row(graph: Graph, dataset: Dataset) -> Row:
    files = {"exact": exact(graph), "fp16": deployed(graph), "int8": deployed_int8(graph)}
    row: Row = {}
    predictions = {}
    for kind, content in files.items():
        row[f"{kind}_bytes"], predictions[kind] = _written_and_run(content, dataset)
        row[f"{kind}_accuracy"] = float((predictions[kind] == dataset.test.labels.numpy()).mean())
    row["smaller"] = row["fp16_bytes"] / row["int8_bytes"]
    row["changed"] = int((predictions["int8"] != predictions["exact"]).sum())
    return row


def _written_and_run(graph: Graph, dataset: Dataset) -> tuple[int, NDArray[np.int64]]:
    """The bytes of a network's file, and what the file predicts in the sparse runtime."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.hsp"
        size = save_graph(graph, path)
        runtime = SparseModel.load(path, threads=1)
    batches = EvalLoader(dataset.test, dataset, torch.device("cpu"))
    batches.batch_size = BATCH
    return size, np.concatenate([runtime(images.numpy()).argmax(1) for images, _ in batches])
