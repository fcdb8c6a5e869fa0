"""Trained sparse networks that ship with the package, each a file of kilobytes.

`hypersparse zoo` lists them. An entry consists of two files in this folder. NAME.hsp is the network in the deploy
profile. NAME.json has the results of its run, and its outputs for synthetic inputs.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, overload

from pydantic import with_config
from typing_extensions import TypedDict

from hypersparse.errors import OptionError, unknown
from hypersparse.export.graph_module import Network
from hypersparse.export.sparse_file import load_graph, load_sparse
from hypersparse.storage.schemas import CHECKED, Count, Share, Word, read_json
from hypersparse_runtime.sparse_model import SparseModel

FOLDER = Path(__file__).parent
MOST_BYTES = 5_000_000  # of all files that ship with the package
NETWORK, FACTS, INPUTS = ".hsp", ".json", ".npy"


@with_config(CHECKED)
class Facts(TypedDict):
    """The JSON file of a network, in the words of `Entry`."""

    data: Word
    model: Word
    recipe: Word
    seed: Count
    sparsity: Share
    kept: Count
    total: Count
    last: Share
    best: Share
    best_picked_on: Word
    test_accuracy: Share
    test_images: Count
    inputs: Word
    logits: list[list[float]]


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
    known: dict[str, Any] = {"name": name, "bytes": path_of(name, folder).stat().st_size, **read_facts(name, folder)}
    return Entry(**{field.name: known[field.name] for field in fields(Entry)})


def entries(folder: Path = FOLDER) -> list[Entry]:
    """All entries of a folder."""
    return [entry(name, folder) for name in names(folder)]


def path_of(name: str, folder: Path = FOLDER) -> Path:
    """The .hsp file of a network."""
    if name not in (known := names(folder)):
        raise OptionError(unknown("network", name, known) if known else f"There are no networks in {folder}.")
    return folder / f"{name}{NETWORK}"


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


def read_facts(name: str, folder: Path = FOLDER) -> Facts:
    """The whole JSON file of a network."""
    return read_json(path_of(name, folder).with_name(f"{name}{FACTS}"), Facts, "Add the network again.")
