"""`PredictionCheck`: whether a written network predicts the same as the trained one."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.export.graph_module import to_module
from hypersparse.export.trained_model import TrainedModel
from hypersparse.sparsity.eval_mode import eval_mode
from hypersparse.training.loaders import EvalLoader
from hypersparse_runtime.graph import Graph

Predict = Callable[[Tensor], Tensor]
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Told what is predicted and for how many images, it is entered meanwhile and told of those that are done."""
BATCH = 128  # images; ResNet-32 took 11 s for 1,024 of them by 512 at a time and 6 s by 128, on two cores


RANDOM_INPUTS = 16


def difference(model: nn.Module, predict: Predict, shape: tuple[int, ...]) -> float:
    """The largest difference of two networks' outputs for random inputs, relative to the largest output."""
    inputs = torch.randn(RANDOM_INPUTS, *shape)
    with torch.no_grad(), eval_mode(model):
        expected, came = model(inputs), predict(inputs)
    return float((expected - came).abs().max() / expected.abs().max().clamp(min=1e-30))


class PredictionCheck:
    """Compares the predictions of two networks for `count` test images, evenly spaced in the test set."""

    def __init__(self, trained: TrainedModel, count: int | None, progress: Progress | None = None) -> None:
        test = trained.dataset.test
        self.count = len(test) if count is None else min(count, len(test))
        split = test if self.count == len(test) else test[spread(len(test), self.count)]
        self._progress = progress or (lambda text, count: nullcontext(lambda done: None))
        self.batches = EvalLoader(split, trained.dataset, torch.device("cpu"))
        self.batches.batch_size = BATCH
        self._labels, self._model = split.labels, trained.model
        self._original: Tensor | None = None

    def agrees(self, graph: Graph) -> bool:
        """Whether a network predicts the same as the original, in PyTorch."""
        return self.same(to_module(graph))

    def same(self, predict: Predict) -> bool:
        """Whether a function gives the original's predictions."""
        wanted = torch.split(self._predictions_of_original(), BATCH)
        with self._progress("Predictions of the export", self.count) as report:
            predicted = self._predicted(predict, report)
            return all(bool((came == old).all()) for came, old in zip(predicted, wanted, strict=True))  # ends early

    def sentence(self, predict: Predict) -> str:
        """The result in words; raises an error if a prediction changed."""
        if changed := self._changed(predict):
            raise ModelError(f"{changed} of {self.count} test images are predicted otherwise than before the export.")
        original = self._predictions_of_original()
        return (
            f"{self.count} test images are predicted as before; {100 * self._share(original):.2f} % of them are right"
        )

    def comparison(self, predict: Predict) -> str:
        """How a network that may predict otherwise compares with the original."""
        found, original = self._all_predicted(predict, "Predictions of the file"), self._predictions_of_original()
        before, after = (f"{100 * self._share(predictions):.2f} %" for predictions in (original, found))
        changed = int((found != original).sum())
        right = f"Of {self.count} test images {before} are right before and {after} after"
        return f"{right}; {changed} are predicted otherwise"

    def accuracy(self, predict: Predict) -> float:
        """The accuracy of a network on these images."""
        return self._share(self._all_predicted(predict, "Predictions"))

    def _share(self, predictions: Tensor) -> float:
        return float((predictions == self._labels).double().mean())

    def _changed(self, predict: Predict) -> int:
        found = self._all_predicted(predict, "Predictions of the file")
        return int((found != self._predictions_of_original()).sum())

    def _predictions_of_original(self) -> Tensor:
        if self._original is None:
            with eval_mode(self._model):
                self._original = self._all_predicted(self._model, "Predictions of the trained network")
        return self._original

    def _all_predicted(self, predict: Predict, text: str) -> Tensor:
        with self._progress(text, self.count) as report:
            return torch.cat(list(self._predicted(predict, report)))

    def _predicted(self, predict: Predict, report: Callable[[int], None]) -> Iterator[Tensor]:
        done = 0
        with torch.no_grad():
            for inputs, _ in self.batches:
                predicted = predict(inputs).argmax(1)
                done += len(predicted)
                report(done)
                yield predicted


def spread(total: int, count: int) -> Tensor:
    """The positions of `count` of `total` images, evenly spaced, so that all classes occur in sorted data.

    >>> spread(10, 4).tolist()
    [0, 2, 5, 7]
    """
    return torch.arange(count) * total // max(count, 1)
