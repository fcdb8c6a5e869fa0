"""`hypersparse report`: stored runs as one HTML page."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from hypersparse.analysis.report.gather import Gathered
from hypersparse.analysis.report.page import write
from hypersparse.cli.console import Console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import RunError
from hypersparse.runs.experiment import Experiment, folders_of
from hypersparse.runs.pack import REPORT
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.run_folder import RunFolder

WithReport = Annotated[
    bool, typer.Option("--report/--no-report", help=f"Write {REPORT}, a page with tables and charts.")
]


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Runs, folders of runs, or experiments such as experiments/digits.toml; all runs without."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The page.")] = Path(REPORT),
    runs_dir: RunsDir = Path("runs"),
    results: Annotated[
        Path, typer.Option("--results", help="Where an experiment's finished runs lie too, without their weights.")
    ] = Path("results"),
    title: Annotated[str | None, typer.Option("--title", help="Of the page.")] = None,
) -> None:
    """Write stored runs as one HTML page with tables and charts. It needs no network and no weights."""
    store = RunStore(runs_dir)
    experiments = [Experiment.read(Path(name)) for name in runs or () if name.endswith(".toml")]
    folders = find_all([name for name in runs or () if not name.endswith(".toml")], store)
    if not runs:
        folders = [run.path for run in store.runs()]
        if not folders:
            raise RunError(f"There are no runs in {runs_dir} yet. `hypersparse train` makes one.")
    there = [path for experiment in experiments for path in folders_of(experiment, (store, RunStore(results)))]
    missing = sum(len(experiment.runs) for experiment in experiments) - len(there)
    if missing and not (there or folders):
        raise RunError(f"None of the {missing} runs of the experiment is in {runs_dir} or {results}.")
    named = title or (experiments[0].title if len(experiments) == 1 and not folders else None)
    found = write(out, _unique([*folders, *there]), title=named, missing=missing)
    _say(found, out, missing)


def write_report(console: Console, path: Path, folders: Iterable[Path]) -> bool:
    """Write the report of runs that were just trained; if that fails, say so: the runs are stored."""
    try:
        write(path, [RunFolder(folder) for folder in folders if (folder / "recipe.toml").exists()])
    except Exception as error:  # whatever it is, it must not look as if the training had failed
        console.print(f"[yellow]no report:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        return False
    return True


def _unique(folders: Sequence[Path]) -> list[RunFolder]:
    return [RunFolder(folder) for folder in dict.fromkeys(folders)]


def _say(found: Gathered, out: Path, missing: int) -> None:
    errors = Console(stderr=True, soft_wrap=True)
    for name, problem in found.problems:
        errors.print(f"[yellow]left out:[/] {escape(name)}: {escape(problem)}", highlight=False)
    unfinished = sum(page.row.status != "finished" for page in found.pages)
    words = [f"{len(found.pages)} {'run' if len(found.pages) == 1 else 'runs'}"]
    words += [f"{unfinished} of them not finished"] if unfinished else []
    words += [f"{missing} of the experiment not there yet"] if missing else []
    size = out.stat().st_size / 1e6
    Console(soft_wrap=True).print(f"{out}: {', '.join(words)}; {size:.1f} MB", markup=False, highlight=False)
