"""Weights on disk: plain tensors, or for pruned layers the kept values and one bit per weight."""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.methods.snapshot import snapshot
from hypersparse.plurals import how_many
from hypersparse.regular_file import open_regular
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.selection import unwrap
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.files import DIGEST, has_its_digest, write_tensors

STATE_DICTS = (".pt", ".pth", ".bin", ".ckpt", ".tar")  # what torch.save writes; the authors' files end in .pth.tar
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")  # keys under which training scripts save one
KEPT, MASK = "hypersparse.kept/", "hypersparse.mask/"
DIGEST_LENGTH = 16
LONGEST = 200  # letters of what does not fit: torch names every layer


@dataclass(frozen=True)
class Weights:
    """The tensors of a network by name, and the metadata of the file."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def compact(weights: PrunableWeights) -> dict[str, Tensor]:
    """The network's tensors as stored in a file: pruned layers as kept values and packed bits."""
    if weights.mask is None:
        return {name: tensor.detach().cpu().clone() for name, tensor in _tensors(weights.model)}
    return parts_of(snapshot(weights, weights.mask))


def parts_of(parts: Mapping[str, Any]) -> dict[str, Tensor]:
    """The same of a pruned copy that a method holds."""
    return {
        **{KEPT + name: values.cpu() for name, values in parts["kept"].items()},
        **{MASK + name: bits for name, bits in parts["mask"].items()},
        **{name: tensor.cpu() for name, tensor in parts["rest"].items()},
    }


def packed_mask(parts: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The packed mask in the stored tensors; None without a mask."""
    return {name.removeprefix(MASK): bits for name, bits in parts.items() if name.startswith(MASK)} or None


def expand(parts: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The inverse of `compact`: full tensors with zeros for pruned weights."""
    full = {name: tensor for name, tensor in parts.items() if not name.startswith((KEPT, MASK))}
    packed = packed_mask(parts)
    if packed is None:
        return full
    if unknown_names := packed.keys() - shapes.keys():
        raise ModelError(f"The file has weights for a layer `{min(unknown_names)}` that the model has not.")
    for name, kept in Mask.unpack(packed, {name: shapes[name] for name in packed}).items():
        values = parts.get(KEPT + name)
        if values is None:
            raise ModelError(f"The file has the mask of layer `{name}` but not its weights; save or copy it again.")
        if values.numel() != int(kept.sum()):
            raise ModelError(
                f"Layer `{name}` keeps {how_many(int(kept.sum()), 'weight')} but the file has {values.numel()}."
            )
        full[name] = torch.zeros(kept.shape, dtype=values.dtype)
        full[name][kept] = values
    return full


def save_weights(path: Path, weights: PrunableWeights, metadata: Mapping[str, str]) -> int:
    """Write the network as a safetensors file; returns its size in bytes."""
    write_tensors(path, compact(weights), metadata)
    return path.stat().st_size


def read_weights(path: str | Path, model: nn.Module) -> Weights:
    """The tensors in a run's file, a safetensors file or a checkpoint saved by torch, weights only, for `model`."""
    path = Path(path)
    if path.is_dir():
        path = path / "final.safetensors"
    if not path.is_file():
        raise ModelError(f"There are no weights at {path}; expected a run folder, a .safetensors or a .pt file.")
    if path.suffix in STATE_DICTS:
        return Weights(_plain_state_dict(path), {})
    try:
        with safe_open(str(path), "pt") as file:
            parts = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = {name: text for name, text in (file.metadata() or {}).items() if name != DIGEST}
        altered = has_its_digest(path) is False
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a whole safetensors file ({error}); save or copy it again.") from None
    if altered:
        raise ModelError(f"{path} is damaged: its content does not match its SHA-256. Copy it again.")
    shapes = {name: tuple(tensor.shape) for name, tensor in _tensors(unwrap(model))}
    return Weights(expand(parts, shapes), metadata)


def digest(path: str | Path) -> str:
    """The first characters of a file's SHA-256, which identify the initial weights of a recipe."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:DIGEST_LENGTH]
    except OSError as error:
        raise ModelError(f"There are no weights at {path}: {error.strerror}.") from None


def check_digest(path: str | Path, expected: str) -> None:
    """Raise an error if a file is not the one that the recipe names."""
    if (came := digest(path)) != expected:
        raise ModelError(
            f"{path} is not the file this recipe began with (its digest is {came}, expected {expected}); "
            "put that one back, or begin another run with --init-from."
        )


def load_weights_(model: nn.Module, path: str | Path) -> Weights:
    """Load the weights of a file into `model`: of a run, a safetensors file or a checkpoint saved by torch.

    A checkpoint is read weights-only, and nothing of it is executed. Its weights may be in a `state_dict` inside it, or
    under `torch.nn.utils.prune`. Their names may differ from the model's if kinds, shapes and order are the
    same, as in the authors' `.pth.tar` files.
    """
    weights = read_weights(path, model)
    fill_(model, weights.tensors, path)
    return weights


def fill_(model: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Load tensors into a model; an error names the first reason why they do not fit."""
    try:
        unwrap(model).load_state_dict(_as_named_in(unwrap(model), tensors))
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip() if len(str(error).splitlines()) > 1 else str(error)
        words = first if len(first) <= LONGEST else f"{first[:LONGEST].rpartition(', ')[0]}, ..."
        raise ModelError(f"The weights in {path} do not fit {type(unwrap(model)).__name__}: {words}") from None


def _plain_state_dict(path: Path) -> dict[str, Tensor]:
    try:
        _check_not_compressed(path)
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen kinds for a foreign or damaged file
        said = str(error).strip().splitlines()  # some say nothing, or only a number
        reason = said[0] if said and " " in said[0] else "it is damaged or a file of another kind."
        raise ModelError(f"{path} is not a state_dict that can be read weights-only: {reason.rstrip('.')}.") from None
    if isinstance(loaded, dict):
        for wrapper in WRAPPERS:
            if isinstance(loaded.get(wrapper), dict):
                loaded = loaded[wrapper]
    if not isinstance(loaded, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) and value.device.type == "cpu"
        for name, value in loaded.items()
    ):
        raise ModelError(f"{path} should hold a state_dict: tensors by their names. It holds {type(loaded).__name__}.")
    return _pruned({name.removeprefix("module."): tensor for name, tensor in loaded.items()})


def _pruned(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights that torch.nn.utils.prune computes from the originals and masks it saves."""
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        base = name.removesuffix("_orig").removesuffix("_mask")
        mask, original = tensors.get(f"{base}_mask"), tensors.get(f"{base}_orig")
        if mask is None or original is None:
            found[name] = tensor
        elif mask.shape == original.shape:
            found[base] = original.masked_fill(mask == 0, 0.0)
        else:
            raise ModelError(f"`{base}_mask` has the shape {tuple(mask.shape)}; `{base}_orig` {tuple(original.shape)}.")
    return found


def _as_named_in(model: nn.Module, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The tensors under the model's names, where those of the file differ but all else is the same, in the same order.

    So a network of the authors' code fills the same network of this package. A name that both have must be at the same
    place.
    """
    own = model.state_dict()
    pairs = list(zip(own.items(), tensors.items(), strict=False))
    alike = len(own) == len(tensors) and all(
        name.rpartition(".")[2] == other.rpartition(".")[2]
        and getattr(value, "shape", None) == tensor.shape
        and (name == other or not (name in tensors or other in own))
        for (name, value), (other, tensor) in pairs
    )
    return {name: tensor for (name, _), (_, tensor) in pairs} if alike else tensors


def _check_not_compressed(path: Path) -> None:
    """Torch stores what it saves; 2 MB of a compressed file would become 4 GB."""
    with open_regular(path) as file:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                claimed = sum(member.file_size for member in archive.infolist())
            if claimed > path.stat().st_size:
                raise ValueError(f"it would expand to {claimed} bytes.")


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return [(name, tensor) for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)]
