"""Trained sparse networks that ship with the package, each a file of kilobytes.

`hypersparse zoo` lists them. An entry consists of two files in this folder: NAME.hsp, the network in the deploy
profile, and NAME.json, the results of its run and its outputs for synthetic inputs. The JSON file is written last.
Entries of other folders, such as those of `hypersparse sweep --networks`, are read in the same way.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from hypersparse.errors import OptionError, RunError, unknown
from hypersparse.export.graph_module import Network
from hypersparse.export.input_normalization import Normalisation
from hypersparse.export.sparse_file import load_graph, load_sparse
from hypersparse.storage.schemas import read_json
from hypersparse_runtime.graph import Graph
from hypersparse_runtime.sparse_model import SparseModel

FOLDER = Path(__file__).parent
MOST_BYTES = 5_000_000  # of all files that ship with the package
NETWORK, FACTS, INPUTS = ".hsp", ".json", ".npy"
KINDS: dict[Any, str] = {str: "a text", int: "a whole number", float: "a number from 0 to 1"}  # of fields


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Facts about a network. Accuracies are fractions of the test images."""

    name: str
    data: str
    model: str
    recipe: str  # the label of its run
    seed: int
    sparsity: float  # fraction of the prunable weights that the mask removes
    kept: int
    total: int
    last: float  # accuracy in the last epoch of its run, which is the network in the file
    best: float  # accuracy of the best epoch, whose weights are not stored
    best_picked_on: str
    test_accuracy: float  # of the file, measured with the sparse runtime
    test_images: int
    bytes: int  # of the file


def names(folder: Path = FOLDER) -> list[str]:
    """The names of all networks in a folder, sorted.

    >>> "digits-resnet8-0.98" in names()
    True
    """
    return sorted(path.stem for path in folder.glob(f"*{FACTS}") if path.with_suffix(NETWORK).is_file())


def entry(name: str, folder: Path = FOLDER) -> Entry:
    """The facts about a network."""
    facts = _facts(name, folder)
    own: dict[str, Any] = {field.name: facts.get(field.name) for field in fields(Entry)}
    own |= {"name": name, "bytes": path_of(name, folder).stat().st_size}
    if missing := [key for key, value in own.items() if value is None]:
        raise RunError(f"{name}{FACTS} in {folder} has no field `{missing[0]}`; add the network again.")
    for field in fields(Entry):
        if not _fits(came := own[field.name], field.type):
            problem = f"has {came!r:.40} for `{field.name}`, which must be {KINDS[field.type]}"
            raise RunError(f"{name}{FACTS} in {folder} {problem}; add the network again.")
    return Entry(**own)


def entries(folder: Path = FOLDER) -> list[Entry]:
    """All entries of a folder."""
    return [entry(name, folder) for name in names(folder)]


def path_of(name: str, folder: Path = FOLDER) -> Path:
    """The .hsp file of a network."""
    if name not in (known := names(folder)):
        raise OptionError(unknown("network", name, known) if known else nothing_in(folder))
    return folder / f"{name}{NETWORK}"


def nothing_in(folder: Path) -> str:
    """The message for a folder without networks."""
    return f"There are no networks in {folder}; `hypersparse zoo --add RUN --folder {folder}` adds one."


@overload
def load(name: str, *, runtime: Literal[False] = False, folder: Path = ...) -> Network: ...
@overload
def load(name: str, *, runtime: Literal[True], folder: Path = ...) -> SparseModel: ...
def load(name: str, *, runtime: bool = False, folder: Path = FOLDER) -> Network | SparseModel:
    """Load a trained network: a PyTorch module in evaluation mode, or with `runtime` a model of the sparse runtime.

    Both expect normalised images. `about["normalisation"]` and `about["classes"]` describe inputs and outputs.

    >>> load("digits-resnet8-0.98").input_shape
    (1, 8, 8)
    """
    path = path_of(name, folder)
    return SparseModel(load_graph(path)) if runtime else load_sparse(path)


def probe(name: str, folder: Path = FOLDER) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The synthetic inputs of an entry, normalised, and the outputs stored for them."""
    facts, path = _facts(name, folder), path_of(name, folder)
    try:
        pixels = np.load(folder / str(facts["inputs"]), allow_pickle=False)
        logits = np.array(facts["logits"], dtype=np.float32)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"The stored inputs or outputs of {name} in {folder} cannot be read: {error}.") from None
    return normalised(pixels, load_graph(path)), logits


def normalised(pixels: NDArray[Any], graph: Graph) -> NDArray[np.float32]:
    """Normalise a batch of pixels as the network expects."""
    rule = Normalisation.read(graph.about, graph.input_shape[0])
    if rule is None:
        raise RunError("The network's file does not say how images are normalised; export it again.")
    return rule(pixels)


def _fits(value: object, kind: object) -> bool:
    if isinstance(value, bool):
        return False
    if kind is float:
        return isinstance(value, int | float) and 0 <= value <= 1  # all of them are fractions
    return isinstance(value, int if kind is int else str)


def _facts(name: str, folder: Path) -> dict[str, Any]:
    path = path_of(name, folder).with_name(f"{name}{FACTS}")
    return read_json(path, dict[str, Any], "Add the network again.")
