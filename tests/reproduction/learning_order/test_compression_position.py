"""Compression Position: ranks, tables by class and hardness, the paper's numbers beside them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypersparse.analysis.paper import table
from hypersparse.analysis.plotting import write
from hypersparse.errors import DataError, RunError
from reproduction.learning_order.cifar_n import HumanLabels
from reproduction.learning_order.compression_position import (
    agreement,
    by_class,
    by_seed,
    compression_position,
    learning_orders,
    level_names,
    over_seeds,
    paper_layout,
    paper_positions,
)
from reproduction.learning_order.position_figures import analyze, analyze_classes, epochs_of, shown_classes
from reproduction.learning_order.samples import samples_of
from tests.analysis.recorded import CIFAR, dataset, runs_in, store

LABELS = [4, 4, 7, 7]  # deer, deer, horse, horse


def human(labels: list[int], errors: list[int]) -> HumanLabels:
    clean = np.array(labels)
    said = np.array(
        [[label + (count > person) for label, count in zip(labels, errors, strict=True)] for person in range(3)]
    )
    return HumanLabels(Path("human.npz"), clean, said)


def test_all_equal_counts_are_in_the_middle() -> None:
    assert compression_position(np.full(7, 3, dtype=np.uint16)).tolist() == [0.5] * 7


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_the_mean_is_a_half_and_early_is_low(counts: list[int]) -> None:
    positions = compression_position(np.array(counts, dtype=np.uint16))
    assert positions.mean() == pytest.approx(0.5)
    for count, position in zip(counts, positions, strict=True):
        assert all(position <= other for mine, other in zip(counts, positions, strict=True) if count >= mine)


def test_classes_and_hardness_by_hand(tmp_path: Path) -> None:
    store(tmp_path, dense=[2, 1, 1, 0], pruned=[2, 2, 1, 0], data="cifar10", sparsity=0.98)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(LABELS), human(LABELS, [0, 1, 0, 1]))
    means = over_seeds(by_seed(learning_orders(runs, samples), samples), samples.data)
    found = paper_layout(means).set_index(["sparsity", "human_label_errors"])
    # Pruned: places 0 and 1 shared by the deer (0.25), then 2 (0.625) and 3 (0.875) for the horses.
    assert found.loc[(0.98, "all"), "deer"] == pytest.approx(0.25)
    assert found.loc[(0.98, "all"), "horse"] == pytest.approx(0.75)
    assert found.loc[(0.98, "1"), "horse"] == pytest.approx(0.875)
    assert found.loc[(0.0, "0"), "deer"] == pytest.approx(0.125)
    assert found.loc[(0.0, "1"), "deer"] == found.loc[(0.0, "0"), "horse"] == pytest.approx(0.5)
    assert list(found.index.get_level_values(0)) == sorted(found.index.get_level_values(0))


# Images of CIFAR-10 that 0, 1, 2 and 3 people named wrongly (facts 7).
HARDNESS = {
    "airplane": (3251, 1298, 346, 105),
    "automobile": (2961, 1707, 306, 26),
    "bird": (3160, 1364, 379, 97),
    "cat": (2436, 1554, 710, 300),
    "deer": (2441, 1596, 756, 207),
    "dog": (2901, 1553, 439, 107),
    "frog": (2968, 1533, 420, 79),
    "horse": (3608, 1168, 185, 39),
    "ship": (3417, 1340, 199, 44),
    "truck": (2753, 1664, 520, 63),
}


def test_the_papers_positions_weighted_by_its_images_have_the_mean_of_any_order() -> None:
    rows = [(name, errors, images) for name, counts in HARDNESS.items() for errors, images in enumerate(counts)]
    means = pd.DataFrame(rows, columns=["class", "human_label_errors", "images"])
    known = paper_positions(means)
    classes = known[known["human_label_errors"] == -1].groupby("sparsity")["paper"]
    assert classes.size().tolist() == [10] * 7
    assert classes.mean().tolist() == pytest.approx([0.5] * 7, abs=2e-4)  # of 5000 images each


def test_the_paper_stands_beside(tmp_path: Path) -> None:
    store(tmp_path, pruned=[2, 2, 1, 0], data="cifar10", sparsity=0.98)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(LABELS), human(LABELS, [0, 1, 0, 1]))
    means = over_seeds(by_seed(learning_orders(runs, samples), samples), samples.data)
    easy_deer = means[(means["class"] == "deer") & (means["human_label_errors"] == 0)].iloc[0]
    assert (easy_deer["paper"], easy_deer["difference"]) == (0.045, pytest.approx(0.25 - 0.045))
    all_deer = by_class(means).set_index("class").loc["deer"]
    assert all_deer["paper"] == pytest.approx((0.045 + 0.053) / 2)  # one easy and one harder image
    facts = agreement(means).iloc[0]
    assert (facts["first"], facts["paper_first"], facts["last"]) == ("deer", "deer", "horse")
    assert facts["harder_is_later"] == 2


def test_the_paper_agrees_with_itself() -> None:
    known = table("compression_position").rename(columns={"compression_position": "paper"})
    means = known.assign(model="resnet32", method="art hypersparse", seeds=1, compression_position=known["paper"])
    whole = means[means["human_label_errors"] == 0].assign(human_label_errors=-1)
    facts = agreement(pd.concat([means, whole]).assign(difference=0.0))
    assert facts["rank_correlation"].tolist() == [1.0] * 7
    assert facts["first"].tolist()[1:4] == ["deer", "horse", "deer"]
    assert facts["harder_is_later"].tolist() == [10] * 7


def test_other_data_and_other_methods_have_no_paper(tmp_path: Path) -> None:
    store(tmp_path, dense=[2, 1, 1, 0])
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(LABELS, name="digits"))
    found = analyze(runs, samples)
    assert found.data["paper"].isna().all()
    assert "positions-difference" not in found.tables


def test_what_runs_share_counts_once_and_seeds_are_averaged(tmp_path: Path) -> None:
    for sparsity in (0.9, 0.98):
        store(tmp_path, dense=[2, 1, 1, 0], pruned=[2, 1, 1, 0], sparsity=sparsity)
    store(tmp_path, dense=[0, 1, 1, 2], pruned=[0, 1, 1, 2], seed=1)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(LABELS, name="digits"))
    rows = by_seed(learning_orders(runs, samples), samples)
    means = over_seeds(rows, samples.data).set_index(["sparsity", "class"])
    assert means["seeds"].to_dict() == {
        (0.0, "deer"): 2, (0.0, "horse"): 2, (0.9, "deer"): 2, (0.9, "horse"): 2, (0.98, "deer"): 1, (0.98, "horse"): 1
    }  # fmt: skip
    assert means.loc[(0.0, "deer"), "compression_position"] == pytest.approx(0.5)
    assert means.loc[(0.0, "deer"), "deviation"] == pytest.approx(0.375 / 2**0.5)


def test_held_out_images_are_left_out(tmp_path: Path) -> None:
    store(tmp_path, dense=[2, 1], validation=2)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset([0, 1, 2, 3], name="digits"))
    assert len(samples) == 2
    assert samples.labels.tolist() == samples.places.tolist() == sorted(samples.places.tolist())
    assert [row["class"] for _, row in by_seed(learning_orders(runs, samples), samples).iterrows()] == [
        CIFAR[label] for label in samples.labels
    ]


def test_runs_on_other_images_are_refused(tmp_path: Path) -> None:
    store(tmp_path / "a", dense=[2, 1, 1, 0])
    store(tmp_path / "b", dense=[2, 1], validation=2)
    runs = runs_in(tmp_path / "a")
    with pytest.raises(RunError, match="counts 4 training images but digits has 3"):
        learning_orders(runs, samples_of(runs, dataset(LABELS[:3], name="digits")))
    with pytest.raises(RunError, match=r"digits \(0 held out\) and digits \(2 held out\)"):
        samples_of([*runs, *runs_in(tmp_path / "b")], dataset(LABELS, name="digits"))
    with pytest.raises(DataError, match="clean labels differ"):
        samples_of(runs, dataset(LABELS), human([0, 0, 0, 0], [0, 0, 0, 0]))


def test_runs_that_counted_nothing_are_said(tmp_path: Path) -> None:
    store(tmp_path)
    runs = runs_in(tmp_path)
    with pytest.raises(RunError, match="None of these runs counted"):
        learning_orders(runs, samples_of(runs, dataset(LABELS, name="digits")))


def test_levels_are_named_apart() -> None:
    words = [{"model": "a", "method": method, "sparsity": 0.9} for method in ("art l1", "art l2")]
    assert level_names(words) == ["90 % pruned, art l1", "90 % pruned, art l2"]


def test_class_accuracy_and_its_area(tmp_path: Path) -> None:
    labels = list(range(10))
    store(tmp_path, dense=[2] * 10, pruned=[1] * 10)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(labels, name="digits"))
    dense, pruned = learning_orders(runs, samples)
    assert (epochs_of(dense).tolist(), epochs_of(pruned).tolist()) == ([0, 1], [2, 3])
    areas = analyze_classes(runs, samples).tables["class-accuracy-area"].set_index(["sparsity", "class"])
    assert areas.loc[(0.0, "airplane"), "test_area"] == pytest.approx((0 + 1) / 2 / 20)
    assert areas.loc[(0.9, "automobile"), "test_area"] == pytest.approx((3 + 4) / 2 / 20)
    assert areas.loc[(0.9, "deer"), "training_area"] == 0.5


def test_a_seed_trained_twice_counts_both_times(tmp_path: Path) -> None:
    labels = list(range(10))
    for sparsity, dense in ((0.9, [2] * 10), (0.98, [1] * 9 + [2])):  # two pre-trainings that came out differently
        store(tmp_path, dense=dense, pruned=[1] * 10, sparsity=sparsity)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(labels, name="digits"))
    assert [network.sparsity for network in learning_orders(runs, samples)] == [0.0, 0.0, 0.9, 0.98]
    areas = analyze_classes(runs, samples).tables["class-accuracy-area"].set_index(["sparsity", "class"])
    assert areas.loc[(0.0, "airplane"), "training_area"] == pytest.approx((2 / 2 + 1 / 2) / 2)
    assert areas.loc[(0.0, "airplane"), "test_area"] == pytest.approx((0 + 1) / 2 / 20)


def test_the_files_are_written(tmp_path: Path) -> None:
    labels = list(range(10)) * 4
    counts = np.random.default_rng(0).integers(0, 3, 40)
    store(tmp_path / "runs", dense=counts, pruned=counts, data="cifar10")
    runs = runs_in(tmp_path / "runs")
    samples = samples_of(runs, dataset(labels), human(labels, [place % 4 for place in range(40)]))
    found = analyze(runs, samples)
    paths = [*write(tmp_path, found), *write(tmp_path, analyze_classes(runs, samples))]
    assert {path.suffix for path in paths} == {".png", ".svg", ".csv"}
    assert all(path.stat().st_size for path in paths)
    assert shown_classes(found.data) != list(CIFAR)


def test_of_very_many_classes_both_ends_are_drawn() -> None:
    level = pd.DataFrame(
        {"class": [f"{n}" for n in range(100)], "human_label_errors": -1, "compression_position": range(100)}
    )
    assert shown_classes(level) == [f"{n}" for n in [*range(10), *range(90, 100)]]


def test_a_figure_of_many_classes_says_which_are_shown_and_what_one_person_said(tmp_path: Path) -> None:
    names = tuple(f"a_class_{number}" for number in range(100))
    labels = [number for number in range(100) for _ in range(2)]
    counts = np.arange(200)[::-1].copy()  # the first class is learnt first
    store(tmp_path, dense=counts, pruned=counts, data="cifar100")
    runs = runs_in(tmp_path)
    said = np.array([[label if place % 2 else label + 1 for place, label in enumerate(labels)]])
    people = HumanLabels(Path("human.npz"), np.array(labels), said)
    samples = samples_of(runs, dataset(labels, name="cifar100", classes=names), people)
    figure = analyze(runs, samples).figure
    lowest = figure.axes[-1]
    shown = [label.get_text() for label in lowest.get_xticklabels()]
    assert shown == [f"a class {number}" for number in [*range(10), *range(90, 100)]]
    assert lowest.get_xlabel() == "the first 10 and the last 10 of 100 classes in the lowest panel"
    assert lowest.get_title(loc="right").startswith("a class 0 first, a class 99 last")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "annotator right",
        "annotator wrong",
    ]
    assert not any(line.get_clip_on() for axes in figure.axes for line in axes.lines if line.get_marker() != "None")
