"""No reader of a stranger's file imports, compiles or starts anything. A reader that is missing here is noticed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import hypersparse
from tests.hostile.readers import OPENS, READERS

ROOT = Path(hypersparse.__file__).parents[1]
# What opens a file or makes something of its content: by name, of a function or of anything's method.
READING = {
    *("open", "read_text", "read_bytes", "open_regular", "open_image", "CDLL", "urlopen", "memmap"),
    *("safe_open", "ZipFile", "is_zipfile", "from_pretrained", "read_csv", "fromfile", "frombuffer", "load_file"),
    *("genfromtxt", "loadtxt", "read_parquet", "read_pickle", "read_json", "safe_load", "literal_eval"),
    *("memory_map", "open_stream", "ParquetFile", "read_schema"),
}
LOADING = {"np", "numpy", "torch", "json", "tomllib", "pickle", "yaml", "joblib", "marshal", "onnx", "cloudpickle"}
NOT_FILES = {("webbrowser", "open")}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """What each reader did with hostile files."""
    command = [sys.executable, "-P", "-m", "tests.hostile", str(tmp_path_factory.mktemp("hostile"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    made: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_reader_runs_nothing_of_a_file(name: str, found: dict[str, list[str]]) -> None:
    assert found[name] == []


@pytest.mark.slow
def test_the_hook_hears_what_no_reader_may_do(found: dict[str, list[str]]) -> None:
    heard = {problem.partition(":")[0] for problem in found["bad"]}
    assert {"import", "exec", "compile", "os.system", "a program was started"} <= heard


def test_every_file_that_reads_has_its_reader() -> None:
    reading = set()
    for package in ("hypersparse", "hypersparse_runtime"):
        for file in sorted((ROOT / package).rglob("*.py")):
            if any(_reads(node) for node in ast.walk(ast.parse(file.read_text()))):
                reading.add(file.relative_to(ROOT).as_posix())
    assert sorted(reading) == sorted(OPENS)
    assert {reader for reader in OPENS.values() if not reader.startswith("* ")} <= READERS.keys()


def _reads(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    owner = getattr(getattr(node.func, "value", None), "id", "")
    return (owner, name) not in NOT_FILES and (name in READING or (owner in LOADING and name in ("load", "loads")))
