"""Which runs are seeds of the same thing, and their mean and deviation by hand."""

from pathlib import Path

import pytest

from hypersparse.analysis.report.averages import compare, name_variants
from hypersparse.analysis.report.gather import gather
from tests.analysis.report.made import make_run


def test_seeds_and_sparsities_share_a_name_and_other_options_do_not(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path, seed=0),
        make_run(tmp_path, seed=1, sparsity=0.98),
        make_run(tmp_path, seed=2, tables={"method": {"penalty": "l1"}}),
        make_run(tmp_path, method="snip"),
        make_run(tmp_path, method="dense", sparsity=None),
    ]
    names = name_variants(gather(runs).pages)
    assert list(names.values()) == ["art hypersparse"] * 2 + ["art l1", "snip", "dense"]


def test_what_an_older_recipe_does_not_say_is_no_difference(tmp_path: Path) -> None:
    old, new = make_run(tmp_path, seed=0), make_run(tmp_path, seed=1)
    old.recipe_file.write_text(old.recipe_file.read_text().replace("flip = true\n", ""))
    assert set(name_variants(gather([old, new]).pages).values()) == {"art hypersparse"}


def test_a_run_whose_method_cannot_be_imported_here_has_a_name_too(tmp_path: Path) -> None:
    foreign = make_run(tmp_path, method="snip")
    text = foreign.recipe_file.read_text()
    foreign.recipe_file.write_text(text.replace('name = "snip"', 'name = "no_such.package:Mine"\nforce = 2'))
    names = name_variants(gather([make_run(tmp_path), foreign]).pages)
    first, second = names.values()
    assert first == "art hypersparse"
    assert second.startswith("Mine, force=2")


def test_mean_and_deviation_for_each_data_set_and_model(tmp_path: Path) -> None:
    runs = [
        *(make_run(tmp_path, seed=seed, last=last) for seed, last in enumerate((0.90, 0.92, 0.94))),
        make_run(tmp_path, method="dense", sparsity=None, last=0.95),
        make_run(tmp_path, seed=0, tables={"model": {"name": "vgg19"}}, last=0.5),
        make_run(tmp_path, seed=9, finished=False),
    ]
    pages = gather(runs).pages
    resnet, vgg = compare(pages, name_variants(pages))
    assert [(resnet["data"], resnet["model"]), (vgg["data"], vgg["model"])] == [
        ("cifar10", "resnet32"),
        ("cifar10", "vgg19"),
    ]
    art, dense = resnet["rows"]
    assert (art["method"], art["sparsity"], art["seeds"], art["kept"]) == ("art hypersparse", 0.9, 3, 300)
    assert art["last"] == pytest.approx(92.0)
    assert art["last_deviation"] == pytest.approx(2.0)
    assert art["best"] == pytest.approx(93.0)
    assert (art["training_flops"], art["final_bytes"]) == (4e12, 20_000)
    assert (dense["method"], dense["sparsity"], dense["last_deviation"]) == ("dense", None, None)
    assert dense["last"] == pytest.approx(95.0)
    assert [row["last"] for row in vgg["rows"]] == [50.0]
