"""Every code block of the README and the docs runs: Python in one namespace a page, bash line by line."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

import hypersparse
from benchmarks.__main__ import app as benchmarks
from hypersparse import PruningMethod, methods, zoo
from hypersparse.cli.main import app
from hypersparse.options import help_of
from reproduction.__main__ import app as reproduction
from tests.cli.commands import run

ROOT = Path(hypersparse.__file__).parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
README = (ROOT / "README.md").read_text()
WHOLE = re.MULTILINE | re.DOTALL
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", WHOLE)


def run_bash(line: str, folder: Path) -> str:
    """Let the shell make words of a line, and run that command here: starting Python for each took most of the time.

    Returns what it prints.
    """
    split = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], cwd=folder, capture_output=True, text=True, check=True
    )
    program, *arguments = split.stdout.rstrip("\0").split("\0")
    if program == "python":
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    else:
        assert program == "hypersparse", line
        done = run(*arguments, folder=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    assert {language for language, _ in blocks} <= {"python", "bash", "text", "toml", "diff"}
    names: dict[str, object] = {"__name__": page}
    for language, code in blocks:
        if language == "python":
            exec(compile(code, page, "exec"), names)
        elif language == "bash":
            for line in code.strip().splitlines():
                if not line.startswith("pip install"):  # those two are run by .ci/run
                    run_bash(line, tmp_path)


APPS = {"hypersparse": app, "python -m benchmarks": benchmarks, "python -m reproduction": reproduction}


def shown_commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Commands that need a GPU, other data, a person or hours, and are therefore in blocks of text."""
    for language, code in BLOCK.findall((ROOT / page).read_text()):
        for line in code.splitlines() if language == "text" else ():
            program = next((name for name in APPS if line.removeprefix("$ ").startswith(f"{name} ")), None)
            if program is not None:
                yield program, shlex.split(line.removeprefix("$ ").removeprefix(program), comments=True)


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_are_only_shown_have_the_options_that_there_are(page: str) -> None:
    for program, arguments in shown_commands(page):
        group: Any = typer.main.get_command(APPS[program])
        context = group.make_context(program, arguments)
        while hasattr(group, "resolve_command"):
            name, group, arguments = group.resolve_command(context, arguments)
            context = group.make_context(name, arguments, parent=context)


def test_the_page_of_the_runtime_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(zoo.path_of("digits-resnet8-0.98"), "model.hsp")
    ((_, code),) = BLOCK.findall((ROOT / "packaging" / "runtime" / "README.md").read_text())
    exec(compile(code, "packaging/runtime/README.md", "exec"), {})


@pytest.mark.parametrize("method", methods.names())
def test_every_method_has_a_page_with_all_its_options(method: str) -> None:
    page = (ROOT / "docs" / f"{method}.md").read_text()
    for name in help_of(methods.find(method)):
        assert f"| `{name}` |" in page


def anchors(page: Path) -> set[str]:
    """The fragments that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, fragment in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", (ROOT / page).read_text()):
            there = (ROOT / page).parent / target if target else ROOT / page
            assert there.exists(), f"{page}: {target}"
            assert not fragment or fragment in anchors(there), f"{page}: {target}#{fragment}"


def test_the_readme_lists_every_method_as_it_is() -> None:
    rows = re.findall(r"^\| \[`(\w+)`\].*?\| (\d+)(?: to (\d+))? \| .*? \| (yes|no) \|", README, re.MULTILINE)
    assert sorted(name for name, *_ in rows) == sorted(methods.names())
    for name, epochs, most, sharded in rows:
        method = methods.find(name)
        assert sharded == ("yes" if issubclass(method, PruningMethod) and method.sharded else "no")
        total = sum(phase.epochs for phase in method().plan(160))
        assert total == int(most or epochs), name


NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def numbers_of(line: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(line)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_readme_shows_what_its_six_lines_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of each; another machine rounds differently in training, and times are its own."""
    monkeypatch.chdir(tmp_path)
    ((commands, printed),) = re.findall(r"^```bash\n(hypersparse zoo.*?)^```\n\n```text\n(.*?)^```", README, WHOLE)
    assert len(commands.splitlines()) == len(printed.splitlines()) == 6
    for command, shown in zip(commands.splitlines(), printed.splitlines(), strict=True):
        wanted, given = NUMBER.sub("#", " ".join(shown.split())), run_bash(command, tmp_path)
        (line,) = [line for line in given.splitlines() if NUMBER.sub("#", " ".join(line.split())) == wanted][-1:]
        if " ms " not in line:
            assert numbers_of(line) == pytest.approx(numbers_of(shown), rel=0.1), command


def test_the_badges_of_the_readme_are_true() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [kind.rpartition(" ")[2] for kind in project["classifiers"] if "Python :: 3." in kind]
    assert f"[Python {named[0]} to {named[-1]}]" in README
    assert f"badge/python-{named[0]}_to_{named[-1]}-" in README
    assert f"[Licence {project['license']}]" in README
    assert f"badge/licence-{project['license'].replace('-', '--')}-" in README


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("page", ["own-loop", "steps", "layers", "migration", "lightning", "transformers"])
def test_a_guide_shows_the_few_lines_of_a_script_that_change(page: str) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())
    changes = [code.splitlines() for language, code in blocks if language == "diff"]
    assert changes
    for lines in changes:
        added, removed = (sum(line.startswith(f"{sign} ") for line in lines) for sign in "+-")
        assert 0 < added <= 3
        assert removed <= 3
