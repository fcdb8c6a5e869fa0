"""Single-file pages: templates, assets, and JSON inside scripts."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

FORBIDDEN = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def fill(template: str, parts: Mapping[str, str]) -> str:
    """The template with each `{{NAME}}` replaced once; inserted text is not scanned again.

    >>> fill("<p>{{A}}</p>", {"A": "{{B}}"})
    '<p>{{B}}</p>'
    """
    pieces = template.split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        filled += [parts[name], rest]
    return "".join(filled)


def to_json(content: Any) -> str:
    """JSON for a script element: nothing in it can end the element or open a comment.

    >>> to_json("</script><b>")
    '"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"'
    """
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(FORBIDDEN)


def source_hash(text: str) -> str:
    """The hash of an allowed script or style for a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def asset(name: str, package: str = "hypersparse.pages") -> str:
    """A file of a package's folder `assets`."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def script_of(*parts: str) -> str:
    """Scripts that share one scope, which nothing else on the page sees."""
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"
