"""A run that takes a second: a narrow ResNet on 8 x 8 synthetic images, two epochs of each phase."""

from typing import Any

from hypersparse.own_code import named_in
from hypersparse.recipe import Recipe, merge, resolve
from hypersparse.training.callbacks import Callback
from hypersparse.training.stop import StopRequest

TABLES: dict[str, Any] = {
    "data": {
        "name": "synthetic",
        "images": 128,
        "test_images": 64,
        "size": 8,
        "channels": 1,
        "classes": 4,
        "padding": 1,
        "flip": True,
    },
    "model": {"name": "resnet8", "width": 4},
    "training": {"epochs": 2, "batch_size": 32, "lr": 0.1},
    "method": {
        "name": "art",
        "sparsity": 0.9,
        "pretrain_epochs": 2,
        "strength": 1e-2,
        "growth": 3.0,
        "max_regularized_epochs": 3,
    },
}


def small(**tables: Any) -> Recipe:
    """That recipe, with some of its tables changed; one that names another model or method replaces all of it."""
    replaced = {name for name, table in tables.items() if isinstance(table, dict) and "name" in table}
    chosen = merge({name: table for name, table in TABLES.items() if name not in replaced}, tables)
    return resolve(chosen, own_code=named_in(chosen))  # it is the tests that name it


class StopAfter(Callback):
    """Asks for a stop after a number of steps, counted over all epochs."""

    def __init__(self, steps: int) -> None:
        self.request, self.left = StopRequest(), steps

    def stepped(self, step: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.request.stop("test")
