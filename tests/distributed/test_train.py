"""`train` and `torchrun -m hypersparse train` with several processes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hypersparse.distributed import Ranks
from hypersparse.errors import OptionError
from hypersparse.storage.run_folder import RunFolder
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.distributed.processes import in_processes
from tests.training.small import StopAfter, small

pytestmark = [
    pytest.mark.ddp,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Pruning still cost accuracy"),
]
# No batch norm; a low rate, since rounding alone moves a run apart at a high one. 65 images are not divided by 2 or 4.
DIGITS: dict[str, Any] = {
    "data": {"name": "digits", "padding": 1, "drop_last": False},
    "model": {"name": "mlp", "hidden": [32]},
    "training": {"epochs": 2, "batch_size": 65, "lr": 0.02},
    "method": {
        "name": "art",
        "sparsity": 0.9,
        "pretrain_epochs": 1,
        "strength": 1e-3,
        "growth": 2.0,
        "max_regularized_epochs": 3,
    },
}


def train_share(tables: dict[str, Any], folder: str, stop_after: int = 0, **machine: Any) -> Any:
    """One rank's part of a run; what `train` returns, or that it was stopped."""
    callback = StopAfter(stop_after if Ranks().first else 0)  # only one of them is asked
    try:
        return train(
            small(**tables),
            0,
            Machine(device="cpu", **machine),
            folder,
            callback=callback,
            stop=callback.request,
            ranks=Ranks(),
        )
    except Stopped:
        return "stopped"


def final(folder: Path) -> dict[str, torch.Tensor]:
    run = RunFolder(folder)
    return load_file(run.final_file)


def assert_same(folder: Path, other: Path) -> None:
    ours, theirs = final(folder), final(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6)
    logs = [RunFolder(each).log() for each in (folder, other)]
    for one, two in zip(*logs, strict=True):
        assert one["phase"] == two["phase"]
        assert one["loss"] == pytest.approx(two["loss"], abs=1e-6)
        assert {name: one[name] for name in ("kept", "train_accuracy", "test_accuracy")} == {
            name: two[name] for name in ("kept", "train_accuracy", "test_accuracy")
        }


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_ranks_share_the_batches_and_end_where_one_process_does(tmp_path: Path) -> None:
    alone = train(small(**DIGITS), 0, Machine(device="cpu"), tmp_path / "alone")
    for count in (2, 4):
        results = in_processes(count, train_share, tmp_path, DIGITS, str(tmp_path / f"{count}"))
        assert all(result == results[0] for result in results)
        assert (results[0]["kept"], results[0]["machine"]["ranks"]) == (alone["kept"], count)
        assert_same(tmp_path / f"{count}", tmp_path / "alone")
        record = RunFolder(tmp_path / f"{count}").record_file
        assert abs(record.stat().st_size - RunFolder(tmp_path / "alone").record_file.stat().st_size) < 2000


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    train(small(**DIGITS), 0, Machine(device="cpu"), tmp_path / "alone")
    folder = tmp_path / "moved"
    # Epochs of 23 steps; every 16 the ranks ask each other. They stop in the second epoch, and then in the fourth.
    assert in_processes(2, train_share, tmp_path, DIGITS, str(folder), 25) == ["stopped"] * 2
    assert RunFolder(folder).whole_checkpoint() is not None
    assert in_processes(4, train_share, tmp_path, DIGITS, str(folder), 40) == ["stopped"] * 4
    assert len(RunFolder(folder).log()) == 3
    train(small(**DIGITS), 0, Machine(device="cpu"), folder)
    assert_same(folder, tmp_path / "alone")


def test_statistics_of_batch_norm_are_averaged(tmp_path: Path) -> None:
    in_processes(2, train_share, tmp_path, {}, str(tmp_path / "two"))
    train(small(), 0, Machine(device="cpu"), tmp_path / "alone")
    two, alone = RunFolder(tmp_path / "two").log(), RunFolder(tmp_path / "alone").log()
    assert two[0]["loss"] == pytest.approx(alone[0]["loss"], rel=0.2)  # norms are over 16 images here, not 32
    assert two[-1]["kept"] == alone[-1]["kept"]


def test_a_batch_is_not_smaller_than_the_number_of_ranks(tmp_path: Path) -> None:
    found = in_processes(4, refused, tmp_path, str(tmp_path / "run"))
    assert all("takes its share of a batch" in said for said in found)


def refused(folder: str) -> str:
    with pytest.raises(OptionError) as error:
        train_share({"training": {"batch_size": 3}}, folder)
    return str(error.value)
