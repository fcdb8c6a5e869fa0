"""`TrainedModel`: a network with its recipe and data; `BareModel`: a network without its data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from hypersparse.data.dataset import Dataset
from hypersparse.export.graph_module import Network
from hypersparse.recipe import Recipe

KEPT = ("classes", "normalisation", "recipe", "provenance")  # of what a file says, when it becomes another one


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A network, its recipe, its data set and its file."""

    path: Path
    model: nn.Module
    recipe: Recipe
    dataset: Dataset
    note: str = ""  # what a person should know about it, if anything

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.dataset.shape

    def about(self) -> dict[str, Any]:
        """The facts stored with the network, as plain JSON."""
        scale = 255 if self.dataset.test.images.element_size() == 1 else 1
        mean, std = (list(values) for values in (self.dataset.mean, self.dataset.std))
        return {
            "classes": list(self.dataset.classes),
            "normalisation": {"scale": scale, "mean": mean, "std": std},  # (pixel / scale - mean) / std
            "recipe": self.recipe.to_toml(),
            "provenance": {"file": "/".join(self.path.parts[-3:]), **({"note": self.note} if self.note else {})},
        }


@dataclass(frozen=True, eq=False)
class BareModel:
    """A network from an .hsp file, which stores the facts that a data set would give."""

    path: Path
    model: Network
    note: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return self.model.input_shape

    def about(self) -> dict[str, Any]:
        """The facts stored with the network, as plain JSON."""
        return {key: self.model.about[key] for key in KEPT if key in self.model.about}
