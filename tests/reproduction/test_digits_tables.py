"""The tables of the comparison on digits are those of their rows."""

import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from hypersparse.errors import RunError
from reproduction.__main__ import app
from reproduction.digits_tables import CHECKOUT, PAGE, PRESET, ROWS, TABLES, cells, replaced
from tests.analysis.small import write


def test_a_row_by_hand() -> None:
    rows = pd.DataFrame(
        {
            "variant": [PRESET, PRESET, f"{PRESET}, growth=2.0", f"{PRESET}, growth=2.0"],
            "sparsity": 0.98,
            "seed": [0, 1, 0, 1],
            "last": [90.0, 92.0, 91.0, 95.0],
            "loss": [0.1, 0.3, 0.2, 0.2],
            "epochs": [10, 12, 5, 6],
            "training_flops": [2e9, 2e9, 1e9, 1e9],
        }
    )
    preset, other = cells(rows)
    assert preset == ["98 %", "preset", "2", "91.00 ± 1.41", "", "", "0.200", "11.0", "1.00"]
    # Differences of 1 and 3: 2 ± 12.71 x sqrt(2) / sqrt(2).
    assert other == ["98 %", "growth=2.0", "2", "93.00 ± 2.83", "+2.00", "-10.71 to +14.71", "0.200", "5.5", "0.50"]
    assert cells(rows[rows["seed"] == 0])[0][2:4] == ["1", "90.00"]  # one seed has no deviation


def test_the_page_has_the_tables_of_its_rows(tmp_path: Path) -> None:
    for folder in (ROWS, Path("experiments")):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    shutil.copy(CHECKOUT / PAGE, tmp_path / PAGE)
    done = CliRunner().invoke(app, ["digits", "--root", str(tmp_path)])
    assert done.exit_code == 0, done.output
    for path in (PAGE, *(ROWS / f"{name}.csv" for name in TABLES)):
        assert (tmp_path / path).read_text() == (CHECKOUT / path).read_text(), (
            f"run `python -m reproduction digits`: {path}"
        )


def test_finished_runs_are_added_to_the_rows(tmp_path: Path) -> None:
    """A run counts instead of a row with its variant, sparsity and seed; what no experiment lists is left out."""
    for folder in (ROWS, Path("experiments")):
        shutil.copytree(CHECKOUT / folder, tmp_path / folder)
    shutil.copy(CHECKOUT / PAGE, tmp_path / PAGE)
    more: dict[str, Any] = {"training_flops_sparse": 5e8, "sparse": {"last": 0.5, "best": 0.75}}
    for seed in (3, 1000):
        write(tmp_path / "runs", sparsity=0.996, seed=seed, **more)
    done = CliRunner().invoke(app, ["digits", "--root", str(tmp_path), "--runs-dir", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    for name in TABLES:
        before, after = (pd.read_csv(root / ROWS / f"{name}.csv") for root in (CHECKOUT, tmp_path))
        assert len(before) == len(after)
        changed = after[(after["last"] == 50.0)]
        assert changed[["variant", "sparsity", "seed", "epochs"]].values.tolist() == [[PRESET, 0.996, 3, 5]]
        assert changed["training_flops"].tolist() == [1e9]


def test_a_page_without_a_place_is_said() -> None:
    with pytest.raises(RunError, match="has no place for the table digits-short; add these two lines"):
        replaced("text", "digits-short", ["| a |"])
