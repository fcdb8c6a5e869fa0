"""Runs that a search trains one after the other, each shown as it is trained."""

from dataclasses import dataclass
from pathlib import Path

from hypersparse.cli.console import Console
from hypersparse.cli.display import LiveDisplay
from hypersparse.cli.load_data import load_data
from hypersparse.cli.recipe_options import RecipeOptions
from hypersparse.cli.training_options import TrainingOptions
from hypersparse.data.dataset import Dataset
from hypersparse.errors import OptionError
from hypersparse.recipe import Recipe
from hypersparse.runs.find import with_held_out
from hypersparse.storage.schemas import Result
from hypersparse.training.callbacks import Callback, CallbackList
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import StopRequest


@dataclass
class OneByOne:
    """Trains recipes with one seed on one machine, and says which of how many it is."""

    console: Console
    machine: Machine
    dataset: Dataset
    options: TrainingOptions
    stop: StopRequest
    seed: int
    most: int  # trainings of the search
    begun: int = 0

    def __call__(
        self,
        recipe: Recipe,
        folder: Path,
        title: str,
        *,
        callback: Callback | None = None,
        stop: StopRequest | None = None,
    ) -> Result:
        """Train a recipe, or go on, or return its result."""
        self.begun += 1
        display = LiveDisplay(self.console, f"training {self.begun} of at most {self.most}: {title}")
        with display:
            return train(
                recipe,
                self.seed,
                self.machine,
                folder,
                dataset=self.dataset,
                callback=display if callback is None else CallbackList([display, callback]),
                stop=stop or self.stop,
                phase_cache=self.options.phase_cache,
                record=False,
            )


def recipe_and_images(
    chosen: RecipeOptions,
    options: TrainingOptions,
    machine: Machine,
    console: Console,
    *,
    method: str | None,
    sparsity: float | None = None,
) -> tuple[Recipe, Dataset]:
    """The recipe of a search, which has held-out images, and the data set."""
    recipe = chosen.make(options.runs_dir, method=method, sparsity=sparsity)
    if recipe.until is not None:
        raise OptionError("A search trains each network to its end; leave `--until` out.")
    dataset = load_data(recipe, options.folders, quiet=not console.is_terminal, machine=machine)
    return with_held_out(recipe, images=len(dataset.train)), dataset
