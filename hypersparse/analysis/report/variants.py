"""Which runs are seeds of the same thing: runs that differ in seed and sparsity only, named by how they differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypersparse.analysis.comparison import collect, summarize
from hypersparse.analysis.report.gather import RunPage, rounded
from hypersparse.recipe import flatten

APART = ("method.sparsity", "method.name", "data.name", "model.name", "ablation.name", "until", "start", "start_digest")
MEANS = ("training_flops", "training_flops_sparse", "final_bytes", "dense_bytes")
Group = tuple[str, str]  # data and model


def group_of(page: RunPage) -> Group:
    """Only runs on the same data with the same model compare."""
    return Path(str(page.row.data)).stem, str(page.row.model).rpartition(":")[2]


def name_variants(pages: Sequence[RunPage]) -> dict[str, str]:
    """A name for each run's method, by the run's id: `art`, or `art, penalty=l1` where others have another penalty."""
    alike: dict[tuple[str, ...], list[RunPage]] = {}
    for page in pages:
        alike.setdefault((*group_of(page), _base(page)), []).append(page)
    names = {}
    for same in alike.values():
        options = [_options(page.tables) for page in same]
        # What an older recipe does not say is no difference by itself.
        keys = [key for key in dict.fromkeys(key for own in options for key in own) if _differs(key, options)]
        for page, own in zip(same, options, strict=True):
            said = [f"{key.rpartition('.')[2]}={own[key]}" for key in keys if key in own]
            names[page.id] = ", ".join([_base(page), *said])
    return names


def compare(pages: Sequence[RunPage], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Mean and deviation a method and sparsity, for each data set and model; of runs that went to their end."""
    groups: dict[Group, list[RunPage]] = {}
    for page in pages:
        if page.row.status == "finished" and (page.row.sparse_last or page.row.dense_last) is not None:
            groups.setdefault(group_of(page), []).append(page)
    return [
        {"data": data, "model": model, "rows": _summary(own, names)} for (data, model), own in sorted(groups.items())
    ]


def _summary(pages: Sequence[RunPage], names: Mapping[str, str]) -> list[dict[str, Any]]:
    runs = collect([_result(page, names[page.id]) for page in pages])
    for name in MEANS:
        runs[name] = [float("nan") if (cost := page.content[name]) is None else float(cost) for page in pages]
    groups = runs.groupby(["method", "sparsity"], sort=False, dropna=False)
    means = groups[list(MEANS)].mean().assign(kept=groups["kept"].first()).reset_index()
    rows = summarize(runs).merge(means, on=["method", "sparsity"]).to_dict("records")
    return [
        {str(key): value if isinstance(value, str) else rounded(value, 6) for key, value in row.items()} for row in rows
    ]


def _result(page: RunPage, name: str) -> dict[str, Any]:
    """What `collect` needs of a result, from what was read without damage."""
    row, parts = page.row, {part: page.content[f"{part}_best"] for part in ("dense", "sparse")}
    return {
        "method": name,
        "recipe": {"method": {"sparsity": row.sparsity if "sparsity" in page.tables["method"] else None}},
        "dense": None if row.dense_last is None else {"last": row.dense_last, "best": parts["dense"]},
        "sparse": None if row.sparse_last is None else {"last": row.sparse_last, "best": parts["sparse"]},
        "seed": row.seed,
        "kept": row.kept,
        "total": row.total,
        "epochs": page.outcome["epochs"],
        "wall_seconds": row.seconds,
    }


def _base(page: RunPage) -> str:
    words = [str(page.row.method).rpartition(":")[2], page.row.ablation]
    return ", ".join(word for word in words if word)


def _options(tables: Mapping[str, Any]) -> dict[str, Any]:
    """What may tell two recipes of a method apart."""
    flat = flatten(tables)
    said = {name: value for name, value in flat.items() if name not in APART}
    # Seeds that begin with weights of their own are seeds all the same.
    return {**said, "start": "trained weights" if flat.get("start") else "new"}


def _differs(key: str, options: Sequence[Mapping[str, Any]]) -> bool:
    return len({repr(own[key]) for own in options if key in own}) > 1
