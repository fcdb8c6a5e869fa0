"""Hand-written text of the page: its introduction, and paragraphs under its headings."""

import re
from collections.abc import Collection
from pathlib import Path

from hypersparse.errors import RunError, unknown

INTRODUCTION = ""  # what stands before the first heading
HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)


def read_notes(file: Path, headings: Collection[str]) -> dict[str, list[str]]:
    """The text under each heading of the page, followed by an empty line.

    A heading that the page does not have, or that comes twice, is an error, since its text would be lost.
    """
    if not file.is_file():
        return {}
    beginning, *rest = HEADING.split(file.read_text())
    notes = {INTRODUCTION: _lines(beginning)}
    for heading, text in zip(rest[::2], rest[1::2], strict=True):
        if heading not in headings:
            raise RunError(f"{file}: {unknown('heading of the page', heading, tuple(headings))}")
        if heading in notes:
            raise RunError(f"{file} has the heading `{heading}` twice; merge the text under both.")
        notes[heading] = _lines(text)
    return notes


def _lines(text: str) -> list[str]:
    return [text.strip(), ""] if text.strip() else []
