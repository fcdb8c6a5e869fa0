"""`find`: the sparsest network that holds an accuracy on held-out images.

One dense network and one regularized phase give pruned copies at several sparsities. A bisection fine-tunes some of
them. From the sparsest copy that holds the accuracy, separate regularized phases continue, since their networks are
better. Every training is a run in the store, so that the search can resume.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypersparse.errors import OptionError, RunError
from hypersparse.methods.art import ART, LevelCopies
from hypersparse.methods.magnitude import Magnitude
from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_tensors
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Result
from hypersparse.storage.weights_io import digest, parts_of
from hypersparse.training.resume import take_checkpoint

MEMORY = f"{LevelCopies.__module__}.{LevelCopies.__qualname__}"  # in a checkpoint
COPIES = "copies"  # folder of the pruned copies, in the run of the regularized phase
HELD_OUT = 6  # one of so many training images is held out, where nobody says how many
Train = Callable[[Recipe, Path, str], Result]
"""Trains a recipe in a folder, or returns its result; the last argument says what it is."""


@dataclass(frozen=True)
class Point:
    """A network of the search."""

    sparsity: float
    held_out: float  # accuracy after fine-tuning, in the last epoch
    test: float
    folder: Path
    shared: bool = True  # fine-tuned from a copy of the shared regularized phase


@dataclass(frozen=True)
class Copy:
    """A pruned copy of the regularized phase."""

    sparsity: float
    score: float  # on the training images, an average over three epochs
    file: Path


@dataclass(frozen=True)
class Found:
    """The results of a search."""

    dense: float | None  # accuracy on held-out images at the end of the pre-training
    copies: tuple[Copy, ...]
    points: tuple[Point, ...]
    best: Point | None  # the sparsest that holds the accuracy


def find(
    recipe: Recipe, min_accuracy: float, levels: Sequence[float], train: Train, *, store: RunStore, seed: int = 0
) -> Found:
    """Find the sparsest of `levels` at which a network has `min_accuracy` on the held-out images.

    The bisection assumes that the accuracy falls with the sparsity.
    """
    levels = sorted(set(levels))
    base = with_levels(recipe, levels)
    folder = store.folder(base, seed)
    train(base, folder.path, "pre-training and copies")
    copies = copies_of(folder, levels)
    points: list[Point] = []
    low, high = 0, len(copies)  # what is below `low` holds, what is from `high` on does not
    while low < high:
        middle = (low + high) // 2
        point = fine_tuned(recipe, copies[middle], train, store=store, seed=seed)
        points.append(point)
        low, high = (middle + 1, high) if point.held_out >= min_accuracy else (low, middle)
    for level in levels[low:]:
        points.append(alone(recipe, level, train, store=store, seed=seed))
        if points[-1].held_out < min_accuracy:
            break
    holding = [point for point in points if point.held_out >= min_accuracy]
    best = max(holding, key=lambda point: point.sparsity, default=None)
    return Found(dense_accuracy(folder), tuple(copies), tuple(points), best)


def most_trainings(levels: Sequence[float]) -> int:
    """The largest number of trainings: the bisection ends at the lowest sparsity and all others hold the accuracy.

    >>> most_trainings([0.9, 0.95, 0.98])
    6
    """
    count = len(set(levels))
    return 1 + count.bit_length() + count


def with_levels(recipe: Recipe, levels: Sequence[float]) -> Recipe:
    """The recipe of the pre-training and one regularized phase that keeps copies at all levels."""
    method = recipe.method
    if not isinstance(method, ART):
        raise OptionError(f"A search prunes copies in ART's regularized phase; the method is {method.name}, not art.")
    if recipe.data.validation == 0:
        raise OptionError("A search measures on held-out images; set `data.validation` to how many.")
    if not levels:
        raise OptionError("A search needs at least one sparsity.")
    # The penalty is for the middle one: one for the sparsest also shrinks what the others need. On the digits copies of
    # a phase for 99.8 % gave 88.9 % at 99 %, where ART alone has 98.1 %.
    searching = replace(method, sparsity=levels[len(levels) // 2], levels=tuple(levels))
    return replace(recipe, method=searching, until="regularize")


def copies_of(folder: RunFolder, levels: Sequence[float]) -> list[Copy]:
    """The pruned copies at these levels, each in a file from which a recipe can start."""
    checkpoint = take_checkpoint(folder)
    state: Mapping[str, Any] = {} if checkpoint is None else checkpoint["sparsifier"]
    memory = state.get("memory", {})
    if MEMORY not in memory:
        raise RunError(f"The copies of {folder.path} are gone; delete that folder to make them again.")
    kept = LevelCopies(**memory[MEMORY]).copies
    found = []
    for level in levels:
        best = kept[f"{level:g}"].best
        assert best is not None, "every epoch has a best copy"
        file = folder.path / COPIES / f"{level:g}.safetensors"
        if not file.exists():
            file.parent.mkdir(exist_ok=True)
            write_tensors(file, parts_of(best.copy), {})
        found.append(Copy(level, best.mean, file))
    return found


def fine_tuned(recipe: Recipe, copy: Copy, train: Train, *, store: RunStore, seed: int) -> Point:
    """Fine-tune a copy with the recipe's training."""
    method = Magnitude(sparsity=copy.sparsity)
    tuning = replace(recipe, method=method, until=None, init_from=str(copy.file), init_digest=digest(copy.file))
    return _trained(tuning, copy.sparsity, "fine-tuning", train, store.folder(tuning, seed), shared=True)


def alone(recipe: Recipe, sparsity: float, train: Train, *, store: RunStore, seed: int) -> Point:
    """Train the recipe at one sparsity, with its own regularized phase; the dense network is shared."""
    assert isinstance(recipe.method, ART)
    own = replace(recipe, method=replace(recipe.method, sparsity=sparsity))
    return _trained(own, sparsity, "ART", train, store.folder(own, seed), shared=False)


def _trained(recipe: Recipe, sparsity: float, what: str, train: Train, folder: RunFolder, *, shared: bool) -> Point:
    train(recipe, folder.path, f"{what} at {100 * sparsity:g} %")
    last = folder.log()[-1]
    return Point(sparsity, last["validation_accuracy"], last["test_accuracy"], folder.path, shared)


def dense_accuracy(folder: RunFolder) -> float | None:
    """The accuracy on held-out images of the last dense epoch, if there was one."""
    dense = [entry["validation_accuracy"] for entry in folder.log() if entry["stage"] == "dense"]
    return dense[-1] if dense else None


def with_held_out(recipe: Recipe, *, images: int) -> Recipe:
    """The recipe with a sixth of `images` training images held out, unless it holds some out already."""
    if recipe.data.validation:
        return recipe
    return replace(recipe, data=replace(recipe.data, validation=max(1, images // HELD_OUT)))
