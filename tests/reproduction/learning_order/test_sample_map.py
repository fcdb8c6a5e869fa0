"""The map of images: windows, ellipses, stored coordinates."""

from pathlib import Path

import numpy as np
import pytest

from hypersparse.analysis.plotting import write
from hypersparse.errors import DataError
from reproduction.learning_order.compression_position import learning_orders
from reproduction.learning_order.sample_map import (
    analyze,
    analyze_hardness,
    class_markers,
    ellipse_of,
    sample_orders,
    window,
)
from reproduction.learning_order.samples import Samples, samples_of
from reproduction.learning_order.tsne import Points, cached_points, embed, key_of
from tests.analysis.recorded import CIFAR, dataset, runs_in, store

MANY = 400


def points(count: int = MANY) -> Points:
    return Points(np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32), "noise")


def test_the_windows_are_in_order_of_position(tmp_path: Path) -> None:
    counts = np.arange(MANY)[::-1]
    store(tmp_path, dense=counts)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset([place % 10 for place in range(MANY)], name="digits"))
    (level,) = sample_orders(learning_orders(runs, samples), np.arange(MANY))
    assert window(level.order, 0.0, 0.05).tolist() == list(range(20))
    assert window(level.order, 0.95, 1.0).tolist() == list(range(380, 400))
    (part,) = sample_orders(learning_orders(runs, samples), np.arange(0, MANY, 2))
    assert part.order.tolist() == list(range(200))
    assert part.positions[1] == pytest.approx(2.5 / MANY)


def test_ties_are_not_in_file_order(tmp_path: Path) -> None:
    labels = sorted(place % 10 for place in range(MANY))  # as in a folder of images
    store(tmp_path, dense=np.full(MANY, 2))
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(labels, name="digits"))
    (level,) = sample_orders(learning_orders(runs, samples), np.arange(MANY))
    assert len(set(samples.labels[window(level.order, 0.0, 0.05)])) > 5


def test_an_ellipse_by_hand() -> None:
    line = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]) + 5
    centre, width, height, angle = ellipse_of(line)
    long, short = 4 * np.sqrt(18 / 3), 4 * np.sqrt(2 / 3)
    assert centre.tolist() == [5.0, 5.0]
    assert (width, height) == (pytest.approx(short), pytest.approx(long))
    assert abs(angle) == pytest.approx(90)  # the first axis is the short one, which stands upright


def test_the_figures_and_their_data_say_what_they_are_made_of(tmp_path: Path) -> None:
    counts = np.random.default_rng(1).integers(0, 3, MANY)
    store(tmp_path, dense=counts, pruned=counts)
    runs = runs_in(tmp_path)
    labels = np.arange(MANY) % 10
    samples = Samples("digits", CIFAR, np.arange(MANY), labels, hardness=np.arange(MANY) // 10 % 4, people=3)
    found = analyze(sample_orders(learning_orders(runs, samples), np.arange(MANY)), samples, points(), total=MANY)
    hard = analyze_hardness(samples, points(), total=MANY)
    for each in (found, hard):
        assert set(each.data["embedding"]) == {"noise"}
        assert "noise" in each.figure.legends[0].get_title().get_text()
        assert all(path.stat().st_size for path in write(tmp_path, each))
    assert found.tables["map-classes"]["images"].tolist() == [20] * 6
    assert found.tables["map-classes"][list(CIFAR)].sum(axis=1).tolist() == pytest.approx([1.0] * 6)
    assert hard.tables["map-spread"]["images"].tolist() == [100] * 4


def test_what_one_person_said_is_not_a_share_of_people() -> None:
    hardness = np.arange(MANY) // 10 % 2
    classes = ("a_b", *CIFAR[1:])
    samples = Samples("cifar100", classes, np.arange(MANY), np.arange(MANY) % 10, hardness=hardness, people=1)
    figure = analyze_hardness(samples, points(), total=MANY).figure
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["annotator right: 200 images", "annotator wrong: 200 images"]
    assert figure.legends[0].get_texts()[0].get_text() == "a b"


def test_ten_of_many_classes_have_a_colour() -> None:
    labels = np.array([label for label in range(30) for _ in range(label + 1)])
    samples = Samples("x", tuple(map(str, range(30))), np.arange(len(labels)), labels)
    looks = class_markers(samples, np.arange(len(labels)))
    assert 0 in class_markers(samples, np.array([0]))
    assert list(looks) == list(range(20, 30))
    assert len({look["color"] for look in looks.values()}) == len({look["marker"] for look in looks.values()}) == 10


def test_coordinates_are_made_once(tmp_path: Path) -> None:
    path, made = tmp_path / "new" / "map.npz", []

    def make() -> np.ndarray:
        made.append(1)
        return np.full((3, 2), len(made), dtype=np.float32)

    key = key_of("clip", np.arange(3), perplexity=30, seed=0)
    assert not cached_points(path, key, "CLIP", make)[1]
    again, reused = cached_points(path, key, "CLIP", make)
    assert reused
    assert again.coordinates.tolist() == [[1.0, 1.0]] * 3
    for other in ("clip", "efficientnet"):
        changed = key_of(other, np.arange(4) if other == "clip" else np.arange(3), perplexity=30, seed=0)
        assert not cached_points(path, changed, "CLIP", make)[1]
    path.write_bytes(b"damaged")
    assert not cached_points(path, key, "CLIP", make)[1]
    assert len(made) == 4


def test_two_clouds_stay_apart_and_few_points_are_refused() -> None:
    vectors = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    vectors[30:] += 20
    laid = embed(vectors, perplexity=10, seed=0)
    near = np.linalg.norm(laid[:30] - laid[:30].mean(0), axis=1).max()
    assert np.linalg.norm(laid[:30].mean(0) - laid[30:].mean(0)) > near
    with pytest.raises(DataError, match="more than 30 images"):
        embed(vectors[:20], perplexity=30, seed=0)


def test_widths_are_means_over_the_same_classes() -> None:
    labels = np.array([0] * 32 + [1] * 16)  # class 1 has no image that three people got wrong
    hardness = np.array([*(place // 8 for place in range(32)), *(place // 8 for place in range(16))])
    samples = Samples("x", ("a", "b"), np.arange(48), labels, hardness=hardness, people=3)
    where = np.zeros((48, 2), dtype=np.float32)
    where[:32, 0] = np.tile([-1, 1], 16) * (hardness[:32] + 1)
    where[32:] = 1000 * np.arange(16)[:, None]
    table = analyze_hardness(samples, Points(where, "hand"), total=48).tables["map-spread"]
    assert table["classes"].tolist() == [1] * 4
    deviation = np.sqrt(8 / 7)  # of eight values -1 and 1
    assert table["spread"].tolist() == pytest.approx([deviation * (kind + 1) for kind in range(4)], rel=1e-5)
