"""`reproduction` belongs to the repository: the package neither contains nor imports it."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hypersparse", "hypersparse_runtime")


def test_neither_wheel_nor_sdist_contains_it() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert tuple(targets["wheel"]["packages"]) == PACKAGES
    assert "reproduction" not in targets["sdist"]["include"]
    assert "tests/reproduction" in targets["sdist"]["exclude"]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_does_not_import_it(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.partition(".")[0] == "reproduction" for name in names), file
