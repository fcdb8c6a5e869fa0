"""`reproduction` and `benchmarks` belong to the repository: the package neither contains nor imports them."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hypersparse", "hypersparse_runtime")
OUTSIDE = {"reproduction", "benchmarks"}


def test_neither_wheel_nor_sdist_contains_them() -> None:
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert tuple(targets["wheel"]["packages"]) == PACKAGES
    assert not OUTSIDE & {*targets["sdist"]["include"]}
    assert {f"tests/{name}" for name in OUTSIDE} <= {*targets["sdist"]["exclude"]}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_does_not_import_them(package: str) -> None:
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not OUTSIDE & {name.partition(".")[0] for name in names}, file
