"""`variant`: what a run trains, in the words that every table, legend and report uses for it.

Runs are told apart by their recipe's tables, not by a Recipe: one whose method is not imported here has a name too.
`own_code` names what may be: then the options of a method of one's own that have their defaults go without saying.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hypersparse.errors import HypersparseError
from hypersparse.recipe import flatten, resolve

Tables = Mapping[str, Any]  # of a recipe, nested as in TOML
HEAD = ("data.name", "model.name", "method.name", "method.penalty", "method.sparsity")  # the preset fills in the rest
ELSEWHERE = (*HEAD, "ablation.name", "until", "init_from", "init_digest")  # said in other words, or not of the variant
PRETRAINING = "method.pretrain_epochs"


def variant(tables: Tables) -> str:
    """The method with its penalty, and whatever else is not as the data set's preset has it.

    Seed, sparsity, data and model are not part of it: runs of one variant differ in nothing else.

    >>> variant({"data": {"name": "digits"}, "method": {"name": "art", "penalty": "l1", "growth": 1.5}})
    'art l1, growth=1.5'
    """
    return _named(tables, changed(tables))


def variants(recipes: Sequence[Tables], *, own_code: Collection[str] = ()) -> list[str]:
    """The variant of each, without the options that all of them have in common."""
    changes = [changed(tables, own_code=own_code) for tables in recipes]
    whole = [_usual(tables, own_code) | flatten(tables) for tables in recipes]
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
    """The variant of each, and of `more` (sparsity, model, data) what not all of them share.

    With two sparsities that is `art hypersparse, 90 %` and `art hypersparse, 98 %`, whatever the seeds.
    """
    said = [{word: _said(tables, word) for word in more} for tables in recipes]
    # A dense run has no sparsity, which is no other one.
    differing = [word for word in more if len({own[word] for own in said} - {None}) > 1]
    return [
        ", ".join([name, *(told for word in differing if (told := own[word]) is not None)])
        for name, own in zip(variants(recipes, own_code=own_code), said, strict=True)
    ]


def matches_preset(tables: Tables) -> bool:
    """Whether all is as in the preset: only then the paper's numbers are of the same training."""
    return not _course(tables) and not changed(tables)


def changed(tables: Tables, *, own_code: Collection[str] = ()) -> dict[str, Any]:
    """The options that are not as in the preset, by names such as `training.lr`."""
    usual = _usual(tables, own_code)
    said = {name: value for name, value in flatten(tables).items() if name not in ELSEWHERE}
    # Without pre-training is in words.
    return {
        name: value
        for name, value in said.items()
        if usual.get(name) != value and not (name == PRETRAINING and value == 0)
    }


def _usual(tables: Tables, own_code: Collection[str] = ()) -> dict[str, Any]:
    """All options as the preset has them; of a method that is not imported here none of its own."""
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
    whole = _usual(tables) | flatten(tables)
    method, penalty = str(whole["method.name"]).rpartition(":")[2], whole.get("method.penalty")
    head = method if penalty is None else f"{method} {penalty}"
    last = Counter(name.rpartition(".")[2] for name in flatten(tables))
    shown = {name: short if last[short := name.rpartition(".")[2]] == 1 else name for name in options}
    return ", ".join([head, *_course(tables), *(f"{shown[name]}={value}" for name, value in options.items())])


def _course(tables: Tables) -> list[str]:
    """What makes it another course of training, in words; always said."""
    ablation = tables.get("ablation", {}).get("name", "none")
    words = {
        "from trained weights": bool(tables.get("init_digest")),
        "without pre-training": flatten(tables).get(PRETRAINING) == 0,
        f"ablation {ablation}": ablation != "none",
    }
    return [word for word, holds in words.items() if holds]


def _said(tables: Tables, word: str) -> str | None:
    if word != "sparsity":
        return str(tables[word]["name"])
    sparsity = tables["method"].get("sparsity")
    return None if sparsity is None else f"{100 * sparsity:g} %"
