"""`hypersparse export`, and `evaluate` of what it wrote."""

import json
import re
from pathlib import Path

import pytest
import torch
import typer
from safetensors.torch import load_file
from typer.testing import CliRunner

from hypersparse import zoo
from hypersparse.cli.evaluate import evaluate
from hypersparse.cli.export import export
from hypersparse.cli.shrink import shrink
from hypersparse.data import files
from hypersparse.errors import DataError, HypersparseError, ModelError, OptionError, RunError
from hypersparse.export.sparse_file import load_graph, load_sparse
from hypersparse.export.web.page import read_page
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.weights_io import read_weights
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from tests.runs.tiny import FINISHED, STOPPED, recipe, run_of

app = typer.Typer()
app.command()(export)
app.command()(evaluate)
app.command()(shrink)


def call(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def accuracy(path: Path) -> float:
    return float(json.loads(call("evaluate", path, "--json"))["test_accuracy"])


def test_a_run_becomes_a_small_file_that_predicts_the_same(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    text = call("export", run.path, "-o", tmp_path / "a.hsp")
    assert "test images are predicted as before" in text
    assert "by the file loaded into PyTorch" in text
    network = load_sparse(tmp_path / "a.hsp")
    final = read_weights(run.final_file, network).tensors
    assert all(torch.equal(final[name], tensor) for name, tensor in network.state_dict().items())
    about = network.about
    assert about["recipe"] == run.recipe().to_toml()
    assert len(about["classes"]) == len(final["linear.bias"])
    assert set(about["normalisation"]) == {"scale", "mean", "std"}
    call("export", run.path, "-o", tmp_path / "small.hsp", "--deploy")
    assert (tmp_path / "small.hsp").stat().st_size < (tmp_path / "a.hsp").stat().st_size
    assert accuracy(tmp_path / "a.hsp") == accuracy(run.final_file) == accuracy(tmp_path / "small.hsp")


def test_a_run_becomes_a_page_that_holds_its_network(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    text = call("export", run.path, "-o", tmp_path / "demo.html")
    assert "test images are predicted as before" in text
    assert "by the network in the page, loaded into PyTorch" in text
    call("export", run.path, "-o", tmp_path / "a.hsp")
    assert read_page(tmp_path / "demo.html").nodes == load_graph(tmp_path / "a.hsp").nodes
    call("export", run.path, "-o", tmp_path / "small.html", "--deploy")
    assert (tmp_path / "small.html").stat().st_size < (tmp_path / "demo.html").stat().st_size


@pytest.mark.slow
def test_other_formats_go_by_the_ending(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    call("export", run.path, "-o", tmp_path / "a.hsp")
    for name in ("a.c", "a.safetensors"):  # from the small file as well
        call("export", tmp_path / "a.hsp", "-o", tmp_path / name, "--verify-images", "0")
    assert (tmp_path / "a.h").is_file()
    assert load_file(tmp_path / "a.safetensors").keys() == load_sparse(tmp_path / "a.hsp").state_dict().keys()
    pytest.importorskip("onnxscript", reason="needs the extra `onnx`")
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime")
    text = call("export", run.path, "-o", tmp_path / "a.onnx", "--shrink", "--batch", "4")
    assert "by the file in ONNX Runtime" in text


def test_int8_says_the_accuracy_before_and_after(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED).path
    for name, options in (("a.hsp", ["--deploy"]), ("a.html", ["--deploy"]), ("a.c", ["--shrink"]), ("b.c", [])):
        text = call("export", run, "-o", tmp_path / name, "--int8", *options)
        assert re.search(
            r"Of \d+ test images [\d.]+ % are right before and [\d.]+ % after; \d+ are predicted other", text
        )
    assert load_graph(tmp_path / "a.hsp").about["values"] == "int8"
    assert read_page(tmp_path / "a.html").about["values"] == "int8"
    assert "int8_t *input" in (tmp_path / "a.h").read_text()
    with pytest.raises(OptionError, match="needs training images to calibrate"):
        call("export", tmp_path / "a.hsp", "-o", tmp_path / "c.c", "--int8", "--verify-images", "0")


def test_data_that_are_asked_for_are_the_runs_own_if_they_have_its_name(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    assert run.recipe().data.options
    own = json.loads(call("evaluate", run.path, "--json"))
    for asked in (
        ["--data", run.recipe().data.name],
        ["--model", run.recipe().model.name],
        ["--set", "data.flip=true"],
    ):
        assert json.loads(call("evaluate", run.path, "--json", *asked)) == own
    with pytest.raises(ModelError, match=r"does not fit layer .* It was trained as \S+ on synthetic; without --data"):
        call("evaluate", run.path, "--set", "model.width=3")
    fewer = json.loads(call("evaluate", run.path, "--json", "--set", "data.test_images=7"))
    assert fewer["images"] == 7


def test_a_finished_run_whose_weights_are_elsewhere_is_not_called_unfinished(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    run.final_file.unlink()
    with pytest.raises(ModelError, match=r"is finished, but its weights, final\.safetensors, were not copied"):
        call("evaluate", run.path)


@pytest.mark.filterwarnings("ignore:Pruning still cost")
def test_a_checkpoint_for_another_model_is_one_sentence(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run" / "seed-0")
    train(recipe(until="regularize"), 0, Machine(threads=1), folder.path)
    with pytest.raises(ModelError, match=r"do not fit ResNet: Missing key.* It was trained as resnet8 on") as said:
        call("export", folder.path, "-o", tmp_path / "a.hsp", "--model", "resnet20", "--set", "model.width=4")
    assert len(str(said.value)) < 500


def test_a_run_that_has_not_pruned_is_said(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises((RunError, ModelError), match=r"not pruned|no final network"):
        call("export", run_of(store, STOPPED).path, "-o", tmp_path / "a.hsp")


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        (("RUN", "-o", "a.zip"), OptionError, r"\.hsp, \.html, \.onnx, \.c, \.safetensors; got `a\.zip`"),
        (("RUN", "-o", "a.onnx", "--deploy"), OptionError, "--deploy is for .hsp"),
        (("RUN", "-o", "a.hsp", "--int8"), OptionError, "--int8 needs --deploy"),
        (("RUN", "-o", "a.onnx", "--int8"), OptionError, "--int8 is for .hsp, .html and .c"),
        (("RUN", "-o", "a.hsp", "--shrink"), OptionError, "pass --deploy"),
        (("RUN", "-o", "a.html", "--shrink"), OptionError, "pass --deploy"),
        (("RUN", "-o", "a.hsp", "--batch", "1"), OptionError, "--batch is for .onnx"),
        (("RUN", "-o", "no/a.hsp"), RunError, "folder does not exist"),
        (("gone.hsp", "-o", "a.onnx"), ModelError, "There is no file"),
        (("nothing", "-o", "a.onnx"), RunError, "no run `nothing`"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    arguments: tuple[str, ...],
    kind: type[HypersparseError],
    sentence: str,
    store: RunStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = str(run_of(store, FINISHED).path)
    with pytest.raises(kind, match=sentence) as raised:
        call("export", *(run if part == "RUN" else part for part in arguments))
    assert "\n" not in str(raised.value)


def test_a_damaged_file_is_one_sentence(store: RunStore, tmp_path: Path) -> None:
    call("export", run_of(store, FINISHED).path, "-o", tmp_path / "a.hsp", "--verify-images", "0")
    content = (tmp_path / "a.hsp").read_bytes()
    (tmp_path / "a.hsp").write_bytes(content[: len(content) // 2])
    with pytest.raises((RunError, DataError), match=r"not a whole \.hsp file"):
        call("evaluate", tmp_path / "a.hsp")


def test_a_damaged_run_is_said_to_be_one(store: RunStore, tmp_path: Path) -> None:
    cut = tmp_path / "final.safetensors"
    cut.write_bytes(run_of(store, FINISHED).final_file.read_bytes()[:2000])
    with pytest.raises(ModelError, match="is not a whole safetensors file"):
        call("export", cut, "-o", tmp_path / "a.hsp")


def test_a_file_needs_no_data_where_it_is_not_tested_on_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPERSPARSE_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path))

    def offline(*asked: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr(files, "fetch", offline)
    text = call("export", "cifar10-resnet32-0.998", "-o", tmp_path / "a.hsp", "--verify-images", "0")
    assert "Not tested on images; outputs for 16 random inputs differ by 0 of the largest" in text
    ours, theirs = load_sparse(tmp_path / "a.hsp"), zoo.load("cifar10-resnet32-0.998")
    assert ours.about["classes"] == theirs.about["classes"]
    assert ours.about["normalisation"] == theirs.about["normalisation"]
    assert ours.about["recipe"] == theirs.about["recipe"]
    with pytest.raises(DataError, match=r"was not found .* Or pass --verify-images 0, which tests it without images\."):
        call("export", "cifar10-resnet32-0.998", "-o", tmp_path / "b.hsp")
    assert not (tmp_path / "b.hsp").exists()
    assert "random inputs differ" in call("shrink", "cifar10-resnet32-0.998", "--verify-images", "0")
