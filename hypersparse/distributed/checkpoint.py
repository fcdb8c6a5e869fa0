"""`save_checkpoint` and `load_checkpoint`: checkpoints of several processes, with torch.distributed.checkpoint.

Every rank writes and reads its own part of sharded weights; another number of ranks may read them. PyTorch's
checkpoints contain pickles, which are programs. Only the classes that the table of contents needs are imported.
"""

import io
import pickle
import shutil
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hypersparse.errors import RunError

if TYPE_CHECKING:
    from hypersparse.sparsifier import Sparsifier

MARK = "hypersparse.sharded"  # in the plan's state: the number of a tensor that is saved by its parts
TYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
CLASSES = (
    *(metadata.BytesStorageMetadata, metadata.ChunkStorageMetadata, metadata.Metadata, metadata.MetadataIndex),
    *(metadata.StorageMeta, metadata.TensorProperties, metadata.TensorStorageMetadata, metadata._MEM_FORMAT_ENCODING),
    *(filesystem._StorageInfo, torch.Size, PosixPath, torch.serialization._get_layout, OrderedDict),
)
IN_TABLE: dict[tuple[str, str], Any] = {
    **{(each.__module__, each.__qualname__): each for each in CLASSES},
    **{("torch", str(each).removeprefix("torch.")): each for each in TYPES},
}


def save_checkpoint(path: str | Path, sparsifier: "Sparsifier", *, others: Mapping[str, Any] | None = None) -> None:
    """Write the model, the optimizer and the plan into a folder, which appears as a whole or not at all.

    All ranks call it, and see the same folder. `others` have a `state_dict` too, such as `{"scheduler": scheduler}`.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.writing")
    tensors: dict[str, Tensor] = {}
    plan = parted(_seen_by_all(sparsifier), tensors)
    state = {**_network(sparsifier), "shards": tensors, "plan": _packed(plan), "others": dict(others or {})}
    with _said("written", path):
        save(state, checkpoint_id=beside)
    sparsifier.ranks.from_first(partial(_move, beside, path))


def load_checkpoint(path: str | Path, sparsifier: "Sparsifier", *, others: Mapping[str, Any] | None = None) -> None:
    """Resume from a folder of `save_checkpoint`, on any number of ranks; attach the same method first."""
    path = Path(path)
    with sparsifier.ranks.together(), _said("read", path):
        table = _table(path)
    with _said("read", path):
        packed = {"plan": torch.empty(table["plan"].size, dtype=torch.uint8)}
        load(packed, storage_reader=_Reader(path), planner=_Planner())
        plan = torch.load(io.BytesIO(packed["plan"].numpy().tobytes()), weights_only=True)
        shards = {name.removeprefix("shards."): entry for name, entry in table.items() if name.startswith("shards.")}
        tensors = {"shards": _room(sparsifier, shards)}
        if tensors["shards"]:
            load(tensors, storage_reader=_Reader(path), planner=_Planner())
    plan = rejoined(plan, tensors["shards"])
    if not sparsifier.ranks.first:  # what was seen of an epoch is counted once
        plan["observed"] = {"total": torch.zeros_like(plan["observed"]["total"]), "count": 0}
    sparsifier.load_state_dict(plan)
    network = _network(sparsifier)
    with _said("read", path):
        state = {**network, "others": dict(others or {})}
        load(state, storage_reader=_Reader(path), planner=_Planner())
    model, optimizer = sparsifier.weights.model, sparsifier.state.optimizer
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    sparsifier.weights.apply_mask_()


def _network(sparsifier: "Sparsifier") -> dict[str, Any]:
    model, optimizer = get_state_dict(sparsifier.weights.model, sparsifier.state.optimizer)
    return {"model": model, "optimizer": optimizer}


def _seen_by_all(sparsifier: "Sparsifier") -> dict[str, Any]:
    """The plan's state, with the observations of all ranks in this epoch."""
    saved = sparsifier.state_dict()
    if sparsifier.is_open:  # at its end each rank has the sums already
        saved["observed"] = sparsifier.ranks.sum_mean(saved["observed"])
    return saved


def parted(tree: Any, tensors: dict[str, Tensor]) -> Any:
    """The tree with a number in place of each sharded tensor; the tensors go into `tensors`."""
    if hasattr(tree, "device_mesh"):
        number = str(len(tensors))
        tensors[number] = tree
        return {MARK: number}
    if isinstance(tree, dict):
        return {name: parted(child, tensors) for name, child in tree.items()}
    return [parted(child, tensors) for child in tree] if isinstance(tree, list | tuple) else tree


def rejoined(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `parted`."""
    if isinstance(tree, dict):
        if tree.keys() == {MARK}:
            return tensors[tree[MARK]]
        return {name: rejoined(child, tensors) for name, child in tree.items()}
    return [rejoined(child, tensors) for child in tree] if isinstance(tree, list) else tree


def _packed(plan: Any) -> Tensor:
    content = io.BytesIO()
    torch.save(plan, content)
    return torch.frombuffer(bytearray(content.getvalue()), dtype=torch.uint8)


def _room(sparsifier: "Sparsifier", shards: Mapping[str, Any]) -> dict[str, Tensor]:
    """Sharded tensors to read into."""
    from torch.distributed.tensor import DTensor, zeros

    weight = next(iter(sparsifier.weights.values()))
    if shards and not isinstance(weight, DTensor):
        raise RunError("The checkpoint is of sharded weights; call `fully_shard` on the model before `attach`.")
    layout: dict[str, Any] = {name: getattr(weight, name, None) for name in ("device_mesh", "placements")}
    return {number: zeros(entry.size, dtype=entry.properties.dtype, **layout) for number, entry in shards.items()}


def _table(path: Path) -> dict[str, Any]:
    """The table of contents; raises an error if it claims more memory than its files hold."""
    table: dict[str, Any] = _Reader(path).read_metadata().state_dict_metadata
    if not isinstance(table.get("plan"), metadata.TensorStorageMetadata):
        raise RunError("it has no `plan`, which `save_checkpoint` writes")
    ours = [entry for name, entry in table.items() if name == "plan" or name.startswith("shards.")]
    wanted = sum(entry.size.numel() * entry.properties.dtype.itemsize for entry in ours)
    there = sum(file.stat().st_size for file in path.iterdir())
    if wanted > there:
        raise RunError(f"it names tensors of {wanted:,} bytes, and its files have {there:,}")
    return table


def _move(beside: Path, path: Path) -> None:
    """Replace the old folder by the new one."""
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.replace(old)
    beside.replace(path)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _said(what: str, path: Path) -> Iterator[None]:
    """Turn errors of reading and writing into one sentence."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # one process saves too
            yield
    except CheckpointException as error:
        reason = next((str(failure[0]) for failure in error.failures.values()), str(error))
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, pickle.PickleError) as error:
        reason = str(error) or type(error).__name__
    except RunError as error:
        reason = str(error)
    else:
        return
    raise RunError(f"The checkpoint {path} could not be {what}: {reason.strip().partition(chr(10))[0]}.")


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        content = io.BytesIO()
        torch.save(torch.load(value, weights_only=True), content)  # raises an error for anything but data
        content.seek(0)
        super().load_bytes(read_item, content)


class _Reader(FileSystemReader):
    def read_metadata(self, *_: Any, **__: Any) -> metadata.Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            table = _Unpickler(file).load()
        if not isinstance(table, metadata.Metadata):
            raise RunError(f"its table of contents is a {type(table).__name__}")
        table.storage_meta = table.storage_meta or metadata.StorageMeta()
        table.storage_meta.load_id = self.load_id
        return table


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in IN_TABLE:
            raise RunError(f"its table of contents imports {module}.{name}, which none needs")
        return IN_TABLE[module, name]
