"""Draw the pictures of docs/art-in-pictures.md: the weights of a digits network in every epoch of ART.

    python scripts/draw_art.py docs

trains the preset of digits at 95 % with seed 0, half a minute on a CPU.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from hypersparse import ART, Machine, Sparsifier, train
from hypersparse.analysis.plotting import BLUE, FAINT, GREY, ORANGE
from hypersparse.recipe import resolve
from hypersparse.training.callbacks import Callback

BINS = np.linspace(-7, 0.5, 76)  # of the decimal logarithm of a weight's size
TITLES = {
    "pre-train": "pre-train: ordinary training of all weights",
    "regularize": "regularize: the penalty grows in every epoch",
    "fine-tune": "fine-tune: the mask is fixed",
}


class WeightRecorder(Callback):
    """Copies all weights after every epoch."""

    def started(self, sparsifier: Sparsifier, entries: Sequence[Any], steps: int) -> None:
        """Keep hold of the network."""
        self.sparsifier = sparsifier
        self.epochs: list[tuple[Any, NDArray[Any]]] = []

    def finished_epoch(self, entry: Any) -> None:
        """Copy its weights."""
        self.epochs.append((entry, self.sparsifier.weights.vector().detach().numpy().copy()))


def draw(epochs: list[tuple[Any, NDArray[Any]]], number: int, size: tuple[float, float]) -> Image.Image:
    """The weights after one epoch, and the accuracies until then."""
    entry, weights = epochs[number]
    kept = epochs[-1][1] != 0
    figure = Figure(figsize=size, dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    with np.errstate(divide="ignore"):
        sizes = np.log10(np.abs(weights))
    for chosen, color, label in ((~kept, FAINT, "pruned in the end"), (kept, ORANGE, "kept")):
        left.hist(sizes[chosen & (weights != 0)], BINS, color=color, label=label, log=True)
    left.set(xlim=(-7, 0.5), ylim=(0.8, 1e5), xlabel="size of a weight", ylabel="weights")
    left.set_xticks(range(-7, 1), [f"$10^{{{power}}}$" for power in range(-7, 1)])
    zeros = int((weights == 0).sum())
    left.set_title(f"epoch {number}: {TITLES[entry['phase']]}", fontsize=9, loc="left")
    left.text(-6.9, 4e4, f"exactly zero: {zeros:,} of {len(weights):,}", fontsize=8, color=GREY)
    left.legend(loc="upper right", fontsize=8, frameon=False)
    for key, color, label in (("train_accuracy", BLUE, "trained network"), ("pruned_score", ORANGE, "pruned copy")):
        points = [
            (place, past[key]) for place, (past, _) in enumerate(epochs[: number + 1]) if past.get(key) is not None
        ]
        right.plot(*zip(*points, strict=True) if points else ([], []), color=color, label=label)
    right.set(xlim=(0, len(epochs)), ylim=(0, 1.02), xlabel="epoch", title="accuracy on training images")
    right.title.set_fontsize(9)
    right.legend(loc="lower right", fontsize=8, frameon=False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def main(folder: Path) -> None:
    """Train, and write both pictures."""
    recorder = WeightRecorder()
    with tempfile.TemporaryDirectory() as run:
        recipe = resolve({"data": {"name": "digits"}, "method": {"name": ART.name, "sparsity": 0.95}})
        train(recipe, 0, Machine(device="cpu"), run, callback=recorder)
    epochs = recorder.epochs
    frames = [draw(epochs, number, (8, 3.2)) for number in range(len(epochs))]
    times = [300] * (len(frames) - 1) + [4000]
    frames[0].save(
        folder / "art-in-pictures.webp", save_all=True, append_images=frames[1:], duration=times, loop=0, quality=60
    )
    phases = [entry["phase"] for entry, _ in epochs]
    begin = phases.index("regularize")
    end = phases.index("fine-tune")
    shown = (begin - 1, (begin + end) // 2, end - 2, len(epochs) - 1)  # the last before pruning
    stills = [draw(epochs, number, (8, 2.6)) for number in shown]
    sheet = Image.new("RGB", (stills[0].width, sum(still.height for still in stills)))
    for place, still in enumerate(stills):
        sheet.paste(still, (0, place * still.height))
    sheet.quantize(64).save(folder / "art-in-pictures.png", optimize=True)
    print({key: epochs[-1][0].get(key) for key in ("epoch", "kept", "total", "test_accuracy")}, "shown:", shown)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
