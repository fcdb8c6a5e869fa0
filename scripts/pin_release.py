#!/usr/bin/env python3
"""Write requirements/release.txt: the versions of constraints.txt that a release needs besides PyTorch, with hashes.

Run it where the package is installed and the index can be reached. Wheels for Linux on x86-64 and AArch64 are listed.
"""

import re
import tomllib
import urllib.request
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/simple"
PYTHONS = ((3, 11), (3, 12), (3, 13))
MACHINES = ("x86_64", "aarch64")
GLIBC = range(5, 29)  # manylinux_2_28 is the newest that is needed
BY_THE_USER = "torch"  # each build of it, for a CPU or a release of CUDA, has other hashes
HEADING = """\
# Written by scripts/pin_release.py: install PyTorch first, then
#     pip install --require-hashes -r requirements/release.txt
#     pip install --no-deps .
"""


def main() -> None:
    """Write the file."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    tags = set(_tags())
    blocks = [_pinned(name, pins[name], tags) for name in sorted(_needed())]
    (ROOT / "requirements" / "release.txt").write_text(HEADING + "".join(blocks), encoding="utf-8")


def _needed() -> set[str]:
    """The packages to install, with what they need in turn on Linux."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting, found = list(project["dependencies"]), {BY_THE_USER}
    while waiting:
        requirement = Requirement(waiting.pop())
        name = canonicalize_name(requirement.name)
        if name not in found and _is_wanted(requirement):
            found.add(name)
            waiting += requires(name) or []
    return found - {BY_THE_USER}


def _is_wanted(requirement: Requirement) -> bool:
    places = ({"python_version": f"{major}.{minor}", "extra": ""} for major, minor in PYTHONS)
    return requirement.marker is None or any(requirement.marker.evaluate(place) for place in places)


def _tags() -> Iterator[Tag]:
    for machine in MACHINES:
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC]
        for python in PYTHONS:
            yield from cpython_tags(python, platforms=platforms)
            yield from compatible_tags(python, platforms=platforms)


def _pinned(name: str, version: str, tags: set[Tag]) -> str:
    """A requirement with the hash of every wheel that fits."""
    with urllib.request.urlopen(f"{INDEX}/{name}/") as answer:
        files = re.findall(r'/([^/"#]+\.whl)#sha256=([0-9a-f]{64})', answer.read().decode())
    fitting = [digest for file, digest in files if _fits(file, version, tags)]
    if not fitting:
        raise SystemExit(f"{INDEX} has no wheel of {name} {version} for Linux.")
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in sorted(fitting))]) + "\n"


def _fits(file: str, version: str, tags: set[Tag]) -> bool:
    try:
        _, found, _, fits = parse_wheel_filename(unquote(file))
    except InvalidWheelFilename:  # of a release from before the names were settled
        return False
    return str(found) == version and not tags.isdisjoint(fits)


if __name__ == "__main__":
    main()
