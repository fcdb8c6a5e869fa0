"""A finished run becomes an entry of a zoo, and the networks of the package compute what they did then."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hypersparse import data, zoo
from hypersparse.errors import ModelError, OptionError, RunError
from hypersparse.export.trained_model import TrainedModel
from hypersparse.recipe import merge, resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.weights_io import load_weights_
from hypersparse.training.network import build_network
from reproduction.__main__ import app
from reproduction.zoo_entries import add, name_of, normalised, probe, size, synthetic_images
from tests.runs.tiny import FINISHED, TABLES, UNTIL, recipe, run_of, tiny_store
from tests.serve.made import linear

CLOSE = 1e-4  # of the largest output
NAME = "synthetic-resnet8-0.95"


def trained(store: RunStore) -> TrainedModel:
    own = recipe()
    dataset = data.load(own.data.name, options=own.data.options)
    model = build_network(own, shape=dataset.shape, classes=len(dataset.classes))
    run = run_of(store, FINISHED)
    load_weights_(model, run.final_file)
    return TrainedModel(run.final_file, model, own, dataset)


def test_a_run_becomes_an_entry(store: RunStore, tmp_path: Path) -> None:
    run, network = run_of(store, FINISHED), trained(store)
    entry = add(run, network, tmp_path / "zoo")
    result = run.result()
    assert result is not None
    assert zoo.names(tmp_path / "zoo") == [NAME] == [entry.name]
    assert (entry.last, entry.best) == (result["sparse"]["last"], result["sparse"]["best"])
    assert (entry.kept, entry.recipe, entry.seed) == (result["kept"], run.recipe().label, FINISHED)
    assert entry.bytes == (tmp_path / "zoo" / f"{NAME}.hsp").stat().st_size
    inputs, wanted = probe(NAME, tmp_path / "zoo")
    network.model.eval()
    with torch.no_grad():
        original = network.model(torch.from_numpy(inputs)).numpy()
    assert np.abs(original - wanted).max() <= 0.01 * np.abs(wanted).max()  # values are in half precision
    assert {path.name for path in (tmp_path / "zoo").iterdir()} == {f"{NAME}.hsp", f"{NAME}.json", "inputs-1x8x8.npy"}


@pytest.mark.slow
def test_an_entry_is_replaced_only_on_request_and_by_a_network_with_the_accuracy_of_its_run(
    store: RunStore, tmp_path: Path
) -> None:
    run, network, folder = run_of(store, FINISHED), trained(store), tmp_path / "zoo"
    before = add(run, network, folder)
    with pytest.raises(OptionError, match=r"has a network .* already"):
        add(run, network, folder)
    with pytest.raises(OptionError, match="letters, digits"):
        add(run, network, folder, name="../up")
    assert add(run, network, folder, replace=True) == before
    result = run.result() or {}
    run.write_result({**result, "sparse": {**result["sparse"], "last": result["sparse"]["last"] + 0.02}})
    with pytest.raises(ModelError, match="but its run reached"):
        add(run, network, folder, replace=True)
    assert zoo.entry(NAME, folder) == before  # what was there is untouched
    assert len(list(folder.iterdir())) == 3


def test_a_run_that_is_not_finished_is_refused(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not finished"):
        add(run_of(store, UNTIL), trained(store), tmp_path / "zoo")
    assert not (tmp_path / "zoo").exists()


def test_shipped_networks_stay_below_the_size_limit(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo, "FOLDER", tmp_path / "zoo")
    monkeypatch.setattr(zoo, "MOST_BYTES", 3000)
    with pytest.raises(ModelError, match="may take 3,000 bytes; with this one it is"):
        add(run_of(store, FINISHED), trained(store), tmp_path / "zoo")
    assert zoo.names(tmp_path / "zoo") == []


def test_a_dense_run_is_refused(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    run.write_result({**(run.result() or {}), "sparse": None})
    with pytest.raises(RunError, match="takes sparse ones"):
        add(run, trained(store), tmp_path / "zoo")


def test_names_omit_the_default_method() -> None:
    pressed = resolve(merge(TABLES, {"method": {"penalty": "l1"}}))
    assert (name_of(recipe()), name_of(pressed)) == (NAME, "synthetic-resnet8-art-l1-0.95")


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 7, 9), (20,)])
def test_synthetic_inputs_are_reproducible_and_differ_from_each_other(shape: tuple[int, ...]) -> None:
    pixels = synthetic_images(shape)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (8, *shape)
    assert np.array_equal(pixels, synthetic_images(shape))
    assert len({image.tobytes() for image in pixels}) == 8
    assert 40 < pixels.std() < 80


@pytest.mark.parametrize("name", zoo.names())
def test_stored_outputs_match_pytorch_and_the_runtime(name: str) -> None:
    inputs, wanted = probe(name)
    assert wanted.std() > 0.1  # outputs that are all alike would prove little
    with torch.no_grad():
        in_torch = zoo.load(name)(torch.from_numpy(inputs)).numpy()
    in_runtime = zoo.load(name, runtime=True)(inputs)
    for came in (in_torch, in_runtime):
        assert came.shape == wanted.shape
        assert np.abs(came - wanted).max() <= CLOSE * np.abs(wanted).max()


def test_all_networks_are_small() -> None:
    assert 0 < size(zoo.FOLDER) <= zoo.MOST_BYTES == 5_000_000


def test_inputs_are_normalised_as_stored_in_the_file() -> None:
    pixels = np.full((1, 1, 1, 2), 4, np.uint8)
    graph = linear((1, 1, 2), normalisation={"scale": 2, "mean": [1.0], "std": [0.5]})
    assert normalised(pixels, graph).tolist() == [[[[2.0, 2.0]]]]
    with pytest.raises(RunError, match="does not say how images are normalised"):
        normalised(pixels, linear((1, 1, 2)))


def test_inputs_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for suffix in (".hsp", ".json"):
        shutil.copy(zoo.FOLDER / f"digits-resnet8-0.98{suffix}", tmp_path)
    with pytest.raises(RunError, match="cannot be read"):
        probe("digits-resnet8-0.98", tmp_path)


def test_the_command_adds_a_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = run_of(tiny_store(tmp_path / "runs", tmp_path_factory), FINISHED)
    words = ["zoo-add", str(run.path), "--folder", str(tmp_path / "zoo"), "--name", "mine"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.startswith("mine: ")
    assert zoo.load("mine", folder=tmp_path / "zoo").input_shape == (1, 8, 8)
