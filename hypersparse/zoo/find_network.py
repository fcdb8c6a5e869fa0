"""Stored networks by name: a run, a weights file, an .hsp file or a network of the zoo."""

from difflib import get_close_matches
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import nn

from hypersparse import zoo
from hypersparse.errors import ModelError, RunError
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.storage.checkpoint import CHECKPOINTS, load_tree
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Checkpoint, checked
from hypersparse.storage.weights_io import STATE_DICTS, expand, fill_, load_weights_, packed_mask

SUFFIX = ".hsp"


def in_zoo(name: str) -> Path | None:
    """The file of a network of the package, unless there is a path of the same name."""
    return zoo.path_of(name) if name in zoo.names() and not Path(name).exists() else None


def file_of(network: str, runs_dir: Path, unfinished: bool) -> Path:
    path = in_zoo(network) or Path(network)
    if path.is_file():
        return path
    if path.suffix in (SUFFIX, ".safetensors", *STATE_DICTS):
        raise ModelError(f"There is no file {network}.")
    run = _run(network, runs_dir)
    if run.final_file.is_file():
        return run.final_file
    if unfinished and (checkpoint := run.whole_checkpoint()):
        return checkpoint
    if run.result_file.is_file():
        raise ModelError(f"{run.path} is finished, but its weights, {run.final_file.name}, were not copied along.")
    raise ModelError(f"{run.path} has no final network yet; finish the run first.")


def _run(name: str, runs_dir: Path) -> RunFolder:
    try:
        return RunStore(runs_dir).find(name)
    except RunError as error:
        if close := get_close_matches(name, zoo.names(), 1):
            raise RunError(f"{error} Or did you mean {close[0]} of the zoo?") from None
        raise


def fill_network_(model: nn.Module, path: Path) -> str:
    """Load the weights of a file; returns the progress of the run if it is a checkpoint."""
    if path.name in CHECKPOINTS:
        return _load_checkpoint_(model, path)
    load_weights_(model, path)
    return ""


def _load_checkpoint_(model: nn.Module, path: Path) -> str:
    """Load a model from an unfinished run's checkpoint; returns the progress of the run."""
    tree = checked(load_tree(path), Checkpoint, path)
    parts = tree["model"]
    if packed_mask(parts) is None:
        raise RunError(f"{path.parent} has not pruned its network yet; go on with the run first.")
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    fill_(model, expand(parts, shapes), path)
    readable = tree["readable"]
    return f"not finished: in {readable['phase']}, after epoch {readable['epochs_finished']}"


def stored_recipe(path: Path) -> Recipe | None:
    if path.name in CHECKPOINTS:
        return RunFolder(path.parent).recipe()
    try:
        with safe_open(str(path), "pt") as file:
            text = (file.metadata() or {}).get("recipe")
    except (SafetensorError, OSError) as error:
        if path.suffix in STATE_DICTS:
            return None
        raise ModelError(f"{path} is not a whole safetensors file ({error}); save or copy it again.") from None
    return Recipe.from_toml(text, stored=True) if text else None
