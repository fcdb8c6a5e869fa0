"""`variant`: the short name of a run in tables, legends and reports.

Names are derived from the recipe's tables, not from a `Recipe`, so that methods need not be imported. If `own_code`
permits importing a user's method, options with their defaults are omitted from its name.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hypersparse.errors import HypersparseError
from hypersparse.recipe import flatten, resolve

Tables = Mapping[str, Any]  # a recipe as nested tables, as in TOML
# The preset determines the others.
HEAD = ("data.name", "model.name", "method.name", "method.penalty", "method.sparsity")
# Named differently, or not part of a variant.
NOT_IN_VARIANT = (*HEAD, "ablation.name", "until", "init_from", "init_digest")
PRETRAINING = "method.pretrain_epochs"


def variant(tables: Tables) -> str:
    """The method, its penalty, and the options that differ from the data set's preset.

    Seed, sparsity, data and model are not part of the name. Runs of one variant differ in these only.

    >>> variant({"data": {"name": "digits"}, "method": {"name": "art", "penalty": "l1", "growth": 1.5}})
    'art l1, growth=1.5'
    """
    return _named(tables, changed(tables))


def variants(recipes: Sequence[Tables], *, own_code: Collection[str] = ()) -> list[str]:
    """The variant of each recipe, without the options that all recipes share."""
    changes = [changed(tables, own_code=own_code) for tables in recipes]
    whole = [_preset_options(tables, own_code) | flatten(tables) for tables in recipes]
    common = {
        option
        for option in {option for own in changes for option in own}
        if len({repr(flat.get(option)) for flat in whole}) == 1
    }
    return [
        _named(tables, {option: value for option, value in own.items() if option not in common})
        for tables, own in zip(recipes, changes, strict=True)
    ]


def names(recipes: Sequence[Tables], *more: str, own_code: Collection[str] = ()) -> list[str]:
    """The variant of each recipe, with those of `more` (sparsity, model, data) that differ among the recipes.

    Two sparsities give `art hypersparse, 90 %` and `art hypersparse, 98 %`, independent of the seeds.
    """
    said = [{word: _value_text(tables, word) for word in more} for tables in recipes]
    # A dense run has no sparsity, which does not count as another one.
    differing = [word for word in more if len({own[word] for own in said} - {None}) > 1]
    return [
        ", ".join([name, *(text for word in differing if (text := own[word]) is not None)])
        for name, own in zip(variants(recipes, own_code=own_code), said, strict=True)
    ]


def matches_preset(tables: Tables) -> bool:
    """Whether a recipe equals its preset; only then it is comparable with the paper."""
    return not _course(tables) and not changed(tables)


def changed(tables: Tables, *, own_code: Collection[str] = ()) -> dict[str, Any]:
    """The options that differ from the preset, by names such as `training.lr`."""
    preset = _preset_options(tables, own_code)
    said = {name: value for name, value in flatten(tables).items() if name not in NOT_IN_VARIANT}
    # `_course` names runs without pre-training.
    return {
        name: value
        for name, value in said.items()
        if preset.get(name) != value and not (name == PRETRAINING and value == 0)
    }


def _preset_options(tables: Tables, own_code: Collection[str] = ()) -> dict[str, Any]:
    """All options of the preset, without those of a method that is not imported."""
    said: dict[str, dict[str, Any]] = {}
    for place in HEAD:
        part, name = place.split(".")
        if name in tables.get(part, {}):
            said.setdefault(part, {})[name] = tables[part][name]
    try:
        return flatten(resolve(said, own_code=own_code, stored=True).to_mapping())
    except HypersparseError:
        others = resolve({part: said[part] for part in said if part != "method"}, stored=True).to_mapping()
        return flatten({part: table for part, table in others.items() if part != "method"})


def _named(tables: Tables, options: Mapping[str, Any]) -> str:
    whole = _preset_options(tables) | flatten(tables)
    method, penalty = str(whole["method.name"]).rpartition(":")[2], whole.get("method.penalty")
    head = method if penalty is None else f"{method} {penalty}"
    last = Counter(name.rpartition(".")[2] for name in flatten(tables))
    shown = {name: short if last[short := name.rpartition(".")[2]] == 1 else name for name in options}
    return ", ".join([head, *_course(tables), *(f"{shown[name]}={value}" for name, value in options.items())])


def _course(tables: Tables) -> list[str]:
    """Phrases for a different course of training, which are never omitted."""
    ablation = tables.get("ablation", {}).get("name", "none")
    words = {
        "from trained weights": bool(tables.get("init_digest")),
        "without pre-training": flatten(tables).get(PRETRAINING) == 0,
        f"ablation {ablation}": ablation != "none",
    }
    return [word for word, holds in words.items() if holds]


def _value_text(tables: Tables, word: str) -> str | None:
    if word != "sparsity":
        return str(tables[word]["name"])
    sparsity = tables["method"].get("sparsity")
    return None if sparsity is None else f"{100 * sparsity:g} %"
