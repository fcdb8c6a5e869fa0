"""Every network that ships with the package computes what it did when it was put there, and is small."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

import hypersparse
from hypersparse import data, zoo
from hypersparse.cli.load_data import data_folders
from hypersparse.errors import DataError, OptionError, RunError
from hypersparse.recipe import Recipe
from hypersparse.training.loaders import EvalLoader

ROOT = Path(hypersparse.__file__).parents[1]


@pytest.mark.parametrize("name", zoo.names())
def test_an_entry_matches_its_recipe(name: str) -> None:
    entry, about = zoo.entry(name), zoo.load(name).about
    recipe = Recipe.from_toml(about["recipe"])
    assert (recipe.label, recipe.data.name, recipe.model.name) == (entry.recipe, entry.data, entry.model)
    assert about["profile"] == "deploy"
    assert about["provenance"]["file"].endswith(f"seed-{entry.seed}/final.safetensors")
    assert entry.sparsity == pytest.approx(1 - entry.kept / entry.total)
    assert entry.last <= entry.best
    assert abs(entry.test_accuracy - entry.last) <= 0.01
    assert entry.bytes < 12 * entry.kept
    assert entry.bytes < 1_000_000  # in kilobytes rather than megabytes, as docs/zoo.md says


def test_the_folder_contains_no_other_files() -> None:
    entries = {f"{name}{suffix}" for name in zoo.names() for suffix in (".hsp", ".json")}
    inputs = {json.loads((zoo.FOLDER / f"{name}.json").read_text())["inputs"] for name in zoo.names()}
    there = {path.name for path in zoo.FOLDER.iterdir() if path.suffix != ".py" and path.name != "__pycache__"}
    assert there == entries | inputs


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_accuracy_on_the_real_test_images(name: str) -> None:
    entry = zoo.entry(name)
    model = zoo.load(name, runtime=True)
    recipe = Recipe.from_toml(model.about["recipe"])
    try:
        dataset = data.load(recipe.data.name, data_folders(None), options=recipe.data.options, download=False)
    except DataError as error:
        pytest.skip(f"the data are not here: {error}")
    batches = EvalLoader(dataset.test, dataset, torch.device("cpu"))
    right = sum(int((model(images.numpy()).argmax(1) == labels.numpy()).sum()) for images, labels in batches)
    assert entry.test_images == len(dataset.test)
    assert abs(right - entry.test_accuracy * entry.test_images) <= 2  # another CPU may round a close call otherwise


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"no network `digits-resnet-0\.98`; did you mean `digits-resnet8-0\.98`\?"):
        zoo.load("digits-resnet-0.98")


def test_a_damaged_entry_raises_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.hsp").write_bytes(b"nothing")
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(RunError, match="should be a valid dictionary"):
        zoo.entry("a", tmp_path)
    (tmp_path / "a.json").write_text('{"data": "digits"}')
    with pytest.raises(RunError, match="it has no `model`"):
        zoo.entry("a", tmp_path)
    with pytest.raises(RunError, match="not a whole"):
        zoo.load("a", folder=tmp_path)
    with pytest.raises(OptionError, match="There are no networks in"):
        zoo.load("a", folder=tmp_path / "none")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sparsity", "0.98"),
        ("last", True),
        ("best", 98.2),
        ("test_accuracy", float("nan")),
        pytest.param("best", 10**400, id="best-huge"),
        ("kept", 12.5),
        ("seed", "0"),
        ("recipe", 3),
        ("best_picked_on", ["test"]),
    ],
)
def test_a_field_of_a_wrong_type_raises_an_error(tmp_path: Path, key: str, value: object) -> None:
    name = "digits-resnet8-0.98"
    for suffix in (".hsp", ".json"):
        shutil.copy(zoo.FOLDER / f"{name}{suffix}", tmp_path)
    assert zoo.entry(name, tmp_path) == zoo.entry(name)
    facts = json.loads((tmp_path / f"{name}.json").read_text())
    (tmp_path / f"{name}.json").write_text(json.dumps({**facts, key: value}))
    with pytest.raises(
        RunError, match=rf"`{key}(\.\w+)?` should be .*; got|is not JSON that can be used \(.* is no number\)"
    ):
        zoo.entries(tmp_path)


@pytest.mark.slow
def test_the_wheel_contains_all_networks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=300)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("hypersparse-*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    shipped = [path for path in zoo.FOLDER.iterdir() if path.suffix in (".hsp", ".json", ".npy")]
    assert {f"hypersparse/zoo/{path.name}" for path in shipped} <= inside


@pytest.mark.parametrize("name", [name for name in zoo.names() if not name.startswith("digits")])
def test_an_entry_matches_its_stored_run(name: str) -> None:
    entry = zoo.entry(name)
    result = json.loads((ROOT / "results" / entry.recipe / f"seed-{entry.seed}" / "result.json").read_text())
    assert (entry.last, entry.best) == (result["sparse"]["last"], result["sparse"]["best"])
    assert (entry.kept, entry.total) == (result["kept"], result["total"])
