import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hypersparse import data
from hypersparse.data.dataset import Split
from hypersparse.errors import DataError, DivergedError, ModelError, OptionError, RunError
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import digest
from hypersparse.training.callbacks import Callback
from hypersparse.training.loaders import hold_out
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.training.small import StopAfter, small

SAME_EVERY_TIME = {"recipe.toml", "log.jsonl", "final.safetensors", "record.npz", "result.json"}
CPU = Machine(device="cpu", checkpoint_seconds=0.0)
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own, while it compiles for a GPU
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
]


def values(folder: Path) -> list[dict[str, Any]]:
    """The log without what the clock says."""
    return [{k: v for k, v in entry.items() if k != "seconds"} for entry in RunFolder(folder).log()]


def same_network(one: Path, other: Path) -> bool:
    a, b = load_file(one / "final.safetensors"), load_file(other / "final.safetensors")
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(small(), 0, CPU, folder)
    return folder


def test_a_run_leaves_its_files_and_exact_counts(whole: Path) -> None:
    run = RunFolder(whole)
    result = run.result()
    assert result is not None
    names = {path.name for path in whole.iterdir()}
    assert names == {
        ".lock",
        "recipe.toml",
        "log.jsonl",
        "final.safetensors",
        "record.npz",
        "result.json",
        "timing.jsonl",
    }
    total = result["total"]
    assert result["kept"] == total - int(total * 0.9) == sum(result["kept_by_layer"].values())
    assert result["epochs"]["pre-train"] == 2
    assert result["epochs"]["fine-tune"] == 2
    assert set(result["sparse"]) == {"phase", "last", "last_epoch", "best", "best_epoch", "best_picked_on"}
    assert result["sparse"]["best_picked_on"] == "test"
    assert result["machine"]["torch"] == torch.__version__
    assert run.recipe() == small()
    regularized = [entry for entry in run.log() if entry["phase"] == "regularize"]
    logged = {"strength", "w_kappa", "dense_score", "pruned_score", "best_score", "kept_by_layer"}
    assert all(logged <= set(entry) for entry in regularized)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(whole: Path, tmp_path: Path) -> None:
    train(small(), 0, CPU, tmp_path / "again")
    assert same_network(whole, tmp_path / "again")
    assert values(whole) == values(tmp_path / "again")
    train(small(), 1, CPU, tmp_path / "other")
    assert not same_network(whole, tmp_path / "other")


@pytest.mark.parametrize("steps", [1, 4, 6, 8, 9, 12, 14, 20, 22, 24, 27])
def test_stopped_anywhere_and_resumed_is_bit_identical(whole: Path, tmp_path: Path, steps: int) -> None:
    """4 steps an epoch: 8 pre-train, up to 12 regularize, 8 fine-tune; on and between epoch ends."""
    callback = StopAfter(steps)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    assert not (tmp_path / "result.json").exists()
    torch.manual_seed(99)  # a fresh process has other random numbers
    train(small(), 0, CPU, tmp_path)
    assert values(tmp_path) == values(whole)
    assert same_network(whole, tmp_path)


def test_a_masked_checkpoint_holds_kept_weights_only(tmp_path: Path) -> None:
    sizes = {}
    for phase, steps in {"pre-train": 7, "fine-tune": 27}.items():
        callback = StopAfter(steps)
        with pytest.raises(Stopped):
            train(small(), 0, CPU, tmp_path / phase, callback=callback, stop=callback.request)
        state = json.loads((tmp_path / phase / "state.json").read_text())
        assert state["phase"] == phase
        tensors = load_file(tmp_path / phase / "checkpoint.safetensors").values()
        sizes[phase] = sum(tensor.numel() for tensor in tensors if tensor.is_floating_point())
    total = 5_000
    assert sizes["pre-train"] > 2 * total * 0.9
    assert sizes["fine-tune"] < sizes["pre-train"] / 3


def test_a_run_past_until_goes_on_to_its_end(whole: Path, tmp_path: Path) -> None:
    steps = 4  # an epoch
    before = sum(entry["phase"] != "fine-tune" for entry in RunFolder(whole).log())
    callback = StopAfter(steps * before + 2)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    result = train(small(until="regularize"), 0, CPU, tmp_path)
    assert result["until"] is None
    assert values(tmp_path) == values(whole)
    assert same_network(tmp_path, whole)


def test_until_ends_after_a_phase_and_goes_on_later(whole: Path, tmp_path: Path) -> None:
    first = train(small(until="regularize"), 0, CPU, tmp_path)
    assert first["until"] == "regularize"
    assert first["kept"] == first["total"] - int(first["total"] * 0.9)
    assert first["sparse"] is None
    assert train(small(until="regularize"), 0, CPU, tmp_path) == first
    train(small(), 0, CPU, tmp_path)
    assert same_network(whole, tmp_path)
    assert values(tmp_path) == values(whole)


def test_a_finished_run_is_not_trained_again(whole: Path) -> None:
    before = (whole / "result.json").stat().st_mtime_ns
    train(small(), 0, CPU, whole)
    assert (whole / "result.json").stat().st_mtime_ns == before


def test_a_folder_of_another_recipe_or_seed_is_refused(whole: Path) -> None:
    with pytest.raises(RunError, match=r"differ in training.lr 0.1 / 0.05"):
        train(small(training={"lr": 0.05}), 0, CPU, whole)
    with pytest.raises(RunError, match="seed 0, not 3"):
        train(small(), 3, CPU, whole)


def test_a_second_process_is_refused(whole: Path) -> None:
    with RunFolder(whole).locked(), pytest.raises(RunError, match="Another process"):
        train(small(), 0, CPU, whole)


def test_start_begins_at_the_penalty(tmp_path: Path) -> None:
    train(small(method={"name": "dense"}), 0, CPU, tmp_path / "dense")
    file = tmp_path / "dense" / "final.safetensors"
    recipe = small(init_from=str(file), init_digest=digest(file))
    result = train(recipe, 0, CPU, tmp_path / "from")
    assert list(result["epochs"]) == ["regularize", "fine-tune"]
    assert result["dense"] is None
    callback = StopAfter(2)
    with pytest.raises(Stopped):
        train(recipe, 0, CPU, tmp_path / "stopped", callback=callback, stop=callback.request)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(ModelError, match="is not the file this recipe began with"):
        train(recipe, 0, CPU, tmp_path / "altered")
    file.unlink()
    train(recipe, 0, CPU, tmp_path / "stopped")  # the checkpoint has the weights
    assert same_network(tmp_path / "from", tmp_path / "stopped")
    with pytest.raises(ModelError, match="There are no weights at"):
        train(small(init_from=str(tmp_path / "nothing.pt"), init_digest="d"), 0, CPU, tmp_path / "missing")


def test_validation_picks_the_best_epoch_on_held_out_samples(tmp_path: Path) -> None:
    result = train(small(data={"validation": 32}), 0, CPU, tmp_path)
    sparse = [entry for entry in RunFolder(tmp_path).log() if entry["stage"] == "sparse"]
    best = max(sparse, key=lambda entry: entry["validation_accuracy"])
    assert result["sparse"]["best_picked_on"] == "validation"
    assert result["sparse"]["best_epoch"] == best["epoch"]
    assert result["sparse"]["best"] == best["test_accuracy"]


def test_held_out_samples_are_apart_from_the_rest() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    rest, held = hold_out(Split(images, torch.arange(10)), 3)
    assert held is not None
    assert sorted([*rest.labels.tolist(), *held.labels.tolist()]) == list(range(10))
    assert torch.equal(rest.images.flatten().long(), rest.labels)
    with pytest.raises(DataError, match="none would be left"):
        hold_out(Split(images, torch.arange(10)), 10)


@pytest.mark.parametrize("scoring_images", ["clean", "augmented"])
def test_scoring_images_are_as_the_recipe_says_and_resume(tmp_path: Path, scoring_images: str) -> None:
    recipe = small(data={"scoring_images": scoring_images})
    train(recipe, 0, CPU, tmp_path / "whole")
    callback = StopAfter(14)
    with pytest.raises(Stopped):
        train(recipe, 0, CPU, tmp_path / "parts", callback=callback, stop=callback.request)
    train(recipe, 0, CPU, tmp_path / "parts")
    assert values(tmp_path / "whole") == values(tmp_path / "parts")


def test_a_loss_that_is_not_finite_in_the_first_epoch_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"step \d+ of epoch 0 \(pre-train\).*training.lr="):
        train(small(training={"lr": 1e30}), 0, CPU, tmp_path)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_a_late_nan_keeps_the_checkpoint_of_the_epoch_before(tmp_path: Path) -> None:
    class Poison(Callback):
        def started(self, sparsifier: Any, entries: Any, steps: int) -> None:
            self.sparsifier = sparsifier

        def stepped(self, step: int) -> None:
            if self.sparsifier.total_epoch == 3 and step == 2:
                with torch.no_grad():
                    next(iter(self.sparsifier.weights.values())).fill_(torch.nan)

    with pytest.raises(DivergedError, match=r"step 2 of epoch 3 \(regularize\)"):
        train(small(), 0, CPU, tmp_path, callback=Poison())
    assert json.loads((tmp_path / "state.json").read_text())["epochs_finished"] == 3
    floats = [t for t in load_file(tmp_path / "checkpoint.safetensors").values() if t.is_floating_point()]
    assert all(tensor.isfinite().all() for tensor in floats)
    train(small(), 0, CPU, tmp_path)  # without the poison it goes on


def test_weights_spoilt_by_the_last_step_of_an_epoch_are_not_saved(tmp_path: Path) -> None:
    class Poison(Callback):
        def started(self, sparsifier: Any, entries: Any, steps: int) -> None:
            self.sparsifier, self.steps = sparsifier, steps

        def stepped(self, step: int) -> None:
            if self.sparsifier.total_epoch == 3 and step == self.steps:
                with torch.no_grad():
                    next(iter(self.sparsifier.weights.values())).fill_(torch.nan)

    with pytest.raises(DivergedError, match=r"step 3 of epoch 3 \(regularize\); the last good checkpoint is kept"):
        train(small(), 0, CPU, tmp_path, callback=Poison())
    assert json.loads((tmp_path / "state.json").read_text())["epochs_finished"] == 3


def test_what_cannot_begin_leaves_no_run_and_takes_no_result_away(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="did you mean"):
        train(small(model={"name": "resnet9", "width": 4}), 0, CPU, tmp_path / "new")
    assert not (tmp_path / "new" / "recipe.toml").exists()
    train(small(until="pre-train"), 0, CPU, tmp_path / "until")
    damage(tmp_path / "until")
    with pytest.raises(RunError, match="is damaged"):
        train(small(), 0, CPU, tmp_path / "until")
    assert (tmp_path / "until" / "result.json").exists()


def test_the_same_run_makes_the_same_files(whole: Path, tmp_path: Path) -> None:
    for number in range(3):  # metadata in a random order would agree half of the time
        phase_cache = (
            tmp_path / "phase_cache" if number else None
        )  # the last one begins with what the second one trained
        train(small(), 0, CPU, tmp_path / str(number), phase_cache=phase_cache)
        for name in SAME_EVERY_TIME:
            assert (tmp_path / str(number) / name).read_bytes() == (whole / name).read_bytes(), name
    times = [sum(bool(time.get("shared")) for time in RunFolder(tmp_path / name).timing()) for name in "012"]
    assert times[0] == times[1] == 0 < times[2]


def test_a_damaged_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    callback = StopAfter(6)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    damage(tmp_path)
    with pytest.raises(RunError, match="is damaged"):
        train(small(), 0, CPU, tmp_path)


def test_a_folder_in_place_of_a_checkpoint_is_one_sentence(tmp_path: Path) -> None:
    callback = StopAfter(6)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    (tmp_path / "checkpoint.safetensors").unlink()
    (tmp_path / "checkpoint.safetensors").mkdir()
    with pytest.raises(RunError, match="could not be written"):
        train(small(), 0, CPU, tmp_path)


def damage(folder: Path) -> None:
    """Cut off all checkpoints."""
    for checkpoint in folder.glob("checkpoint.*"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])


@pytest.mark.parametrize("steps", [6, 14, 26])
def test_a_flipped_bit_in_a_checkpoint_costs_a_checkpoint_and_no_bit(
    whole: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int
) -> None:
    callback = StopAfter(steps)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    newest, before = RunFolder(tmp_path).checkpoint_file, RunFolder(tmp_path).previous_file
    assert before.exists()
    content = bytearray(newest.read_bytes())
    content[-100] ^= 16  # in a tensor
    newest.write_bytes(content)
    train(small(), 0, CPU, tmp_path)
    assert f"The checkpoint {newest} is damaged; the one before it is used." in caplog.text
    assert values(tmp_path) == values(whole)
    assert same_network(whole, tmp_path)
    assert not newest.exists()
    assert not before.exists()


def test_a_log_cut_in_the_middle_of_a_line_is_repaired(whole: Path, tmp_path: Path) -> None:
    callback = StopAfter(14)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 7, "pha')
    train(small(), 0, CPU, tmp_path)
    assert values(tmp_path) == values(whole)


def test_a_full_disk_is_one_sentence_and_loses_nothing(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = StopAfter(6)
    with pytest.raises(Stopped):
        train(small(), 0, CPU, tmp_path, callback=callback, stop=callback.request)
    saved = (tmp_path / "checkpoint.safetensors").read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hypersparse.storage.files.save", full)
        with pytest.raises(RunError, match="the disk is full"):
            train(small(), 0, CPU, tmp_path)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == saved
    train(small(), 0, CPU, tmp_path)
    assert same_network(whole, tmp_path)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="could not be written"):
        train(small(), 0, CPU, tmp_path / "file" / "run")


def test_bf16_keeps_weights_in_float32(tmp_path: Path) -> None:
    machine = Machine(device="cpu", precision="bf16")
    result = train(small(), 0, machine, tmp_path)
    assert result["machine"]["precision"] == "bf16"
    tensors = load_file(tmp_path / "final.safetensors")
    assert all(t.dtype == torch.float32 for name, t in tensors.items() if name.startswith("hypersparse.kept"))


def test_a_set_smaller_than_a_batch_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="do not fill one batch"):
        train(small(training={"batch_size": 512}), 0, CPU, tmp_path)


def test_the_data_set_can_be_passed_in(tmp_path: Path) -> None:
    dataset = data.load("synthetic", options={"images": 64, "test_images": 32, "size": 8, "channels": 1})
    result = train(small(), 0, CPU, tmp_path, dataset=dataset)
    assert result["total"] > 0


@pytest.mark.gpu
def test_a_run_on_the_gpu_is_bit_identical_when_deterministic(tmp_path: Path) -> None:
    machine = Machine(device="cuda", deterministic=True, checkpoint_seconds=0.0)
    train(small(), 0, machine, tmp_path / "one")
    callback = StopAfter(14)
    with pytest.raises(Stopped):
        train(small(), 0, machine, tmp_path / "two", callback=callback, stop=callback.request)
    train(small(), 0, machine, tmp_path / "two")
    assert values(tmp_path / "one") == values(tmp_path / "two")
    assert same_network(tmp_path / "one", tmp_path / "two")


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_the_gpu_trains_in_every_precision(tmp_path: Path, precision: Any) -> None:
    result = train(small(), 0, Machine(device="cuda", precision=precision), tmp_path)
    assert result["kept"] == result["total"] - int(result["total"] * 0.9)
