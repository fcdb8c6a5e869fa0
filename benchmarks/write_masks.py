"""Write the masks that `python -m benchmarks inference` measures on, from runs of ART on CIFAR-10.

    python -m benchmarks.write_masks RUN [RUN ...]

Each run folder (`runs/KEY/seed-0`) gives the file of its model and sparsity. ResNet-32 at 0.98 and 0.998 comes with its
trained weights. Every other file stores only a mask: its weights are constant per layer and its batch norms are
untrained, which keeps the files small; the benchmark draws random values. A run that is still fine-tuning can be used
if it has its folder `history`. `about["mask"]` in each file tells the two kinds apart.
"""

import sys
from pathlib import Path

import torch
from torch import nn

from benchmarks.networks import CLASSES, SHAPE, TRAINED
from hypersparse import models
from hypersparse.export.sparse_file import exact, save_graph
from hypersparse.export.trace import trace
from hypersparse.recipe import Recipe
from hypersparse.sparsity.distributions import keep_count
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.checkpoint import load_tree
from hypersparse.storage.history import innermost
from hypersparse.storage.weights_io import load_weights_

WITH_WEIGHTS = [("resnet32", 0.98), ("resnet32", 0.998)]  # VGG-19's at 0.98 would be 1.9 MB
MASK_ONLY = "trained mask, random weights"
FOLDER = Path(__file__).parent / "masks"


def mask_of(network: nn.Module, run: Path, sparsity: float) -> torch.Tensor:
    """The mask that a run found: of its final network, or the last in its history while it is fine-tuned."""
    weights = PrunableWeights(network)
    if (run / "final.safetensors").exists():
        load_weights_(network, run / "final.safetensors")
        return torch.cat([weight.detach().flatten() != 0 for weight in weights.values()])
    for file in sorted((run / "history").glob("*.safetensors"), reverse=True):
        epoch = load_tree(file)
        if sparsity in epoch["levels"]:
            return innermost(epoch["masks"][: epoch["levels"].index(sparsity) + 1], weights.total)
    sys.exit(f"{run} has neither a final network nor a history with a mask at {sparsity:g}; train it further.")


def fill_(weights: PrunableWeights, mask: torch.Tensor) -> None:
    """One number a layer where a mask of all weights keeps some, zero elsewhere."""
    at = 0
    for weight in weights.values():
        part = mask[at : at + weight.numel()].reshape(weight.shape).float()
        at += weight.numel()
        weight.data = part * max(1.0, float(part.sum()) / weight.shape[0]) ** -0.5  # so that signals keep their size


def write(run: Path) -> None:
    """The file of one run."""
    recipe = Recipe.from_toml((run / "recipe.toml").read_text())
    model, sparsity = recipe.model.name, recipe.method.sparsity
    network = models.build(model, shape=SHAPE, classes=CLASSES).eval()
    mask = mask_of(network, run, sparsity)
    if int(mask.sum()) != keep_count(mask.numel(), sparsity):
        sys.exit(f"{run} keeps {int(mask.sum()):,} weights, which is not {sparsity:g}: it is not pruned yet.")
    words = TRAINED
    if (model, sparsity) not in WITH_WEIGHTS:
        words, network = MASK_ONLY, models.build(model, shape=SHAPE, classes=CLASSES).eval()
        fill_(PrunableWeights(network), mask)
    about = {"mask": words, "run": run.parent.name}
    size = save_graph(exact(trace(network, SHAPE, about)), FOLDER / f"{model}-{sparsity:g}.hsp")
    print(f"{model} {sparsity:g}: {size:,} bytes, {words}")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(f"Run folders are needed; got none.\n\n{__doc__}")
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:]:
        write(Path(name))
