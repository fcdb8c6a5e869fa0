"""What a run leaves of its epochs, and that leaving it changes nothing."""

import contextlib
import itertools
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor

from hypersparse import data, models
from hypersparse.data.batches import Batches
from hypersparse.data.npz_file import Arrays
from hypersparse.errors import RunError
from hypersparse.recipe import Recipe
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.penalties import hypersparse_grad
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.storage.history import History, nested_masks, pack_bits
from hypersparse.storage.record import SAMPLED, Known, make_record, read_record, sample_of, write_record
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import digest, load_weights_
from hypersparse.training.callbacks import Callback
from hypersparse.training.evaluate import evaluate
from hypersparse.training.loaders import bring_images
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.recorder import curve_places
from hypersparse.training.stop import Stopped
from tests.storage.test_phase_cache import phases_trained
from tests.stored import whole_record
from tests.training.small import StopAfter, small
from tests.training.test_loop import same_network, values

CPU = Machine(device="cpu", checkpoint_seconds=0.0)
pytestmark = pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
PRETRAINED, FREE = 2, 5  # epochs of pre-training, and epochs until the final mask holds


class Weights(Callback):
    """Takes the weights after each epoch's last step."""

    def __init__(self) -> None:
        self.after: list[Tensor] = []

    def started(self, sparsifier: Any, entries: Any, steps: int) -> None:
        self.weights, self.steps = sparsifier.weights, steps

    def stepped(self, step: int) -> None:
        if step == self.steps:
            self.after.append(self.weights.vector().detach().clone())


def recorded(recipe: Recipe, folder: Path, **options: Any) -> Arrays:
    train(recipe, 0, CPU, folder, **options)
    return read_record(folder)


def assert_equal(one: Arrays, other: Arrays) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
        assert one[name].dtype == other[name].dtype


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Tensor]]:
    """An uninterrupted run, and its weights after each epoch."""
    folder, callback = tmp_path_factory.mktemp("whole"), Weights()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(small(), 0, CPU, folder, callback=callback)
    return folder, callback.after


def test_eight_weights_by_hand() -> None:
    """Two layers of four weights; at 75 % sparsity two are kept."""
    epochs: list[dict[str, Any] | None] = []
    for magnitudes in ([8, 1, 7, 2, 6, 3, 5, 4], [8, 1, 5, 2, 6, 3, 7, 4], [1, 2, 3, 4, 5, 6, 8, 7]):
        masks, smallest = nested_masks(torch.tensor(magnitudes).float(), [4, 2])
        epochs.append({"levels": [0.5, 0.75], "masks": masks, "w_kappa": smallest})
    right = [pack_bits(torch.tensor(bits).bool()) for bits in ([1, 0, 1], [1, 0, 0])]
    epochs[0] |= {"dense": right[0], "class_correct": torch.tensor([1, 2])}  # type: ignore[operator]
    curve = torch.tensor([[0.1, 1.0], [3.0, 2.0], [0.25, 0.75]])
    epochs[1] |= {"dense": right[1], "curve": curve}  # type: ignore[operator]
    final = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1]).bool()
    known = Known(
        phases=["dense", "press", "press", "tune", "tune"],
        sparsity=0.75,
        totals={"a": 4, "b": 4},
        final=final,
        samples=3,
        class_total=np.array([2, 2]),
        device=torch.device("cpu"),
    )
    record = make_record([*epochs, {"levels": []}, None], known)
    assert (record["sparsity"], record["keep"], record["layers"].tolist()) == (0.75, 2, ["a", "b"])
    assert record["total_by_layer"].tolist() == [4, 4]
    assert record["kept_by_layer"].tolist() == [[2, 0], [1, 1], [0, 2], [-1, -1], [-1, -1]]
    assert record["crossed"].tolist() == [-1, 1, 1, -1, -1]
    np.testing.assert_array_equal(record["w_kappa"], [7, 7, 7, np.nan, np.nan])
    np.testing.assert_array_equal(record["intersection"], [0, 0.5, 1, np.nan, np.nan])
    assert (record["dense_correct"].tolist(), record["dense_epochs"]) == ([2, 0, 1], 2)
    assert (record["pruned_correct"].tolist(), record["pruned_epochs"]) == ([], 0)
    assert record["class_correct"].tolist() == [[1, 2], *[[-1, -1]] * 4]
    assert record["curve_epochs"].tolist() == [1]
    np.testing.assert_allclose(record["curve_magnitude"], [[0.1, 1.0]], rtol=2**-11)
    assert record["curve_gradient"].tolist() == [[3.0, 2.0]]
    assert record["curve_place"].tolist() == [0.25, 0.75]
    assert record["final_sample"].tolist() == [0b00000011]
    assert record["phase"].tolist() == list(known.phases)


def test_masks_are_those_of_the_weights_after_each_epoch(whole: tuple[Path, list[Tensor]]) -> None:
    folder, after = whole
    record, keep = read_record(folder), int(read_record(folder)["keep"])
    log = RunFolder(folder).log()
    masks = [Mask.top({"all": weights.abs()}, keep)["all"] for weights in after[:FREE]]
    (chosen,) = {entry["best_epoch"] for entry in log[FREE - 1 : FREE]}
    final = masks[PRETRAINED + chosen]
    assert record["intersection"][:FREE].tolist() == [int((mask & final).sum()) / keep for mask in masks]
    assert record["intersection"][PRETRAINED + chosen] == 1.0
    crossed = [int((new & ~old).sum()) for old, new in itertools.pairwise(masks)]
    assert record["crossed"].tolist() == [-1, *crossed, -1, -1]
    assert np.isnan(record["intersection"][FREE:]).all()
    for number, entry in enumerate(log[PRETRAINED:FREE], start=PRETRAINED):
        assert record["kept_by_layer"][number].tolist() == entry["kept_by_layer"]
        assert record["w_kappa"][number] == np.float32(entry["w_kappa"])
    assert record["kept_by_layer"][:FREE].sum(axis=1).tolist() == [keep] * FREE
    assert record["phase"].tolist() == [entry["phase"] for entry in log]


def right(recipe: Recipe, weights: Path | None = None, keep: int | None = None) -> Tensor:
    """Which training images a network gets right: with the weights in a file or as initialized, whole or pruned."""
    dataset = data.load("synthetic", options=recipe.data.options)
    torch.manual_seed(0)
    model = models.build("resnet8", shape=dataset.shape, classes=4, options=recipe.model.options)
    if weights:
        load_weights_(model, weights)
    if keep:
        prunable = PrunableWeights(model)
        with torch.no_grad():
            for weight, kept in zip(prunable.values(), Mask.top(magnitude(prunable), keep).values(), strict=True):
                weight.mul_(kept)
    return evaluate(model, bring_images(recipe, 0, dataset, torch.device("cpu"), Machine()).scoring).hits


@pytest.fixture(scope="module")
def right_before_the_penalty(tmp_path_factory: pytest.TempPathFactory, whole: tuple[Path, list[Tensor]]) -> int:
    """How many training images the pruned network gets right after pre-training."""
    folder = tmp_path_factory.mktemp("pre-trained")
    train(small(until="pre-train"), 0, CPU, folder)
    return int(right(small(), folder / "final.safetensors", int(read_record(whole[0])["keep"])).sum())


def test_correct_samples_add_up_to_the_scores_in_the_log(
    whole: tuple[Path, list[Tensor]], right_before_the_penalty: int
) -> None:
    record, log = read_record(whole[0]), RunFolder(whole[0]).log()
    scores = [entry["pruned_score"] for entry in log[PRETRAINED:FREE]]
    assert record["pruned_epochs"] == 1 + len(scores)
    assert record["pruned_correct"].sum() == right_before_the_penalty + round(128 * sum(scores))
    found = record["class_correct"].sum(axis=1) / record["class_total"].sum()
    np.testing.assert_allclose(found, [entry["test_accuracy"] for entry in log])


def test_dense_samples_are_right_where_the_network_is(tmp_path: Path) -> None:
    recipe = small(until="pre-train", method={"pretrain_epochs": 1}, data={"validation": 16})
    record = recorded(recipe, tmp_path)
    hits = right(recipe).int() + right(recipe, tmp_path / "final.safetensors").int()
    assert record["dense_correct"].tolist() == hits.tolist()
    assert record["dense_epochs"] == 2  # before and after the only epoch


@pytest.mark.parametrize("penalty", ["hypersparse", "l1", "l2"])
def test_curves_are_the_sorted_weights_and_their_gradient(tmp_path: Path, penalty: str) -> None:
    callback = Weights()
    method = {"penalty": penalty, "max_regularized_epochs": 12, "strength": 1e-9, "growth": 1.0, "best_by": "mean"}
    with mock.patch("hypersparse.methods.art.ART.dense_score", return_value=2.0):  # never good enough: all 12 epochs
        record = recorded(small(method=method, training={"epochs": 1}), tmp_path, callback=callback)
    assert record["curve_epochs"].tolist() == [PRETRAINED, PRETRAINED + 10]
    for number, epoch in enumerate(record["curve_epochs"]):
        vector = callback.after[epoch]
        order = vector.abs().argsort()[(record["curve_place"] * len(vector)).astype(int)]
        slopes = {"hypersparse": hypersparse_grad(vector, int(record["keep"])), "l1": vector.sign(), "l2": 2 * vector}
        np.testing.assert_allclose(record["curve_magnitude"][number], vector[order].abs(), rtol=2**-11)
        np.testing.assert_allclose(record["curve_gradient"][number], slopes[penalty][order].abs(), rtol=2**-11)


def test_curve_places_are_ordered_and_dense_where_masks_cut() -> None:
    places = curve_places(1_000_000)
    assert (len(places), int(places[0]), int(places[-1])) == (1000, 0, 999_999)
    assert (places.diff() >= 0).all()
    assert int((places < 500_000).sum()) > 250  # half of the even ones, and a few more
    assert int((places >= 998_000).sum()) > 200  # of the largest 0.2 %
    assert set(curve_places(3).tolist()) == {0, 1, 2}


def test_a_large_final_mask_is_sampled_evenly() -> None:
    final = torch.zeros(SAMPLED * 4, dtype=torch.bool)
    final[: SAMPLED * 2] = True
    bits = np.unpackbits(sample_of(final))
    assert (len(bits), bits[: SAMPLED // 2].all(), bits[SAMPLED // 2 :].any()) == (SAMPLED, True, False)
    assert len(sample_of(None)) == 0


def test_with_or_without_a_record_the_run_has_the_same_bits(whole: tuple[Path, list[Tensor]], tmp_path: Path) -> None:
    with mock.patch.object(Batches, "in_order", side_effect=AssertionError("an extra pass")):
        train(small(), 0, CPU, tmp_path, record=False)
    assert same_network(whole[0], tmp_path)
    assert values(whole[0]) == values(tmp_path)
    assert not any((tmp_path / name).exists() for name in ("record.npz", "history"))


def test_the_same_seed_leaves_the_same_file(whole: tuple[Path, list[Tensor]], tmp_path: Path) -> None:
    train(small(), 0, CPU, tmp_path)
    assert (tmp_path / "record.npz").read_bytes() == (whole[0] / "record.npz").read_bytes()


@pytest.mark.parametrize("steps", [1, 4, 6, 9, 12, 14, 20, 22])
def test_stopped_anywhere_and_resumed_it_is_equal(whole: tuple[Path, list[Tensor]], tmp_path: Path, steps: int) -> None:
    callback = StopAfter(steps)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    history = History(tmp_path / "history")
    for number in range(steps // 4, 6):  # as a kill would leave it: epochs that the checkpoint does not know
        history.write(number, {"levels": [], "dense": pack_bits(torch.ones(128).bool())})
    assert_equal(recorded(small(), tmp_path), read_record(whole[0]))
    assert not history.folder.exists()


@pytest.mark.slow
def test_two_sparsities_from_one_pretraining_have_the_records_of_two_runs_alone(tmp_path: Path) -> None:
    phase_cache = tmp_path / "phase_cache"
    for sparsity in (0.9, 0.95, 0.998):
        recipe = small(method={"sparsity": sparsity})
        folder = tmp_path / str(sparsity)
        trained = phases_trained(recipe, folder, phase_cache)
        assert ("pre-train" in trained) is (sparsity == 0.9)
        assert_equal(read_record(folder), recorded(recipe, tmp_path / f"{sparsity} alone"))


@pytest.mark.slow
def test_a_stored_phase_without_the_masks_a_run_needs_is_not_used(tmp_path: Path) -> None:
    phase_cache = tmp_path / "phase_cache"
    train(small(until="pre-train"), 0, CPU, tmp_path / "0.9", phase_cache=phase_cache)
    other = small(method={"sparsity": 0.8})
    assert "pre-train" in phases_trained(other, tmp_path / "0.8", phase_cache)
    assert_equal(read_record(tmp_path / "0.8"), recorded(other, tmp_path / "0.8 alone"))
    assert len(list(phase_cache.glob("pre-train-*"))) == 2
    train(other, 0, CPU, tmp_path / "off", phase_cache=phase_cache, record=False)
    assert len(list(phase_cache.glob("pre-train-*"))) == 3
    assert "pre-train" in phases_trained(small(method={"sparsity": 0.7}), tmp_path / "0.7", phase_cache)


def test_what_was_trained_without_a_record_is_missing_in_it(whole: tuple[Path, list[Tensor]], tmp_path: Path) -> None:
    callback = StopAfter(6)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path / "run", callback=callback, stop=callback.request, record=False)
    record = recorded(small(), tmp_path / "run", phase_cache=tmp_path / "phase_cache")
    assert not (tmp_path / "phase_cache").exists()  # half a history would be the next run's too
    full = read_record(whole[0])
    assert record["dense_epochs"] == 1
    assert np.isnan(record["intersection"][0])
    assert record["class_correct"][0].tolist() == [-1] * 4
    for name in ("intersection", "kept_by_layer", "class_correct", "w_kappa"):
        np.testing.assert_array_equal(record[name][1:], full[name][1:], err_msg=name)
    np.testing.assert_array_equal(record["pruned_correct"], full["pruned_correct"])


def test_a_run_ended_early_has_a_record_and_its_history_goes_on(
    whole: tuple[Path, list[Tensor]], tmp_path: Path
) -> None:
    record, full = recorded(small(until="pre-train"), tmp_path), read_record(whole[0])
    assert record["intersection"].shape == (0,)
    np.testing.assert_array_equal(record["kept_by_layer"], full["kept_by_layer"][:PRETRAINED])
    assert len(list((tmp_path / "history").iterdir())) == PRETRAINED + 1  # what was right at the start
    record = recorded(small(until="regularize"), tmp_path)
    np.testing.assert_array_equal(record["intersection"], full["intersection"][:FREE])
    assert_equal(recorded(small(), tmp_path), full)
    assert not (tmp_path / "history").exists()
    train(small(until="pre-train"), 0, CPU, tmp_path / "other")
    train(small(), 0, CPU, tmp_path / "other", record=False)
    assert not any((tmp_path / "other" / name).exists() for name in ("record.npz", "history"))


def test_a_dense_run_has_accuracies_only(tmp_path: Path) -> None:
    record = recorded(small(method={"name": "dense"}), tmp_path)
    for name in ("intersection", "crossed", "w_kappa", "dense_correct", "pruned_correct", "curve_epochs"):
        assert record[name].shape == (0,), name
    assert record["kept_by_layer"].shape == (0, len(record["layers"]))
    assert (record["class_correct"] >= 0).all()
    assert (record["class_correct"].shape, int(record["keep"])) == ((2, 4), -1)


def test_a_network_that_comes_trained_has_no_dense_epochs(tmp_path: Path) -> None:
    train(small(method={"name": "dense"}), 0, CPU, tmp_path / "dense")
    file = tmp_path / "dense" / "final.safetensors"
    record = recorded(small(init_from=str(file), init_digest=digest(file)), tmp_path / "from")
    assert (record["dense_correct"].shape, int(record["dense_epochs"])) == ((0,), 0)
    assert record["pruned_epochs"] >= 1


def test_augmented_images_have_no_place_in_the_file(tmp_path: Path) -> None:
    record = recorded(small(data={"scoring_images": "augmented"}), tmp_path)
    assert (record["pruned_correct"].shape, int(record["pruned_epochs"])) == ((0,), 0)
    assert record["dense_correct"].shape == (128,)


@pytest.mark.parametrize("method", [{"stop_reference": "paper"}, {"tie_rule": "authors"}, {"best_by": "mean"}])
def test_other_rules_of_art_score_the_pruned_copy_too(
    tmp_path: Path, method: dict[str, Any], right_before_the_penalty: int
) -> None:
    record, log = recorded(small(method=method), tmp_path), RunFolder(tmp_path).log()
    scores = [entry["pruned_score"] for entry in log if entry["phase"] == "regularize"]
    assert record["pruned_correct"].sum() == right_before_the_penalty + round(128 * sum(scores))
    assert np.nanmax(record["intersection"]) == 1.0


def worst_case(epochs: int, layers: int, samples: int, classes: int) -> Arrays:
    """A record as long as the paper's longest, of noise."""
    chance = np.random.default_rng(0)
    free, curves = 160, 10
    kept = np.full((epochs, layers), -1, dtype=np.int32)
    kept[:free] = chance.integers(0, 60_000, (free, layers))
    curve = {}
    for name in ("curve_magnitude", "curve_gradient"):
        rows = np.sort(np.abs(chance.standard_normal((curves, 1000)))).astype(np.float32)
        curve[name] = (rows * 2.0**10).round().astype(np.float32) / 2.0**10
    return {
        "phase": np.array(["pre-train"] * 60 + ["regularize"] * 100 + ["fine-tune"] * (epochs - 160)),
        "layers": np.array([f"layer{number}.0.conv1.weight" for number in range(layers)]),
        "kept_by_layer": kept,
        "crossed": chance.integers(0, 100_000, epochs).astype(np.int32),
        "w_kappa": chance.random(epochs).astype(np.float32),
        "intersection": chance.random(epochs),
        "dense_correct": chance.integers(0, 61, samples).astype(np.uint16),
        "pruned_correct": chance.integers(0, 101, samples).astype(np.uint16),
        "class_correct": chance.integers(40, 90, (epochs, classes)).astype(np.int32),
        "final_sample": np.packbits(chance.random(SAMPLED) < 0.1),
        **curve,
    }


def test_a_record_of_noise_is_small_enough(whole: tuple[Path, list[Tensor]], tmp_path: Path) -> None:
    noise, real = worst_case(320, 34, 50_000, 100), read_record(whole[0])
    for name in noise.keys() - {"phase", "layers"}:
        assert (noise[name].dtype, noise[name].ndim) == (real[name].dtype, real[name].ndim), name
    write_record(tmp_path / "record.npz", noise)
    assert (tmp_path / "record.npz").stat().st_size <= 250_000


def test_a_missing_or_damaged_record_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"There is no record .*record\.npz"):
        read_record(tmp_path)
    file = tmp_path / "record.npz"
    write_record(file, worst_case(320, 34, 100, 10))
    content = file.read_bytes()
    damaged = [b"", b"text", content[: len(content) // 2], content[:300] + bytes(200) + content[500:]]
    for broken in damaged:
        file.write_bytes(broken)
        with pytest.raises(RunError, match="is damaged"):
            read_record(file)
    np.savez(file, bad=np.array([{"any": "object"}], dtype=object))
    with pytest.raises(RunError, match="is damaged"):
        read_record(file)


def repacked(file: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change an array of a record, with a checksum that fits."""
    with zipfile.ZipFile(file) as archive:
        contents = {member: archive.read(member) for member in archive.namelist()}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in contents.items():
            archive.writestr(member, change(content) if member == f"{name}.npy" else content)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.replace(b"(320,), }" + b" " * 10, b"(1099511627776,), }"), "claims the shape"),
        (lambda content: content.replace(b"'<f4'", b"'|O' "), "unsupported type"),
        (lambda content: content[:6] + b"\x03" + content[7:], "has the version"),
        (lambda content: content[:-4], "claims the shape"),
        (lambda content: content + bytes(1 << 29), "would expand"),
    ],
)
def test_what_an_array_claims_is_compared_with_what_is_there(
    tmp_path: Path, change: Callable[[bytes], bytes], said: str
) -> None:
    file = tmp_path / "record.npz"
    write_record(file, worst_case(320, 34, 100, 10))
    repacked(file, "w_kappa", change)
    with pytest.raises(RunError, match=said):
        read_record(file)


@pytest.mark.parametrize("place", range(4, 12))
def test_zip_files_of_other_kinds_are_refused(tmp_path: Path, place: int) -> None:
    """The version that is needed, encryption and the method of compression."""
    file = tmp_path / "record.npz"
    write_record(file, worst_case(320, 34, 100, 10))
    content = bytearray(file.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + place] ^= 0x7F
    file.write_bytes(content)
    with contextlib.suppress(RunError):
        read_record(file)


def test_a_record_of_other_arrays_is_said(tmp_path: Path) -> None:
    file, whole = tmp_path / "record.npz", whole_record(phase=["a", "b"])
    for changed, said in (
        ({"crossed": np.zeros(3, int)}, "are not equally long"),
        ({"phase": np.zeros(2)}, "`phase` is float64 with 1 axes"),
        ({"keep": np.zeros(2, int)}, "`keep` is int64 with 1 axes"),
    ):
        write_record(file, whole | changed)
        with pytest.raises(RunError, match=said):
            read_record(file)
    write_record(file, {name: array for name, array in whole.items() if name != "layers"})
    with pytest.raises(RunError, match="has no array `layers`"):
        read_record(file)
