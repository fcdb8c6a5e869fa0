"""The real TensorBoard, W&B (offline) and MLflow (in a folder) hold each epoch of a resumed run once."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hypersparse.errors import OptionError
from hypersparse.integrations import mlflow, tensorboard, wandb
from hypersparse.integrations.tracker import Trackers
from hypersparse.storage.run_folder import RunFolder
from tests.cli.commands import QUICK, run, the_run
from tests.integrations.test_tracker import job_in, train_in_two_goes

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads of a run."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder), purge_orphaned_data=False)
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_has_every_epoch_once_over_all_and_by_phase(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'hypersparse[tensorboard]'")
    job = job_in(tmp_path / "runs")
    train_in_two_goes(job, [Trackers(tensorboard.in_folder(tmp_path / "board")) for _ in range(2)])
    found = points(tmp_path / "board" / job.recipe.label / "seed-0")
    entries = RunFolder(job.folder).log()
    assert found["run/test_accuracy"] == [(entry["epoch"], pytest.approx(entry["test_accuracy"])) for entry in entries]
    assert [step for step, _ in found["run/loss"]] == list(range(7))
    assert [step for step, _ in found["regularize/penalty_strength"]] == [0, 1, 2]
    assert [step for step, _ in found["fine-tune/sparsity"]] == [0, 1]


def test_the_command_line_writes_event_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: pip install 'hypersparse[tensorboard]'")
    done = run("train", *QUICK, "--method", "dense", "--epochs", "2", "--track", "tensorboard", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = the_run(tmp_path).path
    found = points(tmp_path / "runs" / "tensorboard" / folder.parent.name / folder.name)
    assert [step for step, _ in found["train/loss"]] == [0, 1]
    listed = run("runs", folder=tmp_path)
    assert "tensorboard" not in listed.stdout  # it is no run


def records(file: Path) -> Iterator[bytes]:
    """The records of a W&B file: blocks of 32 kB, a header of checksum, length and kind before each piece."""
    content, position, whole = file.read_bytes(), 7, b""
    while position + 7 <= len(content):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", content, position)
        if position + 7 + length > len(content):
            return  # not written to its end yet
        whole += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # all of it, or its last piece
            yield whole
            whole = b""


def wandb_steps(folder: Path) -> dict[str, list[int]]:
    """By file: the epochs in it whose loss was logged."""
    from wandb.proto import wandb_internal_pb2

    found: dict[str, list[int]] = {}
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        read: list[Any] = []
        deadline = time.monotonic() + 60
        while not any(record.HasField("exit") for record in read) and time.monotonic() < deadline:
            time.sleep(0.1)  # W&B's own process writes the end a moment after `finish`
            read = [wandb_internal_pb2.Record.FromString(content) for content in records(file)]
        for record in read:
            names = {item.key or item.nested_key[0] for item in record.history.item}
            if "loss" in names:
                found.setdefault(str(file), []).append(record.history.step.num)
    return found


def test_wandb_gets_every_epoch_once_over_two_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="W&B is not installed: pip install 'hypersparse[wandb]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    job = job_in(tmp_path / "runs")
    # In folders of their own: W&B names one by the second in which it starts.
    folders = [tmp_path / "first", tmp_path / "second"]
    train_in_two_goes(job, [Trackers(wandb.in_project("test", folder)) for folder in folders])
    first, second = (steps for folder in folders for steps in wandb_steps(folder).values())
    assert first + second == list(range(7))
    assert len({path.name for path in tmp_path.glob("*/wandb/offline-run-*/*.wandb")}) == 1  # the same run


def test_mlflow_gets_every_epoch_once_over_two_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'hypersparse[mlflow]'")
    uri = (tmp_path / "mlruns").as_uri()
    with pytest.raises(OptionError, match="cannot be used"):
        mlflow.at("nonsense://nowhere")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    job = job_in(tmp_path / "runs")
    train_in_two_goes(job, [Trackers(mlflow.at(uri)) for _ in range(2)])
    client = package.MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("hypersparse").experiment_id])
    assert [metric.step for metric in client.get_metric_history(found.info.run_id, "test_accuracy")] == list(range(7))
    assert found.data.params["method.sparsity"] == "0.9"
    assert found.info.status == "FINISHED"
