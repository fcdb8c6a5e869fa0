"""Write the masks that `hypersparse bench inference` measures on, from run folders of ART on CIFAR-10.

    python benchmarks/write_masks.py RUN_AT_0.98 RUN_AT_0.998

The runs are finished, with the folder `history` that they had until then. A run's own sparsity comes with its trained
weights. The other sparsities are masks that the same runs would have had in their last epoch before pruning (they
nest), with random weights: nobody trained those. `about["mask"]` in each file says which.
"""

import sys
from pathlib import Path

import numpy as np
import torch

from hypersparse import models
from hypersparse.export.compressed import exact, save_graph
from hypersparse.export.trace import trace
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.checkpoint import load_tree
from hypersparse.training.history import innermost
from hypersparse.training.weights_file import load_weights_

SHAPE, CLASSES, MODEL = (3, 32, 32), 10, "resnet32"
TRAINED, NESTED = "trained", "trained mask, random weights"
FOLDER = Path(__file__).parent / "masks"


def network(run: Path) -> torch.nn.Module:
    """The network of a finished run."""
    model = models.build(MODEL, shape=SHAPE, classes=CLASSES).eval()
    load_weights_(model, run / "final.safetensors")
    return model


def nested(run: Path, sparsity: float) -> torch.nn.Module:
    """The run's network with another mask of its history and random weights."""
    for file in sorted((run / "history").glob("*.safetensors"), reverse=True):
        epoch = load_tree(file)
        if sparsity in epoch["levels"]:
            break
    model = network(run)
    weights = PrunableWeights(model)
    mask = innermost(epoch["masks"][: epoch["levels"].index(sparsity) + 1], weights.total)
    rng, at = np.random.default_rng(0), 0
    for _, weight in weights.items():
        part = mask[at : at + weight.numel()].reshape(weight.shape)
        at += weight.numel()
        values = torch.from_numpy(rng.normal(size=tuple(weight.shape)).astype(np.float16).astype(np.float32))
        spread = max(1.0, float(part.sum()) / weight.shape[0]) ** -0.5  # so that signals keep their size
        weight.data = part * (values * spread).half().float()
    return model


def main(lower: Path, upper: Path) -> None:
    """All six files."""
    FOLDER.mkdir(exist_ok=True)
    trained = {0.98: lower, 0.998: upper}
    for sparsity in (0.9, 0.95, 0.98, 0.99, 0.995, 0.998):
        run = trained.get(sparsity, lower if sparsity < 0.98 else upper)
        torch.manual_seed(0)
        model = network(run) if sparsity in trained else nested(run, sparsity)
        about = {"mask": TRAINED if sparsity in trained else NESTED, "run": run.parent.name}
        size = save_graph(exact(trace(model, SHAPE, about)), FOLDER / f"{MODEL}-{sparsity:g}.hsp")
        print(f"{sparsity:g}: {size:,} bytes, {about['mask']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
