"""The page is built from the stored runs and nothing else, with one command."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hypersparse.errors import RunError
from reproduction.__main__ import app
from reproduction.page import write_page
from reproduction.readme import BEGIN, END
from tests.analysis.small import write

ROOT = Path(__file__).parents[2]
HEADLINE = "headline"  # the README's
MACHINE = {"device": "cpu", "precision": "fp32", "torch": "2.13.0"}
MORE = {"epochs": {"pre-train": 2, "regularize": 2, "fine-tune": 1}, "wall_seconds": 90.0, "machine": MACHINE}


def rebuild(root: Path) -> None:
    app(["--root", str(root)], standalone_mode=False)


@pytest.mark.slow
def test_a_page_of_two_runs(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(tmp_path / "results", seed=seed, **MORE)
    headings = ("Goals", "Mask agreement between seeds", "Compression Position", "Runs")
    sections = "".join(f"## {heading}\n\nOf {heading.lower()}.\n\n" for heading in headings)
    (tmp_path / "NOTES.md").write_text(f"What agrees and what does not.\n\n{sections}")
    paths = write_page(tmp_path, tmp_path / "NOTES.md")
    text = paths[0].read_text()
    assert text.startswith("# Reproduction\n\nThis page compares 2 stored runs with the paper.")
    assert "What agrees and what does not." in text.partition("\n## ")[0]
    for heading in headings:  # each under its own, once
        assert text.count(f"\n## {heading}\n") == 1
        assert f"\nOf {heading.lower()}.\n" in text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert "\n366 cells, 366 missing.\n" in text
    assert "- [Accuracy](#accuracy): 366 cells, 366 missing." in text.partition("What agrees")[2]
    assert "differ by at most twice the standard error" in text  # what the verdicts are
    assert "half the epochs**, 98 % sparsity and above: missing; no stored run of ART takes so few epochs." in text
    assert "best_verdict" not in text
    assert "| 5 | 1.5 | cpu | fp32 | 2.13.0 |" in text
    without = [section.partition("\n")[0] for section in text.split("\n## ") if "Missing" in section]
    # Digits are not in the paper, and not in the table at the top.
    assert without == ["# Reproduction", "All methods over the sparsity", "Compression Position"]
    assert text.count("<details>") == text.count("</details>") == 4  # every cell of a table is a click away
    assert "| art hypersparse | 2 | 4 (20) | 6 (7.5) |" in text  # of 20 and 80 weights
    for line in text.splitlines():
        if line.startswith("!["):
            assert (tmp_path / "docs" / line.rpartition("(")[2].rstrip(")")).is_file()


@pytest.mark.parametrize(("file", "said"), [("log.jsonl", "it is cut off"), ("record.npz", "is damaged")])
def test_a_damaged_file_is_not_called_a_missing_figure(tmp_path: Path, file: str, said: str) -> None:
    for seed in (0, 1):
        write(tmp_path / "results", seed=seed, **MORE)
    (damaged,) = tmp_path.glob(f"results/*/seed-1/{file}")
    damaged.write_bytes(b"")
    with pytest.raises(RunError, match=said):
        write_page(tmp_path)
    assert not (tmp_path / "docs").exists()


def test_runs_that_cannot_be_compared_are_not_called_missing(tmp_path: Path) -> None:
    write(tmp_path / "results", seed=0, **MORE)
    write(
        tmp_path / "results", seed=1, total_by_layer={"other.weight": 100}, kept_by_layer={"other.weight": 10}, **MORE
    )
    with pytest.raises(RunError, match="has other layers than"):
        write_page(tmp_path)


@pytest.mark.slow
def test_the_readme_is_left_as_it_is_where_the_page_fails(tmp_path: Path) -> None:
    before = f"{BEGIN}\nwhat was there\n{END}\n"
    (tmp_path / "README.md").write_text(before)
    for damaged, said in ((False, "There are no runs"), (True, "cannot be read")):
        if damaged:
            shutil.copytree(ROOT / "results", tmp_path / "results")
            for file in tmp_path.glob("results/*/seed-*/positions.csv"):
                file.write_text("a,b\n")
        with pytest.raises(RunError, match=said):
            rebuild(tmp_path)
        assert (tmp_path / "README.md").read_text() == before
        assert not (tmp_path / "docs" / "reproduction.md").exists()
        assert damaged or not (tmp_path / "docs").exists()  # without runs there is no figure either


def test_a_readme_without_a_place_fails_before_a_page_is_written(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Title\n")
    (tmp_path / "results").symlink_to(ROOT / "results")
    with pytest.raises(RunError, match="has no place for the table"):
        rebuild(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "results"}


def test_one_command_builds_the_pages_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    shutil.copy(ROOT / "README.md", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "reproduction", "--root", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = set(done.stdout.splitlines())
    assert {"README.md", "docs/reproduction.md", "docs/reproduction/headline.png"} <= written
    for name in ("README.md", "docs/reproduction.md", f"docs/reproduction/{HEADLINE}.csv"):
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: run `python -m reproduction`"
    there = {path.name for path in (ROOT / "docs" / "reproduction").iterdir()}
    assert there == {Path(path).name for path in written} - {"README.md", "reproduction.md"}  # none of earlier results
