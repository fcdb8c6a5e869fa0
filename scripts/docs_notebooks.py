"""Hook of mkdocs: a page for each notebook of `docs/`, with the outputs that are stored in it.

Run the cells again and store what they print:

    jupyter execute --inplace docs/tutorial.ipynb
"""

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hypersparse import zoo
from hypersparse.export.sparse_file import load_graph
from hypersparse.export.web.page import make_page

Cell = Mapping[str, Any]
SHOWN = "digits-resnet8-0.98"  # the network of the page that the tutorial opens: the same recipe and seed


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, their pictures and the web page that the tutorial writes."""
    for path in sorted(Path(config.docs_dir).glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        files.append(File.generated(config, f"{path.stem}.md", content=page_of(path.stem, cells)))
        for name, content in pictures_of(path.stem, cells):
            files.append(File.generated(config, name, content=content))
    page = make_page(load_graph(zoo.path_of(SHOWN)), SHOWN)
    files.append(File.generated(config, "digits.html", content=page))
    return files


def page_of(name: str, cells: list[Cell]) -> str:
    """The notebook as Markdown."""
    parts = ["".join(cells[0]["source"]), f'<a href="{name}.ipynb" download>Download the notebook</a>']
    for number, cell in enumerate(cells[1:], start=1):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        magic, _, command = source.partition("\n")
        parts.append(_fenced("bash", command) if magic == "%%bash" else _fenced("python", source))
        printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        parts += [_fenced("text", printed)] if printed else []
        parts += [_shown(output, f"{name}-{number}-{place}.png") for place, output in enumerate(cell["outputs"])]
    return "\n\n".join(parts) + "\n"


def pictures_of(name: str, cells: list[Cell]) -> Iterator[tuple[str, bytes]]:
    """Name and content of every picture that a cell has drawn."""
    for number, cell in enumerate(cells):
        for place, output in enumerate(cell.get("outputs", ())):
            if picture := output.get("data", {}).get("image/png"):
                yield f"{name}-{number}-{place}.png", base64.b64decode(picture)


def _shown(output: Cell, picture: str) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        return f"![Figure drawn by the cell above]({picture})"
    if "text/html" in data:
        frame = "".join(line.strip() + "\n" for line in data["text/html"] if line.strip())
        return f"{frame}\nHere with `{SHOWN}` of the [zoo](zoo.md), trained by the same recipe with the same seed."
    return _fenced("text", "".join(data["text/plain"])) if data else ""


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
