"""Extension of griffe: a doctest outside an `Examples:` section is shown as code, too."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"((?:^[ \t]*>>>.*\n?(?:^[ \t]*\S.*\n?)*\n*)+)", re.MULTILINE)


class DocstringExamples(Extension):
    """Puts runs of doctests into fenced blocks."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of a function, class, attribute or module."""
        if obj.docstring is not None and "Examples:" not in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    return f"```pycon\n{match[0].strip()}\n```\n"
