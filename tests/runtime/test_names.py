"""Names in files: of harmless characters, or the file is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hypersparse
from hypersparse_runtime.container import FileError, inflated, parsed, sections_of
from hypersparse_runtime.file import MOST_GRAPH, pack, read
from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, shapes
from hypersparse_runtime.names import LONGEST, strange_name
from tests.runtime.renamed import ESCAPE, NAME, example, renamed

ROOT = Path(hypersparse.__file__).parents[1]
STRANGE = {
    "an escape": ESCAPE,
    "a quote": 'a"b',
    "a space": "a b",
    "a carriage return": "a\rb",
    "a last line end": "weight\n",
    "a terminal's escape": "\x1b]0;title\x07",
    "a backslash": "a\\x22",
    "a letter that is no ASCII": "wеight",  # the second letter is Cyrillic
    "a comment's end": "a*/",
    "nothing": "",
    "too much": "a" * (LONGEST + 1),
}


@pytest.mark.parametrize("part", ["array", "op", "role", "option"])
@pytest.mark.parametrize("what", STRANGE)
def test_a_file_with_a_strange_name_is_refused(what: str, part: str, tmp_path: Path) -> None:
    file = renamed(tmp_path / "a.hsp", STRANGE[what], part=part)
    with pytest.raises(FileError, match="is no name: names have 1 to 512 of the characters") as refused:
        read(file)
    assert str(refused.value).isprintable()
    assert str(refused.value).isascii()


def test_other_names_are_read(tmp_path: Path) -> None:
    for name in (NAME, "~0.mask", "blocks.0.conv-1.weight", "_x", "a" * LONGEST):
        assert list(read(renamed(tmp_path / "a.hsp", name)).tensors) == [name]


@pytest.mark.parametrize("what", STRANGE)
def test_a_graph_with_a_strange_name_is_neither_understood_nor_written(what: str) -> None:
    graph = example()
    strange = replace(graph, tensors={**graph.tensors, STRANGE[what]: np.ones(1, np.float32)})
    with pytest.raises(GraphError, match="is no name"):
        shapes(strange)
    with pytest.raises(FileError, match="is no name"):
        pack(strange)
    value = Graph((4,), (Node("relu", (INPUT,), STRANGE[what]),), {})
    with pytest.raises(GraphError, match="is no name"):
        shapes(value)


@pytest.mark.parametrize("folder", ["hypersparse/zoo", "benchmarks", "tests/serve"])
def test_every_stored_network_has_such_names(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.hsp"))
    assert files
    for file in files:
        text = parsed(inflated(sections_of(file.read_bytes())[0]["graph"], MOST_GRAPH, exact=False), "its graph")
        parts = [(op, *roles, *options) for op, _, roles, options in text["nodes"]]
        assert strange_name([*(row[0] for row in text["arrays"]), *(name for part in parts for name in part)]) is None
