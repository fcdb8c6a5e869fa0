"""The pinned requirements of a release."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

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
