import pytest
import torch
from torch import Tensor, nn

from hypersparse.training.evaluate import evaluate

IMAGES, LABELS = torch.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]]), torch.tensor([1, 0, 0])


class Spoilt(nn.Linear):
    """Gives its inputs back, but NaN for those that are larger than 1."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.where(images.amax(1, keepdim=True) > 1, torch.nan, images)


def test_outputs_of_nan_are_said_and_count_as_wrong() -> None:
    with pytest.warns(UserWarning, match=r"loss on 3 images .* is nan"):
        found = evaluate(Spoilt(2, 2), [(IMAGES, LABELS)])
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.hits.tolist() == [True, True, False]


def test_finite_outputs_are_scored_without_a_warning() -> None:
    found = evaluate(Spoilt(2, 2), [(IMAGES[:2], LABELS[:2])])
    assert found.accuracy == 1.0
    assert found.loss == pytest.approx(0.31326, abs=1e-5)  # log(1 + 1 / e)
