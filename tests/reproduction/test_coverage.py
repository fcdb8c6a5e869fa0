"""Every cell of the paper is there, with our number or as missing."""

import pandas as pd

from hypersparse.analysis import paper
from hypersparse.runs.store import RunStore
from reproduction.coverage import coverage


def cells(*rows: tuple[str, str, float, int, float | None]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["model", "method", "sparsity", "seeds", "best"])
    return frame.assign(data="cifar10")


def test_numbers_stand_alone_and_what_is_missing_shares_a_row() -> None:
    found = coverage(
        cells(
            ("small", "dense", 0.0, 0, None),
            ("small", "art", 0.9, 2, 94.196),
            ("small", "art", 0.98, 0, None),
            ("small", "snip", 0.9, 0, None),
            ("small", "snip", 0.98, 0, None),
            ("small", "imp", 0.9, 0, None),
            ("small", "imp", 0.98, 0, None),
            ("large", "art", 0.98, 1, 90.0),
        ),
        "best",
    )
    assert list(found) == ["data", "model", "method", "dense", "90 %", "98 %"]
    assert found.drop(columns="data").to_numpy().tolist() == [
        ["small", "dense", "missing", "", ""],
        ["small", "art", "", "94.20 (2)", "missing"],
        ["small", "snip; imp", "", "missing", "missing"],
        ["large", "art", "", "", "90 (1)"],
    ]


def test_no_cell_of_the_paper_is_left_out() -> None:
    found = coverage(paper.accuracy(RunStore("nowhere")), "best")
    named = [(row["data"], row["model"], name) for _, row in found.iterrows() for name in row["method"].split("; ")]
    known = paper.table("accuracy")
    there = {(cell.dataset, cell.model, paper.variant_of(cell)) for cell in known.itertuples()}
    assert sorted(named) == sorted(there)
    count = sum((row == "missing").sum() * len(row["method"].split("; ")) for _, row in found.iterrows())
    assert count == len(known) == 366
