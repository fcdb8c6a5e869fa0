"""The page's first table and the README's picture are made of the stored runs and nothing else."""

import json
from pathlib import Path

import pytest

from hypersparse import zoo
from hypersparse.errors import RunError
from hypersparse.recipe import resolve
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from reproduction.headline import headline, lines
from reproduction.readme import BEGIN, END, PICTURE, TIMES, write
from tests.stored import whole_entry, whole_result

MACHINE = {"device": "cpu", "precision": "fp32", "torch": "2.13.0+cpu"}


def write_run(root: Path, *, seed: int, best: float, last: float, data: str = "cifar10") -> None:
    """A finished run of the headline's recipe at 99.8 %."""
    recipe = resolve({"data": {"name": data}, "model": {"name": "resnet32"}, "method": {"sparsity": 0.998}})
    folder = RunFolder(root / recipe.label / f"seed-{seed}")
    folder.path.mkdir(parents=True)
    folder.write_recipe(recipe, seed)
    folder.append_log(whole_entry(best_epoch=41))
    sparse = {"best": best, "last": last}
    folder.write_result(whole_result(seed=seed, sparse=sparse, machine=MACHINE, epochs={"train": 1}))


def write_dense_run(root: Path) -> None:
    recipe = resolve({"data": {"name": "cifar10"}, "model": {"name": "vgg19"}, "method": {"name": "dense"}})
    folder = RunFolder(root / recipe.label / "seed-0")
    folder.path.mkdir(parents=True)
    folder.write_recipe(recipe, 0)
    folder.append_log(whole_entry())
    dense = {"best": 0.931, "last": 0.922}
    folder.write_result(whole_result(dense=dense, machine=MACHINE, epochs={"train": 1}))


def readme(path: Path) -> Path:
    path.write_text(f"# Title\n\n{BEGIN}\nwhat was there\n{END}\n\nThe rest.\n")
    return path


def test_rows_are_means_over_seeds_beside_the_papers(tmp_path: Path) -> None:
    for seed, best in ((0, 0.85), (1, 0.86)):
        write_run(tmp_path, seed=seed, best=best, last=best - 0.01)
    store = RunStore(tmp_path)
    text = lines(store, headline(store))
    assert [line for line in text if line.startswith("|")] == [
        "| network | accuracy | dense | 90 % | 95 % | 98 % | 99 % | 99.5 % | 99.8 % |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| CIFAR-10, ResNet-32 | best epoch {'| missing ' * 6}| 85.50 ± 0.71 (2) |",
        f"|  | last epoch {'| missing ' * 6}| 84.50 ± 0.71 |",
        "|  | paper, best epoch |  |  |  |  |  |  | 84.45 ± 0.55 |",
    ]
    whole = "\n".join(text)
    assert "of 2 runs in [results](../results), on cpu in fp32 with PyTorch 2.13.0." in whole
    assert "\nMissing so far: CIFAR-10, VGG-19; CIFAR-100, ResNet-32; CIFAR-100, VGG-19.\n" in whole
    assert "](reproduction/headline.png)" in whole


def test_the_readme_has_the_networks_of_the_zoo_with_measured_times(tmp_path: Path) -> None:
    write_run(tmp_path / "results", seed=0, best=0.85, last=0.84)
    page = readme(tmp_path / "README.md")
    written = write(tmp_path)
    text = page.read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    shown = [row[0].strip("| `") for row in rows]
    assert {*zoo.names()} - {*shown} == {
        "cifar10-resnet32-0.998-slow",
        "cifar10-resnet32-rigl-0.98",
    }  # not the preset's
    times = json.loads(TIMES.read_text())
    for row, name in zip(rows, shown, strict=True):
        entry = zoo.entry(name)
        assert row[1:4] == [f"{100 * entry.test_accuracy:.2f}", f"{entry.kept:,}", f"{entry.bytes / 1e3:.0f}"]
        of_engine = {each["engine"]: each["milliseconds"] for each in times if each["name"] == name}
        assert float(row[4]) == pytest.approx(of_engine.pop("hypersparse"), abs=5e-4)
        assert float(row[5]) == pytest.approx(min(of_engine.values()), abs=5e-3)
    assert f"](docs/reproduction/{PICTURE}.png)" in text
    assert "what was there" not in text
    assert text.startswith("# Title\n")
    assert text.endswith("The rest.\n")
    assert tmp_path / "docs" / "reproduction" / f"{PICTURE}.png" in written
    assert write(tmp_path) == written
    assert page.read_text() == text


def test_a_dense_network_has_a_row_and_a_line(tmp_path: Path) -> None:
    write_dense_run(tmp_path)
    store = RunStore(tmp_path)
    found = headline(store)
    assert "| CIFAR-10, VGG-19 | best epoch | 93.10 | missing |" in "\n".join(lines(store, found))
    missing, axes = found.figure.axes
    levels = [line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]]  # type: ignore[arg-type, index]
    assert levels == pytest.approx([93.84, 93.1])
    assert missing.get_title(loc="left") == "CIFAR-10, ResNet-32: no runs yet"
    assert axes.get_title(loc="left") == "CIFAR-10, VGG-19"


def test_each_data_set_has_rows_and_panels(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, best=0.85, last=0.84)
    write_run(tmp_path, seed=0, best=0.65, last=0.64, data="cifar100")
    found = headline(RunStore(tmp_path))
    assert found.data[["data", "best", "paper"]].to_numpy().tolist() == [
        ["cifar10", 85.0, 84.45],
        ["cifar100", 65.0, 48.31],
    ]
    assert [axes.get_title(loc="left") for axes in found.figure.axes] == [
        "CIFAR-10, ResNet-32",
        "CIFAR-10, VGG-19: no runs yet",
        "CIFAR-100, ResNet-32",
        "CIFAR-100, VGG-19: no runs yet",
    ]


def test_without_runs_it_is_missing(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    assert len(headline(store).data) == 0
    assert lines(store, headline(store))[0].startswith("Missing: there is no finished run")


def test_a_file_without_marks_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be read"):
        write(tmp_path)
    (tmp_path / "README.md").write_text("# Title\n")
    with pytest.raises(RunError, match="has no place for the table"):
        write(tmp_path)
    assert (tmp_path / "README.md").read_text() == "# Title\n"
