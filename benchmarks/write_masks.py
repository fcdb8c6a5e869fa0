"""Write the masks that `hypersparse bench inference` measures on, from finished runs of ART on CIFAR-10.

    python benchmarks/write_masks.py MODEL RUN_AT_0.98 RUN_AT_0.998

Of ResNet-32 both runs come with their trained weights. Everything else is there for its mask: its weights have two
values a layer, so that all files together stay small, and the bench draws others. Other sparsities are masks that the
same runs would have had in their last epoch before pruning (they nest), where the folder `history` that they had until
then is still there; else the largest weights of the run at 0.98. `about["mask"]` in each file says which.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from hypersparse import models
from hypersparse.export.compressed import exact, save_graph
from hypersparse.export.trace import trace
from hypersparse.sparsity.budgets import keep_count
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.checkpoint import load_tree
from hypersparse.training.history import innermost
from hypersparse.training.weights_file import load_weights_

SHAPE, CLASSES = (3, 32, 32), 10
SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
WITH_WEIGHTS = "resnet32"  # VGG-19's at 0.98 would be 1.9 MB
TRAINED, NESTED = "trained", "trained mask, random weights"
LARGEST = "largest of a trained mask, random weights"
FOLDER = Path(__file__).parent / "masks"


def network(model: str, run: Path) -> torch.nn.Module:
    """The network of a finished run."""
    found = models.build(model, shape=SHAPE, classes=CLASSES).eval()
    load_weights_(found, run / "final.safetensors")
    return found


def in_history(run: Path, sparsity: float, total: int) -> torch.Tensor | None:
    """The last mask at that sparsity that a run took down."""
    for file in sorted((run / "history").glob("*.safetensors"), reverse=True):
        epoch = load_tree(file)
        if sparsity in epoch["levels"]:
            return innermost(epoch["masks"][: epoch["levels"].index(sparsity) + 1], total)
    return None


def fill_(weights: PrunableWeights, mask: torch.Tensor) -> None:
    """Plus or minus one number a layer where a mask of all weights keeps some, zero elsewhere."""
    rng, at = np.random.default_rng(0), 0
    for weight in weights.values():
        part = mask[at : at + weight.numel()].reshape(weight.shape)
        at += weight.numel()
        signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=tuple(weight.shape)))
        spread = max(1.0, float(part.sum()) / weight.shape[0]) ** -0.5  # so that signals keep their size
        weight.data = part * (signs * spread).half().float()


def made(model: str, sparsity: float, lower: Path, upper: Path) -> tuple[torch.nn.Module, str, Path] | None:
    """The network at a sparsity, what it is, and the run it is of; None where no run has such a mask."""
    run = lower if sparsity <= 0.98 else upper
    found = network(model, run)
    is_own = sparsity in (0.98, 0.998)
    if is_own and model == WITH_WEIGHTS:
        return found, TRAINED, run
    weights = PrunableWeights(found)
    mask = sizes_of(weights) > 0 if is_own else in_history(run, sparsity, weights.total)
    if mask is not None:
        fill_(weights, mask)
        return found, NESTED, run
    if sparsity < 0.98:
        return None
    found = network(model, lower)
    weights = PrunableWeights(found)
    mask = torch.zeros(weights.total, dtype=torch.bool)
    mask[sizes_of(weights).topk(keep_count(weights.total, sparsity)).indices] = True
    fill_(weights, mask)
    return found, LARGEST, lower


def sizes_of(weights: PrunableWeights) -> torch.Tensor:
    """All weights without their signs, one after another."""
    return torch.cat([weight.detach().abs().flatten() for weight in weights.values()])


def main(model: str, lower: Path, upper: Path) -> None:
    """A file for each sparsity."""
    FOLDER.mkdir(exist_ok=True)
    for sparsity in SPARSITIES:
        torch.manual_seed(0)
        what = made(model, sparsity, lower, upper)
        if what is None:
            print(f"{sparsity:g}: no mask")
            continue
        found, words, run = what
        about = {"mask": words, "run": run.parent.name}
        size = save_graph(exact(trace(found, SHAPE, about)), FOLDER / f"{model}-{sparsity:g}.hsp")
        print(f"{sparsity:g}: {size:,} bytes, {about['mask']}")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"A model and two run folders are needed; got {len(sys.argv) - 1} words.\n\n{__doc__}")
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
