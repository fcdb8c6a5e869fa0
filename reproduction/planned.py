"""Variants of ART that this repository plans to train; the page lists them as missing until they are trained."""

from typing import Any

import pandas as pd

from hypersparse.analysis.variants import COLUMNS, TASK, in_order, variants
from hypersparse.runs.store import RunStore

# `experiments/variants.toml` and `short.toml` train them.
PLANNED_FOR = {"data": "cifar10", "model": "resnet32", "method": "art", "penalty": "hypersparse"}
PLANNED = (  # sparsity and variant
    (0.98, "art hypersparse, schedule=cosine"),
    (0.98, "art hypersparse, without pre-training"),
    (0.98, "art hypersparse, epochs=22, schedule=cosine"),
    (0.98, "art hypersparse, without pre-training, epochs=80, schedule=cosine, strength=1.5e-05, growth=1.025"),
    (0.998, "art hypersparse, schedule=cosine"),
    (0.998, "art hypersparse, without pre-training"),
    (0.998, "art hypersparse, without pre-training, epochs=30, schedule=cosine, growth=1.0155"),
    (0.998, "art hypersparse, without pre-training, epochs=30, schedule=cosine, growth=1.036"),
)


def variants_and_planned(store: RunStore) -> pd.DataFrame:
    """The trained variants and, with 0 seeds, the planned ones without a run."""
    rows: list[dict[Any, Any]] = variants(store).to_dict("records")
    trained = {_key(row) for row in rows}
    planned = [
        {**PLANNED_FOR, "sparsity": sparsity, "variant": name, "seeds": 0, "pairs": 0} for sparsity, name in PLANNED
    ]
    missing = [row for row in planned if _key(row) not in trained]
    return in_order(pd.DataFrame([*rows, *missing], columns=list(COLUMNS)))


def _key(row: dict[Any, Any]) -> tuple[Any, ...]:
    return tuple(row[column] for column in (*TASK, "variant"))
