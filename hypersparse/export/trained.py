"""`Trained`: a network together with what it was trained on."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from hypersparse.data.dataset import Dataset
from hypersparse.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Trained:
    """A network, what it was trained on, and where it came from."""

    path: Path
    model: nn.Module
    recipe: Recipe
    dataset: Dataset
    note: str = ""  # what a person should know about it, if anything

    def about(self) -> dict[str, Any]:
        """What goes into a file beside the network: plain JSON."""
        scale = 255 if self.dataset.test.images.element_size() == 1 else 1
        mean, std = (list(values) for values in (self.dataset.mean, self.dataset.std))
        return {
            "classes": list(self.dataset.classes),
            "normalisation": {"scale": scale, "mean": mean, "std": std},  # (pixel / scale - mean) / std
            "recipe": self.recipe.to_toml(),
            "provenance": {"file": "/".join(self.path.parts[-3:]), **({"note": self.note} if self.note else {})},
        }
