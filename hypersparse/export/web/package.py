"""The npm package of the runtime: ES modules, types and a page of instructions."""

import json
from importlib.resources import files
from pathlib import Path

from hypersparse import __version__
from hypersparse.export.web.modules import modules
from hypersparse.storage.files import write_text

NAME = "hypersparse-web"


def write_package(folder: str | Path) -> Path:
    """Write `hypersparse-web` into a folder, ready for `npm pack`; returns the package's folder."""
    package = Path(folder) / NAME
    (package / "dist").mkdir(parents=True, exist_ok=True)
    for name, text in modules().items():
        write_text(package / "dist" / f"{name}.js", text)
    sources = files(__package__) / "npm"
    write_text(package / "dist" / "index.d.ts", (sources / "index.d.ts").read_text(encoding="utf-8"))
    write_text(package / "README.md", (sources / "README.md").read_text(encoding="utf-8"))
    about = json.loads((sources / "package.json").read_text(encoding="utf-8"))
    write_text(package / "package.json", json.dumps({**about, "version": __version__}, indent=2) + "\n")
    return package
