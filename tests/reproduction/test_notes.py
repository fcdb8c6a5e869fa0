"""What is written by hand stands where it belongs on the page, and none of it is lost."""

from pathlib import Path

import pytest

from hypersparse.errors import RunError
from reproduction.notes import INTRODUCTION, read_notes

HEADINGS = ("Accuracy", "How long the penalty grows")


def notes(folder: Path, text: str) -> dict[str, list[str]]:
    file = folder / "NOTES.md"
    file.write_text(text)
    return read_notes(file, HEADINGS)


def test_paragraphs_by_heading(tmp_path: Path) -> None:
    found = notes(tmp_path, "In short.\n\n- one\n\n##  Accuracy \n\nFirst.\n\nSecond.\n## How long the penalty grows\n")
    assert found == {
        INTRODUCTION: ["In short.\n\n- one", ""],
        "Accuracy": ["First.\n\nSecond.", ""],
        "How long the penalty grows": [],
    }


def test_without_headings_all_is_the_beginning(tmp_path: Path) -> None:
    assert notes(tmp_path, "All of it.\n### Not a section\n") == {INTRODUCTION: ["All of it.\n### Not a section", ""]}


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert read_notes(tmp_path / "NOTES.md", HEADINGS) == {}


def test_a_heading_the_page_does_not_have_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"NOTES.md: There is no heading of the page `Acuracy`; did you mean `Accuracy`"):
        notes(tmp_path, "## Acuracy\n\nLost.\n")


def test_a_heading_that_comes_twice_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has the heading `Accuracy` twice"):
        notes(tmp_path, "## Accuracy\n\nFirst.\n\n## Accuracy\n\nSecond.\n")
