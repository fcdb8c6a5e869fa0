"""The command tune, as a user types it."""

import csv
from pathlib import Path

import pytest

from tests.cli.commands import QUICK, run

pytest.importorskip("optuna")
SMALL = [
    *("--data", "digits", "--method", "gmp", "--sparsity", "0.95", "--set", "model.width=4", "--epochs", "3"),
    *("--search", "training.lr=0.001..0.3:log", "--search", "training.schedule=cosine,multistep"),
]


@pytest.mark.slow
def test_tune_on_digits(tmp_path: Path) -> None:
    done = run("tune", *SMALL, "--trials", "3", "--study", "search", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "trial 3 of at most 3: training.lr=" in done.stdout
    rows = list(csv.DictReader((tmp_path / "search" / "trials.csv").read_text().splitlines()))
    assert sorted(int(row["trial"]) for row in rows) == [1, 2, 3]
    best = max(rows, key=lambda row: float(row["held_out"] or 0))
    assert f"best:   --set training.lr={best['training.lr']}" in done.stdout
    more = run("tune", *SMALL, "--trials", "4", "--study", "search", folder=tmp_path)
    assert more.returncode == 0
    assert more.stdout.count("trial 4 of at most 4: ") == 1
    assert "trial 3 of" not in more.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "needs an option to vary: --search"),
        (["--search", "method.growth=1.0..2.0", "--seed", "0-4"], "Invalid value for '--seed'"),
        (["--search", "growth=1..2"], "expects TABLE.NAME=LOW..HIGH"),
        (["--search", "methd.growth=1.0..2.0"], "is no option of a recipe"),
        (["--search", "method.grow=1.0..2.0"], "did you mean `growth`"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    done = run("tune", *QUICK, *words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
