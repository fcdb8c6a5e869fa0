"""What CONTRIBUTING.md says where to find is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_files_that_contributing_names_exist() -> None:
    named = re.findall(r"`([\w./]+/[\w./]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [name for name in named if "NAME" not in name]
    assert len(paths) > 25
    missing = [path for path in paths if not (ROOT / path).exists() and not (ROOT / "hypersparse" / path).exists()]
    assert missing == []
