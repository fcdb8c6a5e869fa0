"""The command find, as a user types it."""

import csv
from pathlib import Path

import pytest

from tests.cli.commands import run

SMALL = [
    *("--data", "digits", "--set", "model.width=4", "--set", "method.pretrain_epochs=3", "--set", "method.growth=2"),
    *("--set", "method.max_regularized_epochs=8", "--epochs", "3", "--sparsity", "0.5,0.9"),
]


@pytest.mark.slow
def test_find_on_digits(tmp_path: Path) -> None:
    done = run("find", *SMALL, "--min-accuracy", "0.6", "--out", "pictures/front", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The sparsest that holds 60.00 %:" in done.stdout
    assert "training 1 of at most 5: pre-training and copies" in done.stdout
    rows = list(csv.DictReader((tmp_path / "pictures" / "front.csv").read_text().splitlines()))
    held = {float(row["sparsity"]): float(row["accuracy"]) for row in rows if "held-out" in row["what"]}
    best = max(sparsity for sparsity, accuracy in held.items() if accuracy >= 60)
    assert f"{100 * best:g} % with {held[best]:.2f} %" in done.stdout
    assert (tmp_path / "pictures" / "front.png").stat().st_size > 5000
    export = done.stdout.splitlines()[-1].split()[2:]
    assert run(*export, folder=tmp_path).returncode == 0
    again = run("find", *SMALL, "--min-accuracy", "0.6", folder=tmp_path)
    assert again.returncode == 0
    assert " epoch " not in again.stdout
    too_much = run("find", *SMALL, "--min-accuracy", "1", folder=tmp_path)
    assert too_much.returncode == 1
    rows = list(csv.DictReader((tmp_path / "front.csv").read_text().splitlines()))
    most = max(float(row["accuracy"]) for row in rows if "held-out" in row["what"])
    assert f"No network holds 100.00 %. The most accurate one has {most:.2f} %, at " in too_much.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--min-accuracy", "92"], "is a share in (0, 1], such as 0.92; got 92"),
        (["--min-accuracy", "0.9", "--until", "regularize"], "leave `--until` out"),
        (["--min-accuracy", "0.9", "--seed", "0,1"], "Invalid value for '--seed'"),
        (["--min-accuracy", "0.9", "--sparsity", "0.9,1.5"], "must be in [0, 1); got 1.5"),
        ([], "Missing option '--min-accuracy'"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    done = run("find", *words, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
