"""Mean and deviation over the seeds of each variant and sparsity."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hypersparse.analysis.report.gather import RunPage, rounded
from hypersparse.runs.recipe_names import variants

MEANS = ("training_flops", "training_flops_sparse", "final_bytes", "dense_bytes")
Group = tuple[str, str]  # data and model


def group_of(page: RunPage) -> Group:
    """Data and model; only runs with the same ones are compared."""
    return Path(str(page.row.data)).stem, str(page.row.model).rpartition(":")[2]


def name_variants(pages: Sequence[RunPage]) -> dict[str, str]:
    """The variant of each run, by the run's id."""
    return dict(zip((page.id for page in pages), variants([page.tables for page in pages]), strict=True))


def compare(pages: Sequence[RunPage], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Mean and deviation by method and sparsity of complete runs, for each data set and model."""
    groups: dict[Group, list[RunPage]] = {}
    for page in pages:
        if page.row.status == "finished" and (page.row.sparse_last or page.row.dense_last) is not None:
            groups.setdefault(group_of(page), []).append(page)
    return [
        {"data": data, "model": model, "rows": _summary(own, names)} for (data, model), own in sorted(groups.items())
    ]


def _summary(pages: Sequence[RunPage], names: Mapping[str, str]) -> list[dict[str, Any]]:
    from hypersparse.analysis.comparison import collect, summarize  # a second of imports, which one run does not need

    runs = collect([_result(page) for page in pages], [names[page.id] for page in pages])
    for name in MEANS:
        runs[name] = [float("nan") if (cost := page.content[name]) is None else float(cost) for page in pages]
    groups = runs.groupby(["method", "sparsity"], sort=False, dropna=False)
    means = groups[list(MEANS)].mean().assign(kept=groups["kept"].first()).reset_index()
    rows = summarize(runs).merge(means, on=["method", "sparsity"]).to_dict("records")
    return [
        {str(key): value if isinstance(value, str) else rounded(value, 6) for key, value in row.items()} for row in rows
    ]


def _result(page: RunPage) -> dict[str, Any]:
    """The result as `collect` needs it."""
    row, parts = page.row, {part: page.content[f"{part}_best"] for part in ("dense", "sparse")}
    return {
        "recipe": {"method": {"sparsity": row.sparsity if "sparsity" in page.tables["method"] else None}},
        "dense": None if row.dense_last is None else {"last": row.dense_last, "best": parts["dense"]},
        "sparse": None if row.sparse_last is None else {"last": row.sparse_last, "best": parts["sparse"]},
        "seed": row.seed,
        "kept": row.kept,
        "total": row.total,
        "epochs": page.outcome["epochs"],
        "wall_seconds": row.seconds,
    }
