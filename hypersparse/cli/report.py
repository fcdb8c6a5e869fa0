"""`hypersparse report`: stored runs as one HTML page."""

import webbrowser
from collections.abc import Iterable
from pathlib import Path

import typer

from hypersparse.analysis.report.gather import Gathered
from hypersparse.analysis.report.page import write
from hypersparse.cli.console import Console
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import RunError
from hypersparse.plurals import how_many
from hypersparse.runs.experiment import Experiment, folders_of
from hypersparse.runs.pack import REPORT
from hypersparse.runs.store import RunStore, find_all
from hypersparse.storage.run_folder import RunFolder


def report(
    runs: list[str] | None = typer.Argument(
        None, help="Runs, folders of runs, or experiments such as experiments/digits.toml; all runs by default."
    ),
    out: Path = typer.Option(Path(REPORT), "--out", "-o", dir_okay=False, help="The page."),
    runs_dir: RunsDir = Path("runs"),
    results: Path = typer.Option(Path("results"), help="Folder of finished runs without weights, for experiments."),
    title: str | None = typer.Option(None, help="Title of the page."),
    browser: bool = typer.Option(False, "--open", help="Open the page in a browser."),
) -> None:
    """Write stored runs as one HTML page with tables and charts. It needs no network and no weights."""
    named, store = runs or [], RunStore(runs_dir)
    experiments = [Experiment.read(Path(name)) for name in named if name.endswith(".toml")]
    folders = find_all([name for name in named if not name.endswith(".toml")], store)
    if not named:
        folders = [run.path for run in store.runs()]
        if not folders:
            raise RunError(f"There are no runs in {store.root} yet. `hypersparse train` makes one.")
    there = [path for each in experiments for path in folders_of(each, (store, RunStore(results)))]
    missing = sum(len(experiment.runs) for experiment in experiments) - len(there)
    if missing and not (there or folders):
        raise RunError(f"The experiment has {how_many(missing, 'run')}, and none is in {store.root} or {results}.")
    title = title or (experiments[0].title if len(experiments) == 1 and not folders else None)
    found = write(out, [*map(RunFolder, dict.fromkeys([*folders, *there]))], title=title, missing=missing)
    _print_summary(found, out, missing)
    if browser:
        open_page(Console(), out)


def write_report(console: Console, path: Path, folders: Iterable[Path]) -> bool:
    """Write the report of runs that were just trained; on failure print a message, as the runs are stored."""
    try:
        write(path, [RunFolder(folder) for folder in folders if (folder / "recipe.toml").exists()])
    except Exception as error:  # any error: it must not look as if the training had failed
        console.say(str(error), label="no report:", style="yellow")
        return False
    return True


def open_page(console: Console, path: Path) -> None:
    """Open a page in the user's browser, or say where it is if there is none."""
    address = path.resolve().as_uri()
    console.say(address if webbrowser.open(address) else f"No browser was found; the page is {address}")


def _print_summary(found: Gathered, out: Path, missing: int) -> None:
    errors = Console(stderr=True)
    for name, problem in found.problems:
        errors.say(f"{name}: {problem}", label="left out:", style="yellow")
    unfinished = sum(page.row.status != "finished" for page in found.pages)
    words = [how_many(len(found.pages), "run")]
    words += [f"{unfinished} of them not finished"] if unfinished else []
    words += [f"{missing} of the experiment not there yet"] if missing else []
    Console().say(f"{out}: {', '.join(words)}; {out.stat().st_size / 1e6:.1f} MB")
