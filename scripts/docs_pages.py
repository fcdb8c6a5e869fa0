"""Hook of mkdocs: pages of the site that are written from code, and pages that stand outside `docs/`.

The command line's own help, the recipe's options and the errors are written when the site is built. So they cannot be
out of date. Links to files that the site does not have lose their link.
"""

import inspect
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import hypersparse
from hypersparse import errors, methods, models, recipe
from hypersparse.cli.main import app
from hypersparse.options import help_of

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "CODE_OF_CONDUCT.md")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
PYTHON_GROUPS = {  # heading -> what a public name must be; the first that fits takes it
    "Errors and warnings": lambda value: inspect.isclass(value) and issubclass(value, Exception),
    "Methods": lambda value: inspect.isclass(value) and issubclass(value, hypersparse.Method),
    "Functions": inspect.isfunction,
    "Classes": inspect.isclass,
    "Modules": inspect.ismodule,
}
READ_IN = ("Functions", "Classes", "Methods", "Modules", "Errors and warnings")  # order on the page


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all pages that are not in `docs/`."""
    pages = {
        "reference/python.md": python_reference(),
        "reference/command-line.md": command_line_reference(),
        "reference/recipe.md": recipe_reference(),
        "reference/errors.md": errors_reference(),
        "benchmarks/list.md": benchmarks_index(),
    }
    pages |= {name: (ROOT / name).read_text() for name in OUTSIDE if (ROOT / name).exists()}
    pages |= {f"benchmarks/{path.name}": path.read_text() for path in sorted((ROOT / "benchmarks").glob("*.md"))}
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at where the site has the page; where it has none, only the words stay."""
    known = {file.src_uri for file in files}
    parts = FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda match: _link(match, page.file.src_uri, known), part)
        for part in parts
    )


def _link(match: re.Match[str], page: str, known: set[str]) -> str:
    image, text, target, fragment = match.groups()
    here = posixpath.dirname(page)
    place = posixpath.normpath(posixpath.join(here, target))
    if place.endswith(".ipynb"):
        place = f"{place.removesuffix('.ipynb')}.md"
    for candidate in (place, place.removeprefix("../"), place.removeprefix("docs/")):
        if candidate in known:
            return f"{image}[{text}]({posixpath.relpath(candidate, here or '.')}{fragment})"
    return match[0] if image else text


def python_reference() -> str:
    """Every public name with its docstring, in groups."""
    left = {name: getattr(hypersparse, name) for name in sorted(hypersparse.__all__)}
    lines = [
        "# Python, from docstrings",
        "",
        "Every public name. [The Python interface](../api.md) is the overview.",
        "",
    ]
    sections = []
    for heading, fits in PYTHON_GROUPS.items():
        taken = {name: value for name, value in left.items() if fits(value)}
        left = {name: value for name, value in left.items() if name not in taken}
        sections.append((heading, [_path_of(name, value) for name, value in taken.items()]))
    if left:
        raise ValueError(f"PYTHON_GROUPS has no group for {', '.join(left)}.")
    sections.sort(key=lambda section: READ_IN.index(section[0]))
    for heading, paths in sections:
        lines += [f"## {heading}", "", *(f"::: {path}\n" for path in paths)]
    return "\n".join(lines)


def _path_of(name: str, value: Any) -> str:
    return value.__name__ if inspect.ismodule(value) else f"{value.__module__}.{value.__qualname__}"


def command_line_reference() -> str:
    """Every command with its options, from its help."""
    lines = ["# Command line", "", "Written from `hypersparse --help`.", ""]
    root = typer.main.get_command(app)
    for command, context in _commands(root, root.context_class(root, info_name="hypersparse")):
        lines += [f"## {context.command_path}", "", inspect.cleandoc(command.help or "").replace("\b", ""), ""]
        lines += [f"```text\n{command.get_usage(context)}\n```", ""]
        rows = [row for parameter in command.params if (row := parameter.get_help_record(context))]
        if rows:
            lines += ["| option | meaning |", "| --- | --- |"]
            lines += [f"| `{_cell(left)}` | {_cell(right).replace('<', '&lt;')} |" for left, right in rows]
            lines.append("")
    return "\n".join(lines)


def _commands(command: Any, context: Any) -> Iterator[tuple[Any, Any]]:
    yield command, context
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        _, child, _ = command.resolve_command(context, [name])
        yield from _commands(child, child.context_class(child, info_name=name, parent=context))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def recipe_reference() -> str:
    """The tables of a recipe file."""
    lines = [
        "# Recipe options",
        "",
        "A recipe is a TOML file: `hypersparse train --recipe FILE`, or `--set TABLE.OPTION=VALUE`.",
        "",
    ]
    tables: dict[str, type] = {"data": recipe.DataOptions, "model": recipe.ModelOptions}
    tables |= {"training": recipe.TrainingOptions, "ablation": recipe.Ablation}
    for name, kind in tables.items():
        lines += [f"## {name}", "", *_option_table(kind)]
    lines += ["## method", "", "`name` and the options of that method:", ""]
    for name in methods.names():
        lines += [f"### {name}", "", f"[The method's page](../{name}.md).", "", *_option_table(methods.find(name))]
    return "\n".join([*lines, "## Models", "", ", ".join(f"`{name}`" for name in models.names()), ""])


def _option_table(kind: Any) -> list[str]:
    fields = kind.__pydantic_fields__
    rows = [f"| `{name}` | `{fields[name].default!r}` | {_cell(text)} |" for name, text in help_of(kind).items()]
    return ["| option | default | meaning |", "| --- | --- | --- |", *rows, ""] if rows else ["No options.", ""]


def errors_reference() -> str:
    """The tree of errors, which stands in the module's docstring."""
    head, _, rest = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")
    tree, _, after = rest.partition("\n\n")
    block = "\n".join(line.removeprefix("    ") for line in tree.splitlines())
    last = "`from hypersparse import HypersparseError` catches all of them."
    return f"# Errors\n\n{head}\n\n```text\n{block}\n```\n\n{after}\n\n{last}\n"


def benchmarks_index() -> str:
    """The list of stored measurements, newest first."""
    lines = ["# Benchmarks", "", "Stored measurements. Each page names the machine, the day and the command.", ""]
    for path in sorted((ROOT / "benchmarks").glob("*.md"), reverse=True):
        title = path.read_text().partition("\n")[0].lstrip("# ")
        lines.append(f"- {path.name[:10]}: [{title}]({path.name})")
    return "\n".join(lines) + "\n"
