"""The tables of docs/architectures.md are what `outside_networks` measured, of all networks."""

import json
from pathlib import Path

from tests.runtime.outside_networks import CIFAR, TIMM, described, tables

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "2026-11-19-architectures.json"


def test_the_page_has_what_was_measured() -> None:
    rows = json.loads(STORED.read_text())
    assert {row["name"] for row in rows} >= {*CIFAR, *TIMM, "ViTForImageClassification", "BertModel"}
    assert tables(rows) in (ROOT / "docs" / "architectures.md").read_text()


def test_results_in_words() -> None:
    assert described(2e-7, 1e-5) == "works"
    assert described(2e-5, 1e-5) == "differs by 2e-05"
    assert described("No operation `aten.cos.default` (`v1`) here.", 1e-5) == "`aten.cos.default`"
    assert described("cannot be built: TypeError", 1e-5) == "cannot be built: TypeError"
