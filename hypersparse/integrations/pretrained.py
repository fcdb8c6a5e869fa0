"""`save_pretrained` and `from_pretrained`: folders of Transformers with a sparse file and a model card."""

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from hypersparse.errors import ModelError, RunError
from hypersparse.export.sparse_file import load_sparse, save_sparse
from hypersparse.extras import needed
from hypersparse.methods.base import Method
from hypersparse.options import non_default
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.files import write_text
from hypersparse.storage.weights_io import fill_, read_weights, save_weights

NETWORK, TENSORS = "model.hsp", "sparse.safetensors"  # the network with its operations, or only its tensors
DENSE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
ADAPTERS = "adapter_config.json"  # of peft, which stores the adapters but not the model that they change
PREFIX = "model."  # of the tensors in a `.hsp` file


class _Logits(nn.Module):
    """The model as a function of one input, without the autocast that a trainer adds."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Any:
        return type(self.model).forward(self.model, inputs).logits


def save_pretrained(
    model: Any, folder: str | Path, *, input_shape: Sequence[int] | None = None, dense: bool = True
) -> Path:
    """Write a model of Transformers as its `save_pretrained` does, and a sparse file beside it.

    Args:
        model: The model; what it has of zeros is not stored in the sparse file.
        folder: Where to write.
        input_shape: Shape of one image, for models that take images.
        dense: Whether to write the ordinary, dense weights too. Without them `from_pretrained` below reads the folder.

    Returns:
        The sparse file: `model.hsp` where the format has all the model's operations, else `sparse.safetensors`.
    """
    folder = Path(folder)
    if dense:
        model.save_pretrained(folder)
    if not (folder / "config.json").exists() or not dense:
        model.config.save_pretrained(folder)
    for adapter in getattr(model, "peft_config", {}).values():
        adapter.save_pretrained(folder)
    for name in (NETWORK, TENSORS):  # of an earlier model in this folder
        (folder / name).unlink(missing_ok=True)
    if input_shape is not None:
        try:
            save_sparse(_Logits(model), folder / NETWORK, input_shape=input_shape)
        except ModelError:  # an operation that the format has not
            pass
        else:
            return folder / NETWORK
    weights = PrunableWeights(model)
    weights.set_mask_(Mask({name: weight != 0 for name, weight in weights.items()}))
    save_weights(folder / TENSORS, weights, {"format": "pt"})
    return folder / TENSORS


def from_pretrained(model_class: Any, folder: str | Path) -> Any:
    """A model of Transformers from a folder with dense weights, or with a sparse file alone.

    Args:
        model_class: The model's class, or an `AutoModel` class.
        folder: What `save_pretrained` wrote.

    Returns:
        The model in evaluation mode. With adapters of peft it is the `PeftModel`.
    """
    folder = Path(folder)
    if any((folder / name).exists() for name in DENSE):
        return model_class.from_pretrained(folder, local_files_only=True, trust_remote_code=False, weights_only=True)
    if not any((folder / name).exists() for name in (NETWORK, TENSORS)):
        raise RunError(f"{folder} has no weights: {DENSE[0]}, {NETWORK} or {TENSORS} was expected.")
    model = _without_weights(model_class, folder)
    if (folder / TENSORS).exists():
        path, tensors = folder / TENSORS, read_weights(folder / TENSORS, model).tensors
    else:
        path, named = folder / NETWORK, load_sparse(folder / NETWORK).state_dict()
        tensors = {name.removeprefix(PREFIX): tensor for name, tensor in named.items()}
    fill_(model, _with_tied(model, tensors), path)
    return model.eval()


def _without_weights(model_class: Any, folder: Path) -> Any:
    """The model that a folder describes, with random weights."""
    auto = needed("transformers", "transformers", "from_pretrained").AutoConfig
    config = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    model = model_class.from_config(config) if hasattr(model_class, "from_config") else model_class(config)
    if not (folder / ADAPTERS).exists():
        return model
    peft = needed("peft", "transformers", "A model with adapters")
    adapter = peft.PeftConfig.from_pretrained(folder, local_files_only=True)
    if getattr(adapter, "megatron_config", None) is not None:  # peft imports the module that is named beside it
        raise ModelError(f"{folder / ADAPTERS} names a module of Megatron to import; build that model yourself.")
    return peft.get_peft_model(model, adapter)


def write_card(
    folder: Path,
    model: nn.Module,
    weights: PrunableWeights,
    *,
    method: Method,
    recipe: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> None:
    """Write a model card: the kept weights, the training and the measured metrics."""
    kept = {name: int(weight.count_nonzero()) for name, weight in weights.items()}
    removed = 1 - sum(kept.values()) / weights.total
    layers = {name: f"{kept[name]:,} of {weight.numel():,}" for name, weight in weights.items()}
    options = non_default(method) if is_dataclass(method) else vars(method)  # `Fixed`, and a user's own
    recipe = {"method": type(method).__name__, **options, **recipe}
    parts = [
        "---\nlibrary_name: transformers\ntags:\n- hypersparse\n- sparse\n- pruned\n---",
        f"# {type(model).__name__}, {removed:.2%} sparse",
        f"{sum(kept.values()):,} of {weights.total:,} prunable weights are not zero. "
        "It was trained with [hypersparse](https://pypi.org/project/hypersparse/).",
        "## Recipe",
        _table(recipe),
        "## Metrics",
        _table(metrics) if metrics else "The training measured none.",
        "## Weights kept by layer",
        _table(layers),
    ]
    write_text(folder / "README.md", "\n\n".join(parts) + "\n")


def _table(rows: Mapping[str, Any]) -> str:
    lines = [
        f"| {name} | {value:.6g} |" if isinstance(value, float) else f"| {name} | {value} |"
        for name, value in rows.items()
    ]
    return "\n".join(["| | |", "| --- | --- |", *lines])


def _with_tied(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Add the other names of tied weights, which the state_dict has too."""
    place = {id(tensor): name for name, tensor in model.named_parameters()}
    names = {name: place.get(id(tensor), name) for name, tensor in model.named_parameters(remove_duplicate=False)}
    wanted = {name: names.get(name, name) for name in model.state_dict()}
    found = {name: tensors[stored] for name, stored in wanted.items() if stored in tensors}
    return found | {name: tensors[name] for name in wanted if name in tensors}
