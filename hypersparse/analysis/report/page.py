"""`write`: runs as one HTML file that loads nothing from the network."""

import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypersparse import __version__
from hypersparse.analysis.report.averages import compare, group_of, name_variants
from hypersparse.analysis.report.gather import Gathered, RunPage, gather
from hypersparse.errors import RunError
from hypersparse.pages.template import asset, fill, script_of, source_hash, to_json
from hypersparse.plurals import how_many
from hypersparse.storage.files import write_atomically
from hypersparse.storage.run_folder import RunFolder

SHARED_SCRIPTS = ("elements", "theme")
SCRIPTS = (  # in the order they are needed
    "formats",
    "chart_style",
    "interactive_chart",
    "tables",
    "overview",
    "comparison_charts",
    "runs_list",
    "run_page",
    "run_charts",
    "main",
)


def write(path: Path, runs: Sequence[RunFolder], *, title: str | None = None, missing: int = 0) -> Gathered:
    """Write the report of these runs; `missing` is the number of requested runs without a folder."""
    found = gather(runs)
    if not found.pages:
        sentences = "; ".join(f"{name}: {problem}" for name, problem in found.problems[:3])
        raise RunError(f"There is no run to report on{f' ({sentences})' if sentences else ''}.")
    page = render(found, title=title, missing=missing).encode("utf-8", "replace")  # names of files may be no text
    write_atomically(path, lambda beside: beside.write_bytes(page))
    return found


def render(found: Gathered, *, title: str | None = None, missing: int = 0) -> str:
    """The page as text."""
    shown = title or _title(found.pages)
    names = name_variants(found.pages)
    networks: list[dict[str, Any]] = []
    content = {
        "title": shown,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "missing": missing,
        "problems": [{"run": name, "problem": problem} for name, problem in found.problems],
        "runs": [
            {**_with_network(page.content, networks), "variant": names[page.id], "group": group_of(page)}
            for page in found.pages
        ],
        "networks": networks,
        "comparison": compare(found.pages, names) if len(found.pages) > 1 else [],
    }
    shared = (asset(f"{name}.js") for name in SHARED_SCRIPTS)
    script = script_of(*shared, *(asset(f"{name}.js", __package__) for name in SCRIPTS))
    library = asset("vendor/echarts.min.js", __package__)
    parts = {
        "TITLE": html.escape(shown),
        "POLICY": f"script-src {source_hash(library)} {source_hash(script)}",
        "STYLE": asset("base.css") + asset("report.css", __package__),
        "DATA": to_json(content),
        "LIBRARY": library,
        "SCRIPT": script,
    }
    return fill(asset("report.html", __package__), parts)


def _with_network(run: Mapping[str, Any], networks: list[dict[str, Any]]) -> dict[str, Any]:
    """Store names and sizes of layers once for all runs of a network."""
    layers = run["layers"]
    network = {"names": layers["names"], "totals": layers["totals"]}
    if network not in networks:
        networks.append(network)
    return {**run, "layers": {"network": networks.index(network), "kept": layers["kept"]}}


def _title(pages: Sequence[RunPage]) -> str:
    if len(pages) == 1:
        return f"{pages[0].row.label}, seed {pages[0].row.seed}"
    subjects = list(dict.fromkeys(f"{page.row.data}, {page.row.model}" for page in pages))
    return f"{subjects[0] if len(subjects) == 1 else f'{len(subjects)} tasks'}: {how_many(len(pages), 'run')}"
