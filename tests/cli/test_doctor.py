import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse import __version__
from hypersparse.integrations import installation
from hypersparse_runtime import kernel_library
from hypersparse_runtime.compile_kernel import KernelError
from tests.cli.commands import run

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def findings(folder: Path) -> dict[str, dict[str, str]]:
    return {row["part"]: row for row in json.loads(run("doctor", "--json", folder=folder).stdout)}


def test_versions_engines_and_the_kernel_are_listed(tmp_path: Path) -> None:
    found = findings(tmp_path)
    assert found["hypersparse"]["found"] == __version__
    assert found["engine eager"]["state"] == "ok"
    assert found["sparse runtime"]["found"] in ("plain", "avx2", "avx512", "neon")


def test_a_missing_extra_says_what_it_is_for_and_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_installed", lambda package: None if package == "onnx" else "1.0")
    found = findings(tmp_path)
    assert found["extra onnx"]["state"] == "missing"
    assert found["extra onnx"]["note"] == "hypersparse export -o model.onnx: pip install 'hypersparse[onnx]'"
    assert found["extra tensorboard"]["found"] == "tensorboard 1.0"


def test_a_kernel_that_cannot_be_built_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise KernelError("No C compiler was found.")

    monkeypatch.setattr(kernel_library, "load_kernel", broken)
    done = run("doctor", folder=tmp_path)
    assert done.returncode == 1
    assert "No C compiler was found." in done.stdout


def test_every_extra_of_the_package_has_a_line() -> None:
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(installation.EXTRAS) == set(extras) - {"test", "fuzz"}
    for name, (packages, _) in installation.EXTRAS.items():
        assert all(any(line.startswith(package) for line in extras[name]) for package in packages)


def test_help_names_the_command() -> None:
    from hypersparse.cli.main import app

    assert "doctor" in CliRunner().invoke(app, ["--help"]).stdout
