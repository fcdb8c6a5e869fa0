"""What a run's variant is called, everywhere."""

from typing import Any

import pytest

from hypersparse.recipe import resolve
from hypersparse.runs.recipe_names import changed, matches_preset, names, variant, variants


def recipe(**tables: Any) -> dict[str, Any]:
    return resolve({"data": {"name": "cifar10"}, **tables}, stored=True).to_mapping()


@pytest.mark.parametrize(
    ("tables", "name"),
    [
        ({}, "art hypersparse"),
        ({"method": {"penalty": "l1"}}, "art l1"),
        ({"method": {"pretrain_epochs": 0}}, "art hypersparse, without pre-training"),
        ({"method": {"pretrain_epochs": 7}}, "art hypersparse, pretrain_epochs=7"),
        ({"method": {"name": "rigl", "update_every": 50}, "training": {"lr": 0.05}}, "rigl, lr=0.05, update_every=50"),
        ({"ablation": {"name": "shuffle"}}, "art hypersparse, ablation shuffle"),
        (
            {"ablation": {"name": "rewind", "rewind_epoch": 3}},
            "art hypersparse, ablation rewind, rewind_epoch=3",
        ),
        ({"init_from": "x", "init_digest": "ab"}, "art hypersparse, from trained weights"),
        ({"model": {"name": "mine:network", "width": 2}}, "art hypersparse, width=2"),
        (
            {"model": {"name": "mine:network", "size": 2}, "data": {"name": "synthetic", "size": 8}},
            "art hypersparse, data.size=8, model.size=2",
        ),
        ({"method": {"name": "dense"}}, "dense"),
    ],
)
def test_the_name_lists_differences_from_the_preset(tables: dict[str, Any], name: str) -> None:
    assert variant(recipe(**tables)) == name
    assert matches_preset(recipe(**tables)) == (", " not in name)


def test_seed_sparsity_data_model_and_end_are_not_in_the_name() -> None:
    alike = [
        recipe(),
        recipe(method={"sparsity": 0.5}),
        recipe(model={"name": "vgg19"}),
        recipe(until="regularize"),
        recipe(data={"name": "digits"}),
    ]
    assert variants(alike) == ["art hypersparse"] * 5
    assert names(alike, "model") == [
        f"art hypersparse, {name}" for name in ("resnet32", "resnet32", "vgg19", "resnet32", "resnet8")
    ]


def test_common_options_are_omitted_but_not_the_course_of_training() -> None:
    short = {"training": {"epochs": 2}}
    bare = {"method": {"pretrain_epochs": 0}}
    assert variants([recipe(**short), recipe(method={"name": "snip"}, **short)]) == ["art hypersparse", "snip"]
    assert variants([recipe(**short), recipe()]) == ["art hypersparse, epochs=2", "art hypersparse"]
    assert variants([recipe(**bare)]) == ["art hypersparse, without pre-training"]
    grown = recipe(method={"growth": 1.5})
    assert variants([grown, recipe(method={"name": "snip"})]) == ["art hypersparse, growth=1.5", "snip"]
    assert variants([grown]) == ["art hypersparse"]
    assert variant(grown) == "art hypersparse, growth=1.5"  # by itself in full


def test_an_option_missing_in_an_older_recipe_has_its_default() -> None:
    old, new = recipe(), recipe(method={"best_by": "mean"})
    del old["method"]["best_by"]
    assert variants([old, recipe()]) == ["art hypersparse"] * 2
    assert variants([old, new]) == ["art hypersparse", "art hypersparse, best_by=mean"]


def test_sparsities_are_named_if_they_differ() -> None:
    runs = [recipe(), recipe(method={"sparsity": 0.998}), recipe(method={"name": "dense"})]
    assert names(runs, "sparsity") == ["art hypersparse, 98 %", "art hypersparse, 99.8 %", "dense"]
    assert names(runs[::2], "sparsity") == ["art hypersparse", "dense"]


def test_all_options_of_a_method_that_is_not_imported_are_named() -> None:
    tables = {"data": {"name": "cifar10"}, "method": {"name": "no_such.package:Mine", "sparsity": 0.9, "force": 2}}
    assert variant(tables) == "Mine, force=2"
    assert changed(tables) == {"method.force": 2}
