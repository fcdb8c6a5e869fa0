"""Which images an export is verified on, and what is told meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from hypersparse import data
from hypersparse.cli.load_network import USUAL_IMAGES, image_count
from hypersparse.errors import ModelError, OptionError
from hypersparse.export.trained_model import TrainedModel
from hypersparse.export.verify import BATCH, PredictionCheck, spread
from hypersparse.recipe import Recipe


def test_images_are_at_even_distances() -> None:
    assert spread(1000, 4).tolist() == [0, 250, 500, 750]
    assert spread(5, 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("text", "count"), [("all", None), ("0", 0), ("250", 250), (str(USUAL_IMAGES), 1000)])
def test_a_count_or_all(text: str, count: int | None) -> None:
    assert image_count(text) == count


@pytest.mark.parametrize("text", ["some", "-1", "1.5", "", "²"])
def test_what_is_no_count_is_one_sentence(text: str) -> None:
    with pytest.raises(OptionError, match="a count of images or `all`; got"):
        image_count(text)


def trained() -> TrainedModel:
    torch.manual_seed(0)
    dataset = data.load("digits", ())
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return TrainedModel(Path(), model, Recipe(), dataset)


@pytest.mark.parametrize(("count", "tested"), [(20, 20), (None, 360), (5000, 360)])
def test_progress_is_told_up_to_the_last_image(count: int | None, tested: int) -> None:
    told: list[tuple[str, int, list[int]]] = []

    @contextmanager
    def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
        told.append((text, total, []))
        yield told[-1][2].append

    stored = trained()
    check = PredictionCheck(stored, count, progress)
    assert check.count == tested
    assert f"{tested} test images are predicted as before" in check.sentence(stored.model)
    assert [total for _, total, _ in told] == [tested, tested]
    assert all(done == [*range(BATCH, tested, BATCH), tested] for _, _, done in told)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert not check.same(other)
    with pytest.raises(ModelError, match=f"of {tested} test images are predicted otherwise"):
        check.sentence(other)
