"""Finished runs whose times are known."""

from typing import Any

from hypersparse.recipe import Recipe
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from tests.stored import whole_result, write_times


def finish(store: RunStore, recipe: Recipe, seed: int = 0, **changed: Any) -> RunFolder:
    """A run of ten seconds an epoch in pre-training, 30 with the penalty, 5 in fine-tuning."""
    run = store.folder(recipe, seed)
    run.path.mkdir(parents=True)
    run.write_recipe(recipe, seed)
    epochs = changed.pop("epochs", {"pre-train": 2, "regularize": 4, "fine-tune": 2})
    if seconds := changed.pop("seconds", {"pre-train": 20.0, "regularize": 120.0, "fine-tune": 10.0}):
        write_times(run, epochs, seconds)
    run.write_result(whole_result(epochs=epochs, **changed))
    return run
