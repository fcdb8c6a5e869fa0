"""What `import hypersparse` loads, and that imports point one way."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hypersparse

PACKAGE = Path(hypersparse.__file__).parent
# From the ground up. A part may import parts below it and itself; parts on one line do not know each other.
LAYERS = (
    {"errors", "plurals", "runtime"},
    {"distributed", "extras", "own_code", "pages", "regular_file"},
    {"options", "paper", "sparsity"},
    {"methods"},
    {"exact_zeros", "gradient_hooks", "learning_rate", "loop_errors", "penalty_gradient", "techniques"},
    {"attach_checks", "plan_state", "step_hooks"},
    {"plan_epochs"},
    {"sparsifier"},
    {"__init__"},
    {"recipe", "models", "data"},
    {"storage"},
    {"training"},
    {"runs"},
    {"analysis", "export"},
    {"zoo"},
    {"integrations", "serve"},
    {"cli"},
    {"__main__"},
)
RANKS = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from walk(child)


def imported_parts(tree: ast.AST) -> Iterator[str]:
    """The parts of the package that a file imports, at its top or inside functions."""
    parts = {path.stem for path in PACKAGE.iterdir()}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for module in modules:
            package, _, rest = module.partition(".")
            if package == "hypersparse":
                part = rest.split(".")[0]
                yield part if part in parts else "__init__"


def loaded_by(statement: str) -> set[str]:
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(done.stdout))


def test_import_loads_torch_numpy_and_pydantic_and_nothing_else_that_is_heavy() -> None:
    loaded = loaded_by("import hypersparse")
    assert {"torch", "numpy", "pydantic"} <= loaded
    heavy = {"typer", "rich", "pandas", "matplotlib", "sklearn", "PIL", "safetensors", "scipy", "torchvision"}
    assert not heavy & loaded
    assert not {
        name
        for name in loaded
        if name.startswith(("hypersparse.training", "hypersparse.cli", "hypersparse.export", "hypersparse.zoo"))
    }


def test_training_on_digits_loads_nothing_that_only_figures_need() -> None:
    loaded = loaded_by("import hypersparse.cli.train, hypersparse.data; hypersparse.data.load('digits')")
    assert "hypersparse.analysis.report.page" in loaded
    assert not {"pandas", "matplotlib", "scipy", "sklearn"} & loaded


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_one_way(file: Path) -> None:
    own = part_of(file)
    assert own in RANKS, f"give `{own}` a place in LAYERS"
    for part in imported_parts(ast.parse(file.read_text())):
        assert part in RANKS, f"give `{part}` a place in LAYERS"
        assert part == own or RANKS[part] < RANKS[own], f"{own} imports {part}, which is not below it"


def test_the_test_sees_imports() -> None:
    source = "import hypersparse.cli.main\ndef f():\n    from hypersparse import methods, ART\n    import json\n"
    source += "if TYPE_CHECKING:\n    from hypersparse import data\n"
    assert list(imported_parts(ast.parse(source))) == ["cli", "methods", "__init__"]


def test_names_that_are_imported_later_are_the_modules_own() -> None:
    from hypersparse import Machine, Recipe, save_sparse, train, zoo
    from hypersparse.export import sparse_file
    from hypersparse.training import loop, machine

    assert (train, Machine, save_sparse) == (loop.train, machine.Machine, sparse_file.save_sparse)
    assert Recipe().method == hypersparse.ART()
    assert zoo.__name__ == "hypersparse.zoo"
    assert set(hypersparse.__all__) <= set(dir(hypersparse))
    with pytest.raises(AttributeError, match="has no attribute `trian`"):
        _ = hypersparse.trian


def test_the_public_names_are_explicit_and_sorted() -> None:
    assert hypersparse.__all__ == sorted(hypersparse.__all__, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(hypersparse, name) for name in hypersparse.__all__)
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    ours = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).startswith("hypersparse")
    ]
    imported = {alias.name for node in ours for alias in node.names}
    assert imported | set(hypersparse._LATER) == set(hypersparse.__all__)


def test_the_public_names_are_the_documented_ones() -> None:
    page = (PACKAGE.parent / "docs" / "api.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert sorted(documented) == sorted(hypersparse.__all__)
    for name in documented:
        assert getattr(hypersparse, name).__doc__, f"{name} needs a docstring"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_the_command_line_alone_reads_the_environment(file: Path) -> None:
    tree = ast.parse(file.read_text())
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}]
    assert part_of(file) == "cli" or not read
