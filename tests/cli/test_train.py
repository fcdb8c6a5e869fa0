"""The commands train, plan and evaluate, as a user types them."""

import json
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hypersparse
from hypersparse.cli import main
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from tests.cli.commands import QUICK, SHORT, run, run_alone, start, the_run
from tests.cli.test_serve import predict, started
from tests.serve.made import drawing, file_of

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.slow
def test_train_without_arguments_is_the_main_job(tmp_path: Path) -> None:
    done = run_alone("train", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    result = the_run(tmp_path).result()
    assert result is not None
    assert (result["data"], result["method"], result["total"]) == ("digits", "art", 77_072)
    assert result["kept"] == 77_072 - int(77_072 * 0.95)
    assert result["sparse"]["last"] >= 0.975
    for word in ("pre-train", "regularize", "fine-tune", "penalty", "dense", "sparse", "3,854", "effective", "FLOPs"):
        assert word in done.stdout
    assert done.stdout.count("\n  hypersparse ") == 3
    again = run("train", folder=tmp_path)
    assert again.returncode == 0
    assert "epoch  0" not in again.stdout
    _, export, serve = (line.split("  ")[1].split()[1:] for line in done.stdout.splitlines()[-3:])
    assert (export[0], serve) == ("export", ["serve", "model.hsp"])
    assert run(*export, folder=tmp_path).returncode == 0
    with started(*serve[1:], "--port", "0", folder=tmp_path) as (_, address):
        assert predict(address, file_of(drawing(2)))["sparse"]["class"] == "2"  # type: ignore[index]


@pytest.mark.slow
def test_until_then_on_then_evaluate(tmp_path: Path) -> None:
    first = run("train", *SHORT, "--until", "regularize", folder=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "the phases that are left" in first.stdout
    assert "final.safetensors, record.npz, result.json" in first.stdout
    second = run("train", *SHORT, "--no-record", folder=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "final.safetensors, result.json" in second.stdout
    assert "going on after epoch" in second.stdout
    stored = the_run(tmp_path)
    result = stored.result()
    assert result is not None
    scored = run("evaluate", str(stored.path), "--json", folder=tmp_path)
    found = json.loads(scored.stdout)
    assert found["test_accuracy"] == result["sparse"]["last"]
    assert (found["kept"], found["total"]) == (result["kept"], result["total"])
    stored.final_file.rename(tmp_path / "mine.safetensors")
    assert run("evaluate", "mine.safetensors", folder=tmp_path).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    options = ["train", *QUICK, "--set", "method.pretrain_epochs=100000"]
    process = start(*options, folder=tmp_path)
    assert process.stdout is not None
    while "epoch   2" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "To go on: hypersparse train --data synthetic" in out
    before = len(the_run(tmp_path).log())
    done = run(*options, "--stop-after", "6s", folder=tmp_path)
    assert done.returncode == 0
    assert "the given time is over" in done.stdout
    assert len(the_run(tmp_path).log()) > before


BAD = {
    "a sparsity in percent": (["train", "--sparsity", "98"], "pass 0.98"),
    "a sparsity that leaves nothing": (["train", *QUICK, "--sparsity", "1"], "That leaves no weight."),
    "a count that leaves nothing": (
        ["train", *QUICK, "--sparsity", "0.99999", "--set", "method.tie_rule=authors"],
        "leaves none of 19,608 weights",
    ),
    "an unknown data set": (["train", "--data", "cifar"], "did you mean `cifar10`"),
    "an unknown model": (["train", "--model", "resnet31"], "did you mean `resnet"),
    "an unknown method": (["train", "--method", "atr"], "did you mean `art`"),
    "an unknown option of a method": (["train", "--set", "method.grow=2"], "did you mean `growth`"),
    "an unknown option of a model": (["train", "--set", "model.widht=2"], "did you mean `width`"),
    "an unknown option of a data set": (["train", *QUICK, "--set", "data.sise=2"], "did you mean `size`"),
    "a setting without a value": (["train", "--set", "method.growth"], "TABLE.NAME=VALUE"),
    "a time that is none": (["train", "--stop-after", "soon"], "such as 9m"),
    "a seed that torch does not take": (["train", "--seed", "9" * 23], "up to 2^63 - 1"),
    "more seeds than anybody trains": (["train", "--seed", "0-99999999999"], "10000 at once"),
    "missing data": (["train", "--data", "cifar10"], "cifar-10-python.tar.gz"),
    "a missing file": (["train", "--data", "nothing.npz"], "nothing.npz"),
    "a missing recipe": (["train", "--recipe", "nothing.toml"], "nothing.toml"),
    "weights that are missing": (["train", "--init-from", "nothing.pt"], "nothing.pt"),
    "a model without weights": (["train", *QUICK, "--model", "empty:make"], "no prunable weight"),
    "a model that is none": (["train", *QUICK, "--model", "torch:zeros"], "no class or function in torch `zeros`"),
    "a run that is missing": (["evaluate", "nothing"], "There is no run"),
    "a network that is missing": (["evaluate", "nothing.pt", "--data", "digits"], "There is no file nothing.pt"),
    "a folder that cannot be written": (["train", *QUICK, "--runs-dir", "file/runs"], "could not be written"),
    "an unknown phase": (["plan", "art", "--until", "tune"], "fine-tune"),
    "an unknown device": (["train", "--device", "tpu7"], "cpu, cuda or cuda:N"),
    "a device that is not there": (["train", "--device", "cuda:64"], "--device cpu"),
    "an unknown precision": (["train", "--precision", "fp8"], "'fp32', 'tf32' or 'bf16'"),
}


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line in this process, as an installed script would, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HYPERSPARSE_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # no network
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)

    def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["hypersparse", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), shown.out, shown.err)

    return run_here


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_clear_sentence(what: str, tmp_path: Path, call: Call) -> None:
    arguments, message = BAD[what]
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "empty.py").write_text("from torch import nn\ndef make():\n    return nn.ReLU()\n")
    done = call(*arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


@pytest.mark.slow
def test_a_folder_with_brackets_and_spaces_is_told_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "my [/old] [red] runs"
    done = run("train", *SHORT, "--runs-dir", str(folder), "--no-report", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (stored,) = folder.glob("*/seed-0")
    assert f"files:  {stored} (" in done.stdout
    (show,) = [line for line in done.stdout.splitlines() if "hypersparse show" in line]
    assert shlex.split(show)[:3] == ["hypersparse", "show", str(stored)]
    both = run("train", *SHORT, "--runs-dir", str(folder), "--seed", "0-1", "--no-report", folder=tmp_path)
    assert f"files:  {folder}\n" in both.stdout
    scored = run("evaluate", str(stored), folder=tmp_path)
    assert "[red]" in scored.stdout


def test_a_misspelt_option_or_command_is_said(call: Call) -> None:
    wrong_option = call("train", "--sparsty", "0.9")
    assert wrong_option.returncode == 2
    assert "--sparsity" in wrong_option.stderr
    assert call("trian").returncode == 2


def test_altered_and_truncated_arrays_are_said(tmp_path: Path, call: Call) -> None:
    images = np.zeros((8, 8, 8), dtype=np.uint8)
    labels = np.arange(8) % 2
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[: len(whole) // 2])
    done = call("train", "--data", "a.npz")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "a.npz" in done.stderr


def test_test_images_of_nan_are_said(tmp_path: Path, call: Call) -> None:
    images, labels = np.zeros((8, 8, 8), dtype=np.float32), np.arange(8) % 2
    images[3, 4, 4] = 1.0
    np.savez(tmp_path / "a.npz", x_train=images, y_train=labels, x_test=images * np.nan, y_test=labels)
    done = call("train", "--data", "a.npz")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "8 of 8 test images of a hold NaN or infinite values" in done.stderr


def test_plan_prints_phases_and_recipe(tmp_path: Path, call: Call) -> None:
    done = call("plan", "art", "--data", "cifar10", "--sparsity", "0.98")
    assert done.returncode == 0
    for text in ("pre-train", "1 to 300", "x 0.1 at 80, 120", "221 to 520", "sparsity = 0.98"):
        assert text in done.stdout
    assert not (tmp_path / "runs").exists()


def test_plan_says_what_happens_in_every_phase(call: Call) -> None:
    options = ("--data", "cifar10", "--set", "training.schedule=cosine")
    done = call("plan", "topkast", *options, "--set", "method.update_until=0.5", "--ablation", "shuffle").stdout
    words = " ".join(done.split())
    for text in (
        "explore 80 0.1 to 0.05, cosine first choose largest, choose largest every 100 steps",
        "settle 80 0.05 to 0, cosine plain training",
        "retrain 160 0.1 to 0, cosine first shuffle, fresh momentum",
    ):
        assert text in words
    words = " ".join(call("plan", "lth", *options, "--ablation", "rewind").stdout.split())
    assert "dense 160 0.1 to 0, cosine first remember train 160" in words  # not what the ablation takes down
    assert "first prune and reset and rewind, fresh momentum" in words


def test_help_and_version(tmp_path: Path, call: Call) -> None:
    assert run_alone("--version", folder=tmp_path).stdout.strip() == f"hypersparse {hypersparse.__version__}"
    shown = call("--help").stdout
    for command in ("train", "plan", "evaluate", "runs", "show", "pack", "unpack"):
        assert command in shown


@pytest.mark.slow
def test_two_processes_on_one_run(tmp_path: Path) -> None:
    options = ["train", *QUICK, "--set", "method.pretrain_epochs=100000", "--stop-after", "30s"]
    first = start(*options, folder=tmp_path)
    assert first.stdout is not None
    while "epoch   1" not in first.stdout.readline():
        assert first.poll() is None
    second = run(*options, folder=tmp_path)
    first.terminate()
    first.communicate(timeout=60)
    assert second.returncode == 2
    assert "Another process" in second.stderr


@pytest.mark.slow
def test_several_runs_share_a_command(tmp_path: Path) -> None:
    arguments = ["train", "--seed", "0-1", "--sparsity", "0.9,0.95", "--jobs", "2", *SHORT]
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    results = [result for run in RunStore(tmp_path / "runs").runs() if (result := run.result())]
    found = sorted((result["seed"], round(result["sparsity"], 2)) for result in results)
    assert found == [(0, 0.9), (0, 0.95), (1, 0.9), (1, 0.95)]
    again = run(*arguments, folder=tmp_path)
    for shown in (done.stdout, again.stdout):
        assert all(f"art hypersparse, {100 * sparsity:g} % · seed {seed} " in shown for seed, sparsity in found)
    assert "pre-train" not in again.stdout
    assert sum(not result["shared_seconds"] for result in results) == 2  # one pre-training a seed


@pytest.mark.slow
def test_one_of_several_runs_that_fails_is_said_and_the_others_finish(tmp_path: Path) -> None:
    done = run(
        "train",
        "--sparsity",
        "0.5,0.99999",
        "--set",
        "method.tie_rule=authors",
        "--jobs",
        "1",
        *SHORT,
        folder=tmp_path,
    )
    assert done.returncode == 2
    (reason,) = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert "leaves none of" in reason
    assert len(list(tmp_path.glob("runs/*/seed-*/result.json"))) == 1


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "x"), ("--seed", "4-1"), ("--seed", "-1"), ("--sparsity", "a,b")]
)
def test_a_list_that_is_none_is_said(tmp_path: Path, option: str, value: str) -> None:
    done = run("train", f"{option}={value}", folder=tmp_path)
    assert done.returncode == 2
    assert f"`{option}` is a number" in done.stderr


@pytest.mark.slow
def test_a_collapse_may_be_an_error_and_an_ablation_is_asked_for_by_name(tmp_path: Path) -> None:
    sparse = ["train", *QUICK, "--sparsity", "0.9995", "--epochs", "1"]
    failed = run(*sparse, "--on-collapse", "error", folder=tmp_path)
    assert failed.returncode == 2
    assert "No weight is left in" in failed.stderr
    assert run(*sparse, "--on-collapse", "panic", folder=tmp_path).returncode == 2
    done = run(
        "train",
        *QUICK,
        "--method",
        "dense",
        "--set",
        "model.narrow=0.9",
        "--epochs",
        "1",
        "--seed",
        "1",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    (narrow,) = tmp_path.glob("runs/*-narrow-*/seed-1")
    result = RunFolder(narrow).result()
    assert result is not None
    scored = run("evaluate", str(narrow), "--json", folder=tmp_path)
    assert json.loads(scored.stdout)["test_accuracy"] == result["dense"]["last"]
