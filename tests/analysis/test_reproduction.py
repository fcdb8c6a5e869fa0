"""The page of results is made of the stored runs and nothing else."""

from pathlib import Path

import pytest

from hypersparse.analysis.reproduction import write_page
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from tests.analysis.small import write

ROOT = Path(__file__).parents[2]
HEADLINE = "headline"  # the README's
MACHINE = {"device": "cpu", "precision": "fp32", "torch": "2.13.0"}
MORE = {"epochs": {"pre-train": 2, "regularize": 2, "fine-tune": 1}, "wall_seconds": 90.0, "machine": MACHINE}


@pytest.mark.slow
def test_a_page_of_two_runs(tmp_path: Path) -> None:
    for seed in (0, 1):
        write(tmp_path / "results", seed=seed, **MORE)
    headings = ("Aim", "How far two seeds agree", "Compression Position", "Runs")
    sections = "".join(f"## {heading}\n\nOf {heading.lower()}.\n\n" for heading in headings)
    (tmp_path / "results" / "NOTES.md").write_text(f"What agrees and what does not.\n\n{sections}")
    paths = write_page(RunStore(tmp_path / "results"), tmp_path / "docs" / "page.md")
    text = paths[0].read_text()
    assert text.startswith("# Reproduction\n\nMade of 2 stored runs, and made anew by\n")
    assert "What agrees and what does not." in text.partition("\n## ")[0]
    for heading in headings:  # each under its own, once
        assert text.count(f"\n## {heading}\n") == 1
        assert f"\nOf {heading.lower()}.\n" in text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert "Of 366 cells: 366 missing." in text
    assert "- [Accuracy](#accuracy), 366 cells: 366 missing." in text.partition("What agrees")[0]
    assert "differ by at most twice the standard error" in text  # what the verdicts are
    assert "- As much in half the epochs, at 98 % and above: missing; no run of ART has taken so few epochs." in text
    assert "best_verdict" not in text
    assert "| 5 | 1.5 | cpu | fp32 | 2.13.0 |" in text
    assert text.count("Missing") == 1  # nobody kept the means of Compression Position
    assert text.partition("Missing")[0].rpartition("\n## ")[2].startswith("Compression Position")
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
        write_page(RunStore(tmp_path / "results"), tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


def test_without_runs_there_is_no_page(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There are no runs in"):
        write_page(RunStore(tmp_path), tmp_path / "page.md")


def test_the_page_in_the_docs_is_that_of_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)  # the page says the command that writes it, with its paths
    page, *figures = write_page(RunStore("results"), Path("docs/reproduction.md"), Path("README.md"))
    assert "\nhypersparse paper --page docs/reproduction.md --readme README.md\n" in page.read_text()
    assert (ROOT / "docs" / "reproduction.md").read_text() == page.read_text()
    there = {path.name for path in (ROOT / "docs" / "reproduction").iterdir() if path.stem != HEADLINE}
    assert there == {path.name for path in figures}  # none is left of earlier results
