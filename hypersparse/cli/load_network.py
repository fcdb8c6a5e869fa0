"""Stored networks with their data, as the options of a command select them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from hypersparse import own_code as own
from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir, data_folders, load_data
from hypersparse.cli.option_groups import option
from hypersparse.cli.recipe_options import ModelAndData, RunsDir, parse_settings
from hypersparse.cli.trust import TrustCode, allowed
from hypersparse.errors import DataError, ModelError, OptionError
from hypersparse.export.sparse_file import load_sparse
from hypersparse.export.trained_model import BareModel, TrainedModel
from hypersparse.export.verify import PredictionCheck
from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.training.network import build_network
from hypersparse.zoo.find_network import SUFFIX, file_of, fill_network_, stored_recipe

ALL_IMAGES, USUAL_IMAGES = "all", 1000  # VGG-19 predicts 1,000 images of 64x64 pixels in a minute on two busy cores
Network = Annotated[
    str, typer.Argument(help="A run (folder or name), a file (.hsp, .safetensors, state_dict), or a name of the zoo.")
]


@dataclass(frozen=True, kw_only=True)
class NetworkQuery(ModelAndData):
    """What to load: options that replace the data and the model that a file names, and folders."""

    trust_code: TrustCode = False
    data_dir: DataDir = None
    runs_dir: RunsDir = Path("runs")

    @property
    def changes_recipe(self) -> bool:
        """Whether an option replaces a part of the stored recipe."""
        return bool(self.data or self.model or self.settings)


@dataclass(frozen=True, kw_only=True)
class WriteQuery(NetworkQuery):
    """A network to write to a file, and the images on which it is tested."""

    images: str = option(
        str(USUAL_IMAGES),
        "Test images whose predictions must stay the same, or `all`. "
        "With 0 random inputs are compared, and an .hsp file needs no data.",
        "--verify-images",
        metavar="N|all",
    )


def open_network(name: str, asked: NetworkQuery, *, unfinished: bool = False, quiet: bool = False) -> TrainedModel:
    """The network called `name` with its data; `unfinished` accepts a run that has its mask but is not finished."""
    path = file_of(name, asked.runs_dir, unfinished)
    sparse = load_sparse(path) if path.suffix == SUFFIX else None
    text = sparse.about.get("recipe") if sparse is not None else None
    stored = Recipe.from_toml(text, stored=True) if isinstance(text, str) else stored_recipe(path)
    recipe = _chosen_recipe(path, stored, asked)
    dataset = load_data(recipe, data_folders(asked.data_dir), quiet=quiet or not Console().is_terminal)
    if sparse is not None:
        return TrainedModel(path, sparse, recipe, dataset)
    built = build_network(recipe, shape=dataset.shape, classes=len(dataset.classes))
    try:
        note = fill_network_(built, path)
    except ModelError as error:
        if stored is None or not asked.changes_recipe:
            raise
        own = f"{stored.model.name} on {stored.data.name}"
        raise ModelError(
            f"{error} It was trained as {own}; without --data, --model and --set it is loaded so."
        ) from None
    return TrainedModel(path, built, recipe, dataset, note)


def open_to_write(name: str, asked: WriteQuery) -> tuple[TrainedModel | BareModel, PredictionCheck | None]:
    """The network to write to a file, and its test on images. If there is none, an .hsp file needs no data."""
    path, count = file_of(name, asked.runs_dir, True), image_count(asked.images)
    is_complete = path.suffix == SUFFIX and not asked.changes_recipe
    if is_complete and count == 0:
        return BareModel(path, load_sparse(path)), None
    try:
        stored = open_network(name, asked, unfinished=True)
    except DataError as error:
        hint = " Or pass --verify-images 0, which tests it without images." if is_complete else ""
        raise DataError(f"{error}{hint}") from None
    if stored.note:
        Console().say(f"{stored.path.parent} is {stored.note}.", style="yellow")
    return stored, None if count == 0 else PredictionCheck(stored, count, show_progress)


def image_count(images: str) -> int | None:
    """What `--verify-images` says: a count, or None for all."""
    if images == ALL_IMAGES:
        return None
    if not images.isascii() or not images.isdigit():
        raise OptionError(f"--verify-images is a count of images or `all`; got `{images}`.")
    return int(images)


@contextmanager
def show_progress(text: str, count: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on the terminal's error output, gone when it is done."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_screen) as bar:
        task = bar.add_task(text, total=count)
        yield lambda done: bar.update(task, completed=done)


def _chosen_recipe(path: Path, stored: Recipe | None, asked: NetworkQuery) -> Recipe:
    """The stored recipe, overridden by the options. Of user code, only the model of a weights file is needed."""
    if stored is None and asked.data is None:
        raise OptionError(f"{path.name} does not name its data set; pass --data and --model.")
    tables = stored.to_mapping() if stored else {}
    named = own.named_in({"model": tables.get("model")}) if path.suffix != SUFFIX else ()
    for part, name in (("data", asked.data), ("model", asked.model)):
        if name is not None and name != tables.get(part, {}).get("name"):
            tables[part] = {"name": name}  # the other options belong to the stored one
    said = parse_settings(asked.settings)
    own_code = allowed(named, typed=[asked.model, *own.named_in(said)], trust=asked.trust_code)
    if stored and not asked.changes_recipe:
        return replace(stored, own_code=own_code)
    return resolve(merge(tables, said), own_code=own_code, stored=True)
