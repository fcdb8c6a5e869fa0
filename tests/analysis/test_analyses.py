"""Every analysis on runs written by hand: its numbers, and that it draws."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from hypersparse.analysis import allocation, intersection, masks, tradeoffs
from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.analysis.paper import epochs_to_mask, table
from hypersparse.analysis.plotting import AnalysisResult
from hypersparse.errors import RunError
from tests.analysis.small import TOTALS, record, write


def drawn(result: AnalysisResult) -> list[str]:
    """The names of the lines in its figure."""
    return [line.get_label() for axes in result.figure.axes for line in axes.lines if line.get_label()[0] != "_"]


def test_intersection_has_the_papers_keypoints(tmp_path: Path) -> None:
    run = write(tmp_path)
    (result,) = intersection.analyze([run])
    assert result.name == "intersection-digits-resnet8"
    (row,) = result.tables["intersection-digits-resnet8-keypoints"].to_dict("records")
    assert (row["final_epoch"], row["after_pretraining"], row["one_before"]) == (4, 0.5, 0.9)
    assert row["final_epoch"] == 2 + (epochs_to_mask(run.folder) or 0)  # after 2 of pre-training
    assert row["paper_final_epoch"] is None  # digits are not in the paper
    assert result.data["intersection"].tolist() == [0.2, 0.5, 0.9, 1.0]
    assert drawn(result) == ["art hypersparse"]
    snip = write(tmp_path, method="snip", arrays=record(intersection=np.full(5, np.nan)))  # its mask was there at once
    (both,) = intersection.analyze([snip, write(tmp_path, seed=2)])
    assert both.tables["intersection-digits-resnet8-keypoints"]["method"].tolist() == ["art"]
    assert drawn(both) == ["art hypersparse"]
    dense = write(tmp_path, method="dense", arrays=record(intersection=np.zeros(0)))
    with pytest.raises(RunError, match="has a final mask"):
        intersection.analyze([dense])


def test_a_final_mask_in_the_first_epoch_has_none_before(tmp_path: Path) -> None:
    found = intersection.keypoints(write(tmp_path, arrays=record(intersection=np.array([1.0, 0.5, 0.4, 0.3, np.nan]))))
    assert (found["final_epoch"], found["one_before"]) == (1, None)


def test_the_paper_counts_all_epochs_up_to_the_final_mask() -> None:
    """Its number of regularized ones for VGG-19 at 90 % has no deviation, so that the sum must be exact."""
    cell = {"model": "vgg19", "penalty": "hypersparse", "sparsity": 0.9}
    known = table("regularized_epochs").set_index(["dataset", *cell]).loc[("cifar10", *cell.values())]
    assert (known["epochs_mean"], known["epochs_std"]) == (4.0, 0.0)
    assert intersection.known_keypoints({"data": "cifar10", **cell})["epochs_to_final_mask"] == 60 + 4


def test_the_papers_keypoints_are_found() -> None:
    known = intersection.known_keypoints({"data": "cifar10", "model": "resnet32", "penalty": "l1", "sparsity": 0.9})
    assert (known["epochs_to_final_mask"], known["intersection_after_pretraining"]) == (95, 0.35)


def test_layers_are_means_over_seeds(tmp_path: Path) -> None:
    other = {"conv1.weight": 6, "linear.weight": 4}
    runs = [write(tmp_path), write(tmp_path, seed=1, kept_by_layer=other), write(tmp_path, method="snip")]
    (result,) = allocation.analyze([*runs, write(tmp_path, method="dense")])
    art = result.data[result.data["name"] == "art hypersparse"]
    assert art["kept"].tolist() == [5, 5]
    assert art["density"].tolist() == [5 / 20, 5 / 80]
    assert art["deviation"].round(3).tolist() == [1.414, 1.414]
    assert result.name == "layers-digits-resnet8"
    with pytest.raises(RunError, match="None of these runs has a sparse network"):
        allocation.analyze([write(tmp_path, method="dense", seed=1)])
    strange = write(tmp_path, seed=2, total_by_layer=TOTALS | {"conv1.weight": 21})
    with pytest.raises(RunError, match="has other layers than"):
        allocation.analyze([runs[0], strange])


def test_many_lines_become_a_figure_for_each_sparsity(tmp_path: Path) -> None:
    methods = ("art", "snip", "grasp", "sratio", "lth")
    runs = [write(tmp_path, method=method, sparsity=sparsity) for method in methods for sparsity in (0.9, 0.98)]
    found = allocation.analyze(runs)
    assert [result.name for result in found] == ["layers-digits-resnet8-0.9", "layers-digits-resnet8-0.98"]
    assert set(found[1].data["name"]) == {"art hypersparse", *methods[1:]}


def test_the_end_of_pretraining_is_marked_only_where_there_is_one(tmp_path: Path) -> None:
    usual = write(tmp_path)
    phases = np.array(["regularize"] * 4 + ["fine-tune"])
    without = write(tmp_path, method_options={"pretrain_epochs": 0}, arrays=record(phase=phases))

    def marks(*runs: FinishedRun) -> list[tuple[list[list[float]], str]]:
        (axes,) = intersection.analyze(runs)[0].figure.axes
        lines = [line.get_segments()[0].tolist() for line in axes.collections]
        return list(zip(lines, [" ".join(text.get_text().split()) for text in axes.texts], strict=True))

    assert marks(usual) == [([[2, 0], [2, intersection.TOP]], "end of pre-training")]
    assert marks(usual, without) == [([[2, 0], [2, 0.5]], "end of 2 epochs of pre-training")]  # up to its own curve
    assert marks(without) == []


def test_every_network_has_its_figures(tmp_path: Path) -> None:
    models = ("resnet8", "mlp")
    runs = [write(tmp_path, model=model) for model in models]
    for make, name, words in (
        (intersection.analyze, "intersection", "Intersection with the final mask"),
        (masks.crossings, "crossing", "Mask changes per epoch"),
        (allocation.analyze, "layers", "Weights kept per layer"),
    ):
        found = make(runs)
        assert [result.name for result in found] == [f"{name}-digits-{model}" for model in models]
        titles = [result.figure.get_suptitle().replace("\n", " ") for result in found]
        assert titles == [f"{words}: {model} on digits" for model in models]
    hurt = [result.figure.get_suptitle().replace("\n", " ") for result in tradeoffs.classes(runs)]
    assert hurt == [f"Accuracy by class: {model} on digits, art hypersparse" for model in models]


def test_weights_that_cross(tmp_path: Path) -> None:
    (result,) = masks.crossings([write(tmp_path)])
    assert result.data["share"].tolist() == [0.4, 0.3, 0.1]
    assert result.data["epoch"].tolist() == [1, 2, 3]
    still = write(tmp_path, seed=1, arrays=record(crossed=np.full(5, -1)))
    with pytest.raises(RunError, match="None of these runs records mask changes"):
        masks.crossings([still])


def test_agreement_of_two_seeds_and_of_chance(tmp_path: Path) -> None:
    shifted = np.packbits([False] * 5 + [True] * 10 + [False] * 85)
    pair = [write(tmp_path), write(tmp_path, seed=1, arrays=record(final_sample=shifted))]
    (row,) = masks.agreement(pair)[0].data.to_dict("records")
    assert row["agreement"] == 0.5
    assert row["chance"] == pytest.approx((4 * 4 / 20 + 6 * 6 / 80) / 10)
    assert row["seeds"] == "0, 1"
    with pytest.raises(RunError, match="two seeds"):
        masks.agreement(pair[:1])


def test_accuracy_against_costs(tmp_path: Path) -> None:
    runs = [write(tmp_path), write(tmp_path, method="dense"), write(tmp_path, seed=1, until="x")]
    (result,) = tradeoffs.accuracy(runs)
    assert result.data[["group", "kept", "last", "best"]].to_numpy().tolist() == [
        ["art hypersparse", 10, 70, 75],
        ["dense", 100, 60, 70],
    ]
    assert len(result.figure.axes) == 3
    with pytest.raises(RunError, match="is complete"):
        tradeoffs.accuracy([write(tmp_path, seed=2, until="regularize")])


def test_runs_whose_work_is_not_known_are_counted(tmp_path: Path) -> None:
    (result,) = tradeoffs.accuracy([write(tmp_path), write(tmp_path, seed=1, training_flops=None)])
    assert [axes.get_xlabel() for axes in result.figure.axes] == [
        "weights kept (%)", "training compute (dense FLOPs)\nmissing: 1 of 2 runs", "file size (bytes)",
    ]  # fmt: skip


@pytest.mark.parametrize("fewest", [1, 30, 900])
def test_every_axis_of_costs_has_numbers(tmp_path: Path, fewest: int) -> None:
    few = write(tmp_path, total=100_000, kept=fewest)
    (result,) = tradeoffs.accuracy([few, write(tmp_path, method="dense", total=100_000, kept=100_000)])
    result.figure.canvas.draw()
    axes = result.figure.axes[0]
    low, high = axes.get_xlim()
    assert sum(low <= place <= high for place in axes.get_xticks()) >= 3


@pytest.mark.parametrize("most", [1.3, 3.3, 5.9, 6.1, 40, 59, 61, 226, 3000])
def test_numbers_of_an_axis_of_costs_have_room(tmp_path: Path, most: float) -> None:
    cheap = write(tmp_path, training_flops=355e12)
    (result,) = tradeoffs.accuracy([cheap, write(tmp_path, method="dense", training_flops=most * 355e12)])
    result.figure.canvas.draw()
    axes = result.figure.axes[1]
    low, high = axes.get_xlim()
    shown = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
    assert shown
    for one, other in pairwise(label.get_window_extent() for label in shown):
        assert one.x1 < other.x0


def test_models_are_not_averaged(tmp_path: Path) -> None:
    other = write(tmp_path, model="mlp", sparse={"last": 0.9, "best": 0.9})
    (result,) = tradeoffs.accuracy([write(tmp_path), other])
    first, second = "art hypersparse, resnet8", "art hypersparse, mlp"
    assert result.data[["group", "last"]].to_numpy().tolist() == [[first, 70], [second, 90]]
    assert drawn(result) == [first, second] * 3
    assert result.figure.get_suptitle().startswith("Accuracy of 2 models on digits against")
    (alone,) = tradeoffs.accuracy([other])
    assert alone.figure.get_suptitle().startswith("Accuracy of mlp on digits against")


def test_data_sets_do_not_share_a_figure(tmp_path: Path) -> None:
    runs = [write(tmp_path, data=data, method=method) for data in ("cifar10", "cifar100") for method in ("art", "snip")]
    for make, name in ((tradeoffs.accuracy, "accuracy"), (tradeoffs.effective, "effective")):
        found = make(runs)
        assert [result.name for result in found] == [f"{name}-cifar10", f"{name}-cifar100"]
        assert ["cifar100" in result.figure.get_suptitle() for result in found] == [False, True]
        assert set(drawn(found[1])) == {"art hypersparse", "snip"}  # where they are need not be said


def test_numbers_have_room_beside_a_wide_legend(tmp_path: Path) -> None:
    odd = [{}, {"strength": 1e-4, "growth": 1.017, "pretrain_epochs": 0}, {"penalty": "l1", "best_by": "mean"}]
    runs = [write(tmp_path, method_options=more, training_flops=13e15 * (40 if more else 1)) for more in odd]
    (result,) = tradeoffs.accuracy(runs)
    result.figure.canvas.draw()
    for axes in result.figure.axes:
        low, high = axes.get_xlim()
        shown = [label for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high]
        assert shown
        assert all(one.x1 < other.x0 for one, other in pairwise(label.get_window_extent() for label in shown))


def test_sparsities_have_room_on_an_axis(tmp_path: Path) -> None:
    levels = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
    for many in (4, 6):
        (result,) = tradeoffs.effective([write(tmp_path / str(many), sparsity=level) for level in levels[-many:]])
        result.figure.canvas.draw()
        boxes = [label.get_window_extent() for label in result.figure.axes[0].get_xticklabels()]
        assert len(boxes) == many
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))


def test_effective_weights(tmp_path: Path) -> None:
    (result,) = tradeoffs.effective([write(tmp_path), write(tmp_path, method="dense")])
    assert result.data["share"].tolist() == [0.9]
    with pytest.raises(RunError, match="effective weights"):
        tradeoffs.effective([write(tmp_path, seed=1, effective_kept=None)])


def test_a_dense_run_on_other_images_is_nothing_to_compare_with(tmp_path: Path) -> None:
    fewer = record(class_correct=np.array([[9]]), class_total=np.array([10]))
    dense = write(tmp_path, method="dense", arrays=fewer)
    text = dense.folder.recipe_file.read_text()
    dense.folder.recipe_file.write_text(text.replace("validation = 0", "validation = 9"))
    (result,) = tradeoffs.classes([write(tmp_path), load([dense.folder.path])[0]])
    assert result.data["method"].unique().tolist() == ["art"]


def test_classes_have_the_names_that_any_of_the_runs_knows(tmp_path: Path) -> None:
    runs = [write(tmp_path), write(tmp_path, seed=1, classes=["cat", "dog"])]  # the first as of an older version
    (result,) = tradeoffs.classes(runs)
    assert set(result.data["class"]) == {"cat", "dog"}


def test_change_by_class_is_against_the_dense_run(tmp_path: Path) -> None:
    dense = write(tmp_path, method="dense", arrays=record(class_correct=np.array([[10, 9]] * 5)))
    (result,) = tradeoffs.classes([dense, write(tmp_path)], ["cat", "dog"])
    table = result.tables["classes-digits-resnet8-art-hypersparse-changes"]
    assert table.to_numpy().tolist() == [["dog", -40.0], ["cat", -10.0]]
    assert result.figure.axes[0].get_xlabel() == "change from the dense network (points)"
    sparser = write(tmp_path, sparsity=0.98, kept=2)
    (both,) = tradeoffs.classes([write(tmp_path, seed=3), sparser])
    assert both.figure.axes[0].get_xlabel() == "change from 90 % sparsity (points)"
    with pytest.raises(RunError, match="All of these runs are dense"):
        tradeoffs.classes([dense])
    assert both.figure.texts[0].get_text().startswith("Accuracy change by class")
    (alone,) = tradeoffs.classes([write(tmp_path, seed=1)])
    assert alone.figure.texts[0].get_text().startswith("Accuracy by class")  # against nothing nobody is hurt
    assert alone.tables[f"{alone.name}-changes"].to_numpy().tolist() == [
        ["1", 50.0],
        ["0", 90.0],
    ]
    (named,) = tradeoffs.classes([write(tmp_path, seed=2, classes=["cat", "dog"])])  # as the run itself says
    assert named.tables["classes-digits-resnet8-art-hypersparse-changes"]["class"].tolist() == ["dog", "cat"]


def test_of_many_classes_those_that_are_hurt_most_and_least_are_drawn(tmp_path: Path) -> None:
    names = [f"class_{number}" for number in range(100)]
    right = np.array([[100] * 100, list(range(100))])
    arrays = [record(class_correct=np.tile(rows, (5, 1)), class_total=np.full(100, 100)) for rows in right]
    (result,) = tradeoffs.classes(
        [write(tmp_path, method="dense", arrays=arrays[0]), write(tmp_path, arrays=arrays[1], classes=names)]
    )
    (axes,) = result.figure.axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"class {number}" for number in [*range(10), *range(90, 100)]]
    assert axes.get_xlabel().endswith("\n10 least and 10 most affected of 100 classes at 90 %")
    assert len(result.tables[f"{result.name}-changes"]) == 100
    assert set(result.data["class"]) == set(names)  # tables have the names of the data set
