"""Checkpoints: a tree of numbers and tensors in one safetensors file, written by a background thread.

The newest two are kept. A file contains its SHA-256: if it is damaged, the one before it is used.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.optim import Optimizer

from hypersparse.errors import RunError
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.files import has_its_digest, write_json, write_tensors

CHECKPOINTS = ("checkpoint.safetensors", "checkpoint.previous.safetensors")  # in a run's folder, the newest one first
STATE = "hypersparse_state"
TENSOR = "tensor:"


def save_tree(path: Path, tree: Mapping[str, Any], *, previous: Path | None = None) -> None:
    """Write a tree of dicts, lists, numbers, strings and tensors atomically as one file.

    With `previous` the existing file is kept under that name.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_encode(tree, tensors))
    # The tree is inside the file with the tensors: two files could not be renamed at once.
    write_tensors(path, tensors, {STATE: text}, previous=previous)


def load_tree(path: Path) -> dict[str, Any]:
    """Read a file that `save_tree` wrote."""
    with _opened(path) as (file, outline):
        decoded: dict[str, Any] = _decode(outline, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return decoded


def load_outline(path: Path) -> dict[str, Any]:
    """Read the tree with a placeholder for each tensor."""
    with _opened(path) as (_, outline):
        return outline


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The open file and its outline; raises an error if it is damaged."""
    try:
        if not has_its_digest(path):
            raise ValueError("its content does not match its SHA-256")
        with safe_open(str(path), "pt") as file:
            yield file, json.loads((file.metadata() or {})[STATE])
    except (SafetensorError, OSError, LookupError, ValueError, RecursionError) as error:
        raise RunError(f"The checkpoint {path} is damaged ({error}); delete it to restart this run.") from None


def _encode(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, Tensor):
        name = f"{TENSOR}{len(tensors)}"
        tensors[name] = tree.contiguous()
        return name
    if isinstance(tree, Mapping):
        return {str(key): _encode(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_encode(value, tensors) for value in tree]
    return tree


def _decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(tree, str) and tree.startswith(TENSOR):
        return tensors[tree]
    if isinstance(tree, dict):
        return {key: _decode(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_decode(value, tensors) for value in tree]
    return tree


def to_cpu(tree: Any) -> Any:
    """A copy of a tree on the CPU, which later steps do not change."""
    if isinstance(tree, Tensor):
        return tree.detach().to("cpu", copy=True)
    if isinstance(tree, Mapping):
        return {key: to_cpu(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [to_cpu(value) for value in tree]
    return tree


def optimizer_state(optimizer: Optimizer, weights: PrunableWeights, learning: Mask | None) -> dict[str, Any]:
    """The optimizer's state; of prunable weights only that of `learning` ones, or all of it if this is None."""
    saved = optimizer.state_dict()
    masks = _masks_by_index(optimizer, weights, learning)
    saved["state"] = {
        str(index): {name: _kept(value, masks.get(index)) for name, value in values.items()}
        for index, values in saved["state"].items()
    }
    return saved


def load_optimizer_state_(
    optimizer: Optimizer, weights: PrunableWeights, learning: Mask | None, saved: dict[str, Any]
) -> None:
    """The inverse of `optimizer_state`."""
    masks = _masks_by_index(optimizer, weights, learning)
    state = {
        int(index): {name: _spread(value, masks.get(int(index))) for name, value in values.items()}
        for index, values in saved["state"].items()
    }
    rates = [group["lr"] for group in optimizer.param_groups]
    optimizer.load_state_dict({**saved, "state": state})
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):  # keeps its address
            group["lr"] = rate.fill_(float(group["lr"]))
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                values[name] = _laid_out_like(parameter, value)


def _laid_out_like(parameter: Tensor, value: Tensor) -> Tensor:
    """The values in the parameter's memory layout, as fused kernels require."""
    if value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _masks_by_index(optimizer: Optimizer, weights: PrunableWeights, learning: Mask | None) -> dict[int, Tensor]:
    if learning is None:
        return {}
    by_id = {id(weight): learning[name] for name, weight in weights.items()}
    parameters: list[nn.Parameter] = [p for group in optimizer.param_groups for p in group["params"]]
    return {index: by_id[id(p)] for index, p in enumerate(parameters) if id(p) in by_id}


def _kept(value: Any, mask: Tensor | None) -> Any:
    same = mask is not None and isinstance(value, Tensor) and value.shape == mask.shape
    return value[mask] if same else value


def _spread(value: Any, mask: Tensor | None) -> Any:
    if mask is None or not isinstance(value, Tensor) or value.dim() == 0:
        return value
    full = torch.zeros(mask.shape, dtype=value.dtype)
    full[mask.cpu()] = value
    return full


class CheckpointWriter:
    """Writes the newest checkpoint in a background thread, at most once every `seconds`.

    `check` is called before each write; an error that it raises ends the writing.
    """

    def __init__(self, path: Path, readable: Path, seconds: float, *, check: Callable[[], None] = lambda: None) -> None:
        self._path, self._readable, self._seconds, self._check = path, readable, seconds, check
        self._pending: dict[str, Any] | None = None
        self._error: Exception | None = None
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="checkpoints", daemon=True)
        self._thread.start()

    def submit(self, tree: dict[str, Any]) -> None:
        """Queue a checkpoint (already on the CPU) in place of one that is not written yet."""
        self._raise()
        with self._wake:
            self._pending = tree
            self._wake.notify()

    def close(self) -> None:
        """Write the pending checkpoint and end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pending is not None or self._closing)
                tree, self._pending = self._pending, None
            if tree is None:
                return
            try:
                self._check()
                save_tree(self._path, tree, previous=self._path.with_name(CHECKPOINTS[1]))
                write_json(self._readable, tree["readable"])
            except Exception as error:
                self._error = error
            with self._wake:
                self._wake.wait_for(lambda: self._closing, timeout=self._seconds)
