"""Stored networks, by what a person calls them: a run, a weights file, an .hsp file or a name of the zoo."""

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from hypersparse import own_code as own
from hypersparse import zoo
from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir, data_folders, load_data
from hypersparse.cli.recipe_options import DataName, ModelName, RunsDir, Settings, parse_setting
from hypersparse.cli.trust import TrustCode, allowed
from hypersparse.errors import DataError, ModelError, OptionError, RunError
from hypersparse.export.compressed import load_sparse
from hypersparse.export.trained import BareModel, TrainedModel
from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.checkpoint import CHECKPOINTS, load_tree
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Checkpoint, checked
from hypersparse.storage.weights_io import STATE_DICTS, expand, fill_, load_weights_, packed_mask
from hypersparse.training.network import build_network

SUFFIX = ".hsp"


@dataclass(frozen=True, kw_only=True)
class NetworkQuery:
    """What a command is asked about a network besides its name, as its options."""

    data: DataName = None
    model: ModelName = None
    settings: Settings = None
    trust_code: TrustCode = False
    data_dir: DataDir = None
    runs_dir: RunsDir = Path("runs")


def open_network(name: str, asked: NetworkQuery, *, unfinished: bool = False, quiet: bool = False) -> TrainedModel:
    """The network called `name` with its data; `unfinished` accepts a run whose mask is found but not its end."""
    path = _file(name, asked.runs_dir, unfinished)
    sparse = load_sparse(path) if path.suffix == SUFFIX else None
    text = sparse.about.get("recipe") if sparse is not None else None
    stored = Recipe.from_toml(text, stored=True) if isinstance(text, str) else _stored_recipe(path)
    changed = bool(asked.data or asked.model or asked.settings)
    recipe = _chosen_recipe(path, stored, asked)
    dataset = load_data(recipe, data_folders(asked.data_dir), quiet=quiet or not Console().is_terminal)
    if sparse is not None:
        return TrainedModel(path, sparse, recipe, dataset)
    built = build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))
    try:
        note = _fill_(built, path)
    except ModelError as error:
        if stored is None or not changed:
            raise
        own = f"{stored.model.name} on {stored.data.name}"
        raise ModelError(
            f"{error} It was trained as {own}; without --data, --model and --set it is taken so."
        ) from None
    return TrainedModel(path, built, recipe, dataset, note)


def _fill_(model: nn.Module, path: Path) -> str:
    """Load the weights of a file; of a checkpoint it is said how far its run got."""
    if path.name in CHECKPOINTS:
        return _load_checkpoint_(model, path)
    load_weights_(model, path)
    return ""


def open_to_write(name: str, asked: NetworkQuery, *, tested: bool) -> TrainedModel | BareModel:
    """As above, to write it; one that is not `tested` on images needs no data, if its file says all else."""
    path = _file(name, asked.runs_dir, True)
    says_all = path.suffix == SUFFIX and not (asked.data or asked.model or asked.settings)
    if says_all and not tested:
        return BareModel(path, load_sparse(path))
    try:
        return open_network(name, asked, unfinished=True)
    except DataError as error:
        hint = " Or pass --verify-images 0, which tests it without images." if says_all else ""
        raise DataError(f"{error}{hint}") from None


def in_zoo(name: str) -> Path | None:
    """The file of a network that comes with the package, unless something here is called the same."""
    return zoo.path_of(name) if name in zoo.names() and not Path(name).exists() else None


def _file(network: str, runs_dir: Path, unfinished: bool) -> Path:
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


def _load_checkpoint_(model: nn.Module, path: Path) -> str:
    """Fill a model from an unfinished run's checkpoint; returns how far that got."""
    tree = checked(load_tree(path), Checkpoint, path)
    parts = tree["model"]
    if packed_mask(parts) is None:
        raise RunError(f"{path.parent} has not pruned its network yet; go on with the run first.")
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    fill_(model, expand(parts, shapes), path)
    readable = tree["readable"]
    return f"not finished: in {readable['phase']}, after epoch {readable['epochs_finished']}"


def _stored_recipe(path: Path) -> Recipe | None:
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


def _chosen_recipe(path: Path, stored: Recipe | None, asked: NetworkQuery) -> Recipe:
    """The stored recipe under what was asked for; of own code only the model of a file of weights is needed."""
    if stored is None and asked.data is None:
        raise OptionError(f"{path.name} does not say what it was trained on; pass --data and --model.")
    tables = stored.to_mapping() if stored else {}
    named = own.named_in({"model": tables.get("model")}) if path.suffix != SUFFIX else ()
    for part, name in (("data", asked.data), ("model", asked.model)):
        if name is not None and name != tables.get(part, {}).get("name"):
            tables[part] = {"name": name}  # further options are of the one that was stored
    said: dict[str, Any] = {}
    for setting in asked.settings or ():
        said = merge(said, parse_setting(setting))
    own_code = allowed(named, typed=[asked.model, *own.named_in(said)], trust=asked.trust_code)
    if stored and not (asked.data or asked.model or asked.settings):
        return replace(stored, own_code=own_code)
    return resolve(merge(tables, said), own_code=own_code, stored=True)
