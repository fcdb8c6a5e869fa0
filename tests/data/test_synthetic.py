from typing import Any

import pytest
import torch

from hypersparse.data import synthetic
from hypersparse.errors import OptionError


def test_options_decide_counts_and_shapes() -> None:
    data = synthetic.load(images=30, test_images=11, size=6, channels=2, classes=5)
    assert (len(data.train), len(data.test), data.shape, len(data.classes)) == (30, 11, (2, 6, 6), 5)
    assert data.train.labels.bincount().tolist() == [6] * 5


def test_the_seed_determines_the_images() -> None:
    first, again, other = (synthetic.load(images=8, size=4, seed=seed) for seed in (0, 0, 1))
    assert first.train.images.equal(again.train.images)
    assert not first.train.images.equal(other.train.images)
    assert first.train.images[0, 0].tolist() == [
        [169, 201, 132, 133],
        [221, 80, 120, 108],
        [157, 102, 64, 117],
        [213, 138, 100, 170],
    ]


def test_more_test_images_do_not_change_the_training_images() -> None:
    few, many = (synthetic.load(images=8, test_images=count, size=4) for count in (1, 9))
    assert few.train.images.equal(many.train.images)


def test_the_task_can_be_learned() -> None:
    data = synthetic.load(images=200, test_images=100, size=8)
    train, test = data.train.images.flatten(1).float(), data.test.images.flatten(1).float()
    centres = torch.stack([train[data.train.labels == label].mean(0) for label in range(10)])
    nearest = torch.cdist(test, centres).argmin(1)
    assert float((nearest == data.test.labels).float().mean()) > 0.95


@pytest.mark.parametrize(("name", "value"), [("images", 0), ("size", "large"), ("classes", -1)])
def test_values_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"`{name}` should be"):
        synthetic.load(**{name: value})


def test_an_unknown_option_gets_the_nearest_name() -> None:
    with pytest.raises(OptionError, match="no synthetic option `chanels`; did you mean `channels`"):
        synthetic.load(chanels=1)
