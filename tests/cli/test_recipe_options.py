from pathlib import Path

import pytest

from hypersparse.cli.recipe_options import RecipeOptions
from hypersparse.errors import ModelError, OptionError
from hypersparse.recipe import NAMED_RECIPES
from hypersparse.storage.weights_io import digest


def test_a_recipe_written_by_hand_can_begin_with_trained_weights(tmp_path: Path) -> None:
    weights, file = tmp_path / "weights.pt", tmp_path / "mine.toml"
    weights.write_bytes(b"weights")
    file.write_text(f'init_from = "{weights}"\n')
    recipe = RecipeOptions(recipe=file).make(tmp_path)
    assert recipe.trained
    assert recipe.init_digest == digest(weights)
    weights.write_bytes(b"other")
    assert RecipeOptions(recipe=file).make(tmp_path).key != recipe.key


def test_a_recipe_that_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="not text in UTF-8"):
        RecipeOptions(recipe=tmp_path / "bytes.toml").make(tmp_path)


def test_a_folder_without_final_weights_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has that run finished"):
        RecipeOptions(init_from=tmp_path).make(tmp_path)


def test_a_named_recipe_is_one_of_the_preset_or_an_error(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="There is no recipe `short` for cifar10, since no measured runs support one"):
        RecipeOptions(data="cifar10", recipe=Path("short")).make(tmp_path)
    with pytest.raises(OptionError, match="There is no recipe `shrt`; did you mean `short`"):
        RecipeOptions(recipe=Path("shrt")).make(tmp_path)
    best, plain = (RecipeOptions(data="digits", recipe=name).make(tmp_path) for name in (Path("best"), None))
    assert best.differences(plain) == ["techniques.distill 1.0 / 0.0"]
    # The digits are the default.
    own = RecipeOptions(recipe=Path("best"), settings=["techniques.distill=2"]).make(tmp_path)
    assert own.techniques.distill == 2.0
    assert set(NAMED_RECIPES) == {"best", "short"}
    short = RecipeOptions(data="digits", recipe=Path("short")).make(tmp_path)
    # The preset takes 12 + 31 + 30 epochs: half of them is at most 36 for the regularized phase and the fine-tuning.
    assert (short.training.epochs, getattr(short.method, "pretrain_epochs", None)) == (10, 0)


def test_a_teacher_has_its_digest(tmp_path: Path) -> None:
    weights = tmp_path / "teacher.safetensors"
    weights.write_bytes(b"weights")
    settings = ["techniques.distill=1", f"techniques.teacher={weights}"]
    recipe = RecipeOptions(settings=settings).make(tmp_path)
    assert recipe.techniques.teacher_digest == digest(weights)
    with pytest.raises(ModelError, match="There are no weights at"):
        RecipeOptions(settings=["techniques.distill=1", f"techniques.teacher={tmp_path}"]).make(tmp_path)
