"""`python -m reproduction positions` and `map` as they are typed."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hypersparse.errors import DataError, HypersparseError, OptionError
from reproduction.__main__ import app
from tests.analysis.recorded import store

IMAGES = 1437  # of digits


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    counts = np.random.default_rng(0).integers(0, 3, IMAGES)
    store(tmp_path / "runs", dense=counts, pruned=counts[::-1])
    return tmp_path / "runs"


def invoke(*words: object) -> tuple[str, BaseException | None]:
    done = CliRunner().invoke(app, [*map(str, words)])
    return done.output, done.exception


def test_positions_of_digits(runs: Path, tmp_path: Path) -> None:
    output, error = invoke("positions", runs, "-o", tmp_path / "out")
    assert error is None, output
    assert "first position" in output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"positions.png", "positions.svg", "positions.csv", "class-accuracy.png", "class-accuracy-area.csv"} <= names
    long = pd.read_csv(tmp_path / "out" / "positions.csv")
    for _, level in long.groupby("sparsity"):
        assert (level["compression_position"] * level["images"]).sum() / IMAGES == pytest.approx(0.5)


def test_many_levels_stand_below_each_other(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, IMAGES)
    for sparsity in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98):
        store(tmp_path / "runs", dense=counts, pruned=counts[::-1], sparsity=sparsity)
    output, error = invoke("positions", tmp_path / "runs", "-o", tmp_path / "out")
    assert error is None, output
    lines = output.splitlines()
    facts = next(place for place, line in enumerate(lines) if "first position" in line)
    assert lines[facts].split()[:3] == ["model", "method", "sparsity"]
    assert [line.split()[1] for line in lines[facts + 1 : facts + 9]] == ["pre-training", *["art"] * 7]


def test_a_quick_map_of_given_vectors_keeps_its_coordinates(runs: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(IMAGES, 4)))
    words = (
        "map",
        runs,
        "--embedding",
        tmp_path / "v.npy",
        "--samples",
        120,
        "--perplexity",
        5,
        "-o",
        tmp_path / "out",
    )
    output, error = invoke(*words)
    assert error is None, output
    assert "Made of vectors from v.npy" in output
    first = (tmp_path / "out" / "map.csv").read_bytes()
    output, error = invoke(*words)
    assert "Stored coordinates, made of vectors from v.npy" in output
    assert (tmp_path / "out" / "map.csv").read_bytes() == first
    assert set(pd.read_csv(tmp_path / "out" / "map.csv")["embedding"]) == {"vectors from v.npy"}


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (["positions", "--human", "none.pt"], DataError, "There is no file none.pt"),
        (["map", "--embedding", "clipp"], OptionError, "did you mean `clip`"),
        (["map", "--embedding", "none.npy"], DataError, "There is no file none.npy"),
    ],
)
def test_wrong_words_are_said(runs: Path, words: list[str], kind: type[HypersparseError], sentence: str) -> None:
    _, error = invoke(words[0], runs, *words[1:])
    assert isinstance(error, kind)
    assert sentence in str(error)
