"""The version and the pinned requirements of a release."""

import json
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

import hypersparse

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
SCRIPT = ROOT / "scripts" / "pin_release.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def pinned() -> dict[str, str]:
    found = PINNED.findall((ROOT / "requirements" / "release.txt").read_text())
    return {name: version for name, version, hashes in found}


def test_a_release_pins_all_it_needs_but_pytorch(script: dict[str, Any]) -> None:
    assert pinned().keys() == script["_needed"]()
    assert "torch" not in pinned()


def test_a_release_has_the_versions_that_were_tested(script: dict[str, Any]) -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    tested = {script["canonicalize_name"](name): version for name, version in (line.split("==") for line in lines)}
    assert pinned() == {name: tested[name] for name in pinned()}


def test_wheels_are_listed_for_both_machines_and_all_pythons(script: dict[str, Any]) -> None:
    tags, fits = set(script["_tags"]()), script["_fits"]
    names = [f"numpy-2.4.6-cp3{minor}-cp3{minor}-manylinux_2_{libc}_{machine}.whl"
             for minor in (11, 12, 13) for libc in (17, 28) for machine in ("x86_64", "aarch64")]  # fmt: skip
    assert all(fits(name, "2.4.6", tags) for name in [*names, "numpy-2.4.6-py3-none-any.whl"])
    others = ("cp310-cp310-manylinux_2_28_x86_64", "cp311-cp311-win_amd64", "cp313-cp313t-manylinux_2_28_x86_64")
    assert not any(fits(f"numpy-2.4.6-{other}.whl", "2.4.6", tags) for other in others)
    assert not fits(names[0], "2.4.5", tags)


def test_the_changelog_and_the_citation_have_the_version() -> None:
    version = re.escape(hypersparse.__version__)
    released = re.search(rf"^## \[{version}\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {version}$", citation, re.MULTILINE)
    assert f"\ndate-released: {released[1]}\n" in citation


def test_the_version_is_written_once() -> None:
    """Both projects read it from the package."""
    for project in (ROOT, ROOT / "packaging" / "runtime"):
        settings = tomllib.loads((project / "pyproject.toml").read_text())
        assert settings["project"]["dynamic"] == ["version"]
        assert (project / settings["tool"]["hatch"]["version"]["path"]).samefile(str(hypersparse.__file__))


def test_ci_builds_what_a_release_uploads() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert "    scripts/release" in lines
    assert "run: .ci/run" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


def test_ci_tests_every_python_that_the_package_names() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [kind.rpartition(" ")[2] for kind in settings["project"]["classifiers"] if "Python :: 3." in kind]
    tested = re.search(r"python: (\[.*\])", (ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert tested
    assert json.loads(tested[1]) == named


def test_both_projects_have_a_page_for_the_package_index() -> None:
    """`twine check --strict` refuses a wheel without one."""
    for project in (ROOT, ROOT / "packaging" / "runtime"):
        settings = tomllib.loads((project / "pyproject.toml").read_text())
        assert (project / settings["project"]["readme"]).read_text().startswith(f"# {settings['project']['name']}\n")
