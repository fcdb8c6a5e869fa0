"""Own code is imported where the user names it, and nowhere else."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hypersparse
from hypersparse import methods, models, own_code
from hypersparse.errors import OptionError
from hypersparse.recipe import ModelOptions, Recipe, resolve
from hypersparse.training.network import build_network

PACKAGE = Path(hypersparse.__file__).parent
IMPORTERS = {  # every file that imports by a name that is not written in it, and where the name comes from
    "__init__.py": "a table in the file",
    "own_code.py": "names that the caller allowed",
    "cli/registry.py": "a table in the file",
    "extras.py": "names in the package's own calls",
    "methods/registry.py": "files of the package",
    "training/fused/trace.py": "source that torch.fx has written, as its own modules run it",
}
FILE = """
from pathlib import Path
from torch import nn
from hypersparse import ART
Path("imported").touch()
there = ART()
wide = lambda: None

def net(classes):
    return nn.Linear(4, classes)

class Mine(ART):
    pass
"""


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that appears once `their_code` in the current folder is imported."""
    (tmp_path / "their_code.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "imported"
    sys.modules.pop("their_code", None)


def test_a_name_alone_imports_nothing(imported: Path) -> None:
    with pytest.raises(OptionError, match=r"model `their_code:net` is code from outside.*was not imported.*trust-code"):
        models.build("their_code:net", shape=(4,), classes=2)
    with pytest.raises(OptionError, match="method `their_code:Mine` is code from outside"):
        methods.find("their_code:Mine", own_code=["their_code:Other"])
    for table in ("model", "method"):
        with pytest.raises(OptionError, match="was not imported"):
            resolve({table: {"name": "their_code:Mine"}})
    with pytest.raises(OptionError, match="was not imported"):
        build_network(Recipe(model=ModelOptions(name="their_code:net")), shape=(4,), classes=2)
    assert not imported.exists()


def test_permitted_names_are_imported(imported: Path) -> None:
    tables = {"model": {"name": "their_code:net"}, "method": {"name": "their_code:Mine", "sparsity": 0.9}}
    recipe = resolve(tables, own_code=["their_code:net", "their_code:Mine", "their_code:more"])
    assert recipe.own_code == {"their_code:net", "their_code:Mine"}
    assert build_network(recipe, shape=(4,), classes=3).out_features == 3
    assert imported.exists()


def test_a_recipe_passes_permitted_names_to_processes(imported: Path) -> None:
    kind = methods.find("their_code:Mine", own_code=["their_code:Mine"])
    recipe = Recipe(method=kind(), model=ModelOptions(name="their_code:net"), own_code=frozenset({"their_code:net"}))
    assert recipe.imported == {"their_code:net", "their_code:Mine"}
    again = Recipe.from_toml(recipe.to_toml(), own_code=recipe.imported)
    assert (type(again.method), again.key) == (kind, recipe.key)


def test_a_stored_recipe_is_read_without_importing(imported: Path) -> None:
    tables = {"model": {"name": "their_code:net"}, "method": {"name": "their_code:Mine", "sparsity": 0.9, "force": 2}}
    recipe = Recipe.from_mapping(tables, stored=True)
    assert recipe.method.label() == "Mine"
    assert recipe.to_mapping()["method"] == tables["method"]
    assert Recipe.from_toml(recipe.to_toml(), stored=True) == recipe
    assert recipe.own_code == recipe.imported == frozenset()
    with pytest.raises(OptionError, match="was not imported"):
        recipe.plan()
    with pytest.raises(OptionError, match="was not imported"):
        build_network(recipe, shape=(4,), classes=2)
    assert not imported.exists()


@pytest.mark.parametrize("stored", [True, False])
def test_a_file_cannot_permit_imports(stored: bool) -> None:
    with pytest.raises(OptionError, match="no part of a recipe `own_code`"):
        Recipe.from_toml('own_code = ["os:system"]', stored=stored)


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("os:system", "belongs to Python itself"),
        ("os.path:join", "belongs to Python itself"),
        ("their_code:Path", "is defined in pathlib"),
        ("their_code:ART", r"is defined in hypersparse\.methods\.art"),
        ("their_code:there", "Known: Mine, net"),
        ("their_code:missing", "Known: Mine, net"),
        ("no_such_code:net", "cannot be imported: No module named"),
        ("../payload:net", "without slashes"),
        ("a:b:c", "without slashes"),
    ],
)
def test_own_code_is_a_class_or_function_defined_in_its_file(name: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        own_code.load(name, kind="model", own_code=[name])


def test_no_other_module_imports_by_name() -> None:
    calls = ("import_module", "__import__", "exec_module", "run_path", "run_module", "exec", "eval", "resolve_name")
    found = set()
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                literal = node.args and isinstance(node.args[0], ast.Constant)
                if name in calls and node.args and not literal:
                    found.add(file.relative_to(PACKAGE).as_posix())
    assert found == set(IMPORTERS)
