"""The words on pages are words, not names in the code that a rename has put there."""

import re
from pathlib import Path

import hypersparse

SCRIPTS = sorted(path for path in Path(hypersparse.__file__).parent.rglob("*.js") if "vendor" not in path.parts)
STRING = re.compile(r'"([^"\n]*)"')
NAME = re.compile(r"\b[a-z]+[A-Z][A-Za-z]*\b")


def test_no_name_of_the_code_is_in_the_words_of_a_page() -> None:
    assert len(SCRIPTS) > 20
    texts = [text for script in SCRIPTS for text in STRING.findall(script.read_text()) if " " in text]
    assert [text for text in texts if NAME.search(text) and "=" not in text] == []
