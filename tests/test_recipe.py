import pytest

from hypersparse.errors import OptionError
from hypersparse.methods.dense import Dense
from hypersparse.recipe import Recipe, preset, resolve

NAMES = ["digits", "cifar10", "cifar100", "tinyimagenet", "synthetic"]


@pytest.mark.parametrize("data", NAMES)
def test_every_preset_survives_a_round_trip_through_toml(data: str) -> None:
    recipe = resolve({"data": {"name": data}})
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert resolve(Recipe.from_toml(recipe.to_toml()).to_mapping()) == recipe


def test_the_papers_recipes() -> None:
    cifar, tiny = (resolve({"data": {"name": name}}) for name in ("cifar10", "tinyimagenet"))
    assert (cifar.training.epochs, tiny.training.epochs) == (160, 300)
    for recipe in (cifar, tiny):
        training, method = recipe.training, recipe.method
        assert (training.lr, training.momentum, training.weight_decay, training.batch_size) == (0.1, 0.9, 1e-4, 64)
        assert (training.milestones, training.gamma, training.nesterov) == ((0.5, 0.75), 0.1, False)
        assert (method.pretrain_epochs, method.strength, method.growth) == (60, 5e-6, 1.05)  # type: ignore[attr-defined]
        assert (recipe.data.padding, recipe.data.flip, recipe.model.name) == (4, True, "resnet32")


def test_the_papers_recipes_for_other_methods() -> None:
    def recipe(data: str, method: str) -> Recipe:
        return resolve({"data": {"name": data}, "method": {"name": method}})

    epochs = {
        (data, method): [phase.epochs for phase in recipe(data, method).plan()]
        for data in ("cifar100", "tinyimagenet")
        for method in ("imp", "rigl", "lth")
    }
    assert epochs["cifar100", "imp"] == [20, *[140] * 6]
    assert epochs["tinyimagenet", "imp"] == [40, *[260] * 6]
    assert epochs["cifar100", "rigl"] == [270, 90, 160]
    assert epochs["tinyimagenet", "rigl"] == [270, 90, 300]  # the search is as long as on CIFAR
    assert (epochs["cifar100", "lth"], epochs["tinyimagenet", "lth"]) == ([160, 160], [300, 300])
    for method in ("snip", "grasp", "iter_snip"):
        samples = [recipe(data, method).method for data in ("cifar100", "tinyimagenet")]
        assert [(each.data, each.per_class, each.passes) for each in samples] == [  # type: ignore[attr-defined]
            ("per_class", 10, 1),
            ("per_class", 1, 10),
        ]


def test_keys_are_pinned() -> None:
    """A changed key would orphan everybody's runs."""
    assert Recipe().key == "b1e9d73f"
    assert resolve({"data": {"name": "cifar10"}}).key == "f55ed149"
    assert (
        resolve({"data": {"name": "cifar10"}, "model": {"name": "vgg19"}, "method": {"penalty": "l1"}}).key
        == "4337810b"
    )


@pytest.mark.parametrize("name", ["shuffle", "redraw", "positions", "rewind"])
def test_an_ablation_is_part_of_the_recipe(name: str) -> None:
    recipe = resolve({"ablation": {"name": name}})
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert recipe.key != resolve({}).key
    assert recipe.label.endswith(f"-{name}-{recipe.key}")
    later = resolve({"ablation": {"name": "rewind", "rewind_epoch": 3}})
    assert Recipe.from_toml(later.to_toml()) == later
    assert later.key != recipe.key


def test_recipes_without_an_ablation_can_be_read() -> None:
    text = resolve({}).to_toml()
    before = text[: text.index("[ablation]")]
    assert Recipe.from_toml(before) == resolve({})


def test_the_key_ignores_until_and_includes_all_other_options() -> None:
    base = Recipe()
    assert resolve({}).key == resolve({"until": "regularize"}).key
    assert Recipe(init_digest="a").key != base.key
    assert Recipe(method=Dense()).key != base.key
    assert Recipe.from_mapping({"model": {"width": 8}}).key != base.key


def test_options_of_the_model_are_in_its_table() -> None:
    recipe = resolve({"model": {"width": 8}})
    assert recipe.model.options == {"width": 8}
    assert "width = 8" in recipe.to_toml()


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"method": {"name": "artt"}}, "did you mean `art`"),
        ({"method": {"sparsity": 98}}, "pass 0.98"),
        ({"method": {"grwth": 2}}, "did you mean `growth`"),
        ({"training": {"epoch": 2}}, "did you mean `epochs`"),
        ({"training": {"lr": -1}}, "`lr` should be greater than 0; got -1"),
        ({"training": {"lr": "fast"}}, "`lr` should be a valid number"),
        ({"trainig": {}}, "did you mean `training`"),
        ({"until": "regularise"}, "did you mean `regularize`"),
        ({"method": "art"}, "must be a table"),
        ({"training": {"milestones": [80, 120]}}, "should be less than 1; got 80.*fractions of the phase"),
        ({"training": {"nesterov": True, "momentum": 0.0}}, "`nesterov` needs"),
        ({"training": {"nesterov": True, "optimizer": "adamw"}}, "`nesterov` needs"),
        ({"ablation": {"name": "shufle"}}, "should be .*shuffle"),
        ({"ablation": "shuffle"}, "must be a table"),
        ({"ablation": {"name": "shuffle", "rewind_epoch": 1}}, "belongs to the ablation `rewind`"),
        ({"model": {"narrow": 1}}, "`narrow` should be less than 1; got 1"),
        ({"init_from": "weights.pt"}, "`init_digest` must identify it"),
    ],
)
def test_invalid_recipes_raise_an_error(tables: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        resolve(tables)
    assert "\n" not in str(caught.value)


def test_invalid_toml_raises_an_error() -> None:
    with pytest.raises(OptionError, match="not valid TOML"):
        Recipe.from_toml("a = = b")


def test_a_data_set_without_a_preset_has_the_defaults() -> None:
    assert preset("my-folder") == {}
    assert resolve({"data": {"name": "my-folder"}}).training == Recipe().training


def test_differences_name_the_options() -> None:
    one, other = Recipe(), Recipe.from_mapping({"training": {"lr": 0.05}, "until": "regularize"})
    assert one.differences(other) == ["training.lr 0.1 / 0.05"]
