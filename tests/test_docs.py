"""Every code block of the README and the docs runs: Python in one namespace a page, bash line by line."""

import re
import subprocess
from pathlib import Path

import pytest

import hypersparse
from hypersparse import PruningMethod, methods
from hypersparse.options import help_of
from tests.cli.commands import run

ROOT = Path(hypersparse.__file__).parents[1]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run_bash(line: str, folder: Path) -> None:
    """Let the shell make words of a line, and run that command here: starting Python for each took most of the time."""
    split = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], cwd=folder, capture_output=True, text=True, check=True
    )
    program, *arguments = split.stdout.rstrip("\0").split("\0")
    assert program == "hypersparse", line
    done = run(*arguments, folder=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


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
