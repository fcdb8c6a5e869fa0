import pytest
import torch

from hypersparse.data.dataset import Dataset, Split, channel_statistics, no_options
from hypersparse.errors import DataError, OptionError


def split(count: int = 2, labels: list[int] | None = None) -> Split:
    images = torch.zeros(count, 1, 2, 2, dtype=torch.uint8)
    return Split(images, torch.tensor(labels if labels is not None else [0] * count))


def test_a_dataset_knows_its_shape_and_length() -> None:
    data = Dataset("toy", split(3), split(2), ("a",), (0.5,), (0.5,))
    assert data.shape == (1, 2, 2)
    assert (len(data.train), len(data.test)) == (3, 2)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(2, 1, 2, 2), torch.tensor([0]), "2 images but 1 labels"),
        (torch.zeros(0, 1, 2, 2), torch.tensor([], dtype=torch.int64), "needs images"),
        (torch.zeros(1, 1, 2, 2), torch.tensor([0.0]), "int64"),
        (torch.zeros(1, 1, 2, 2).double(), torch.tensor([0]), "uint8 or float32"),
        (torch.zeros(1, 2, 2, dtype=torch.uint8), torch.tensor([0]), r"\[N, C, H, W\]"),
    ],
)
def test_an_invalid_split_is_refused(images: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Split(images, labels)


def test_labels_beyond_the_classes_are_refused() -> None:
    with pytest.raises(DataError, match=r"test labels of toy must be in 0\.\.1; got 0\.\.2"):
        Dataset("toy", split(), split(2, [0, 2]), ("a", "b"), (0.5,), (0.5,))


def test_train_and_test_must_have_the_same_type_and_shape() -> None:
    other = Split(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 0]))
    with pytest.raises(DataError, match="the same type and shape"):
        Dataset("toy", split(), other, ("a",), (0.5,), (0.5,))


@pytest.mark.parametrize(("mean", "std"), [((0.5, 0.5), (0.5,)), ((0.5,), (0.0,))])
def test_mean_and_std_must_fit(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match=r"mean and a std|positive"):
        Dataset("toy", split(), split(), ("a",), mean, std)


def test_statistics_are_per_channel_and_unscaled_for_floats() -> None:
    images = torch.tensor([[[[1.0, 3.0]], [[2.0, 2.0]]], [[[1.0, 3.0]], [[6.0, 6.0]]]])
    assert channel_statistics(images) == ((2.0, 4.0), (1.0, 2.0))
    assert channel_statistics(torch.tensor([[1.0, 5.0], [3.0, 5.0]])) == ((2.0, 5.0), (1.0, 1.0))


def test_statistics_do_not_depend_on_the_size_of_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    images = torch.randint(0, 256, (7, 3, 4, 4), dtype=torch.uint8)
    whole = channel_statistics(images)
    monkeypatch.setattr("hypersparse.data.dataset.CHUNK_IMAGES", 2)
    assert channel_statistics(images)[1] == pytest.approx(whole[1])
    pixels = images.double() / 255
    assert whole[0] == pytest.approx(tuple(pixels.mean((0, 2, 3)).tolist()))
    assert whole[1] == pytest.approx(tuple(pixels.std((0, 2, 3), correction=0).tolist()))


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(DataError, match="NaN"):
        channel_statistics(torch.tensor([[float("nan")]]))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_that_are_not_finite_are_counted(value: float) -> None:
    images = torch.zeros(3, 1, 2, 2)
    images[1, 0, 1, 1] = value
    whole, bad = Split(torch.zeros(2, 1, 2, 2), torch.tensor([0, 0])), Split(images, torch.tensor([0, 0, 0]))
    with pytest.raises(DataError, match="1 of 3 test images of toy hold NaN"):
        Dataset("toy", whole, bad, ("a",), (0.5,), (0.5,))
    with pytest.raises(DataError, match="1 of 3 training images of toy hold NaN"):
        Dataset("toy", bad, whole, ("a",), (0.5,), (0.5,))


def test_no_options_names_the_option() -> None:
    no_options("digits", {})
    with pytest.raises(OptionError, match="`digits` has no options; got `size`"):
        no_options("digits", {"size": 3})
