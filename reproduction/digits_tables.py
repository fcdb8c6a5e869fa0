"""The tables of docs/comparison.md with techniques and with half of the epochs, from a row for every run."""

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from hypersparse.analysis.finished_runs import FinishedRun, completed_runs
from hypersparse.analysis.statistics import compare_paired, deviation
from hypersparse.analysis.tables import markdown_table
from hypersparse.errors import RunError
from hypersparse.runs.experiment import Experiment, Run
from hypersparse.runs.recipe_names import variant
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text

CHECKOUT = Path(__file__).parents[1]
PAGE, ROWS = Path("docs/comparison.md"), Path("docs/comparison")
TABLES = {"digits-techniques": "digits_techniques.toml", "digits-short": "digits_short.toml"}  # rows, experiment
BEGIN = "<!-- {}: begin, written by `python -m reproduction digits` -->"
END = "<!-- {}: end -->"
KEY = ["variant", "sparsity", "seed"]
FLOPS = ("training_flops", "training_flops_sparse")
TYPES = {**dict.fromkeys(FLOPS, "str"), "regularized_epochs": "Int64"}  # written as they were read
PRESET = "art hypersparse"
HEADER = (
    "sparsity", "variant", "seeds", "last epoch", "difference", "95 % interval", "loss", "epochs", "FLOPs, relative",
)  # fmt: skip


def digits(
    runs_dir: Annotated[Path | None, typer.Option(help="Folder of finished runs to add to the rows.")] = None,
    root: Annotated[Path, typer.Option(help="Folder with experiments/ and docs/.")] = CHECKOUT,
) -> None:
    """Rewrite the tables of techniques and of half the epochs on digits, from their CSV files and finished runs."""
    known = pd.concat([pd.read_csv(root / ROWS / f"{name}.csv", dtype=TYPES) for name in TABLES], ignore_index=True)
    if runs_dir is not None:
        if not runs_dir.is_dir():
            raise RunError(f"There is no folder {runs_dir}; `--runs-dir` names one with finished runs.")
        new = pd.DataFrame([row(run) for run in completed_runs(RunStore(runs_dir))])
        known = pd.concat([new, known], ignore_index=True)  # the new ones count
    known = known.drop_duplicates(KEY)
    page = (root / PAGE).read_text()
    for name, experiment in TABLES.items():
        rows = rows_of(Experiment.read(root / "experiments" / experiment).runs, known)
        rows.to_csv(root / ROWS / f"{name}.csv", index=False)
        page = replaced(page, name, markdown_table(HEADER, cells(rows)))
    write_text(root / PAGE, page)


def row(run: FinishedRun) -> dict[str, Any]:
    """A finished run as a row."""
    assert run.scores is not None, "a completed run has scores"
    flops = {name: f"{run.result[name]:.3e}" for name in FLOPS}  # type: ignore[literal-required]
    return {
        "variant": run.variant,
        "sparsity": run.settings["sparsity"],
        "seed": run.seed,
        "last": round(100 * run.scores["last"], 4),
        "best": round(100 * run.scores["best"], 4),
        "loss": round(run.log[-1]["loss"], 5),
        "regularized_epochs": run.result["epochs"].get("regularize", 0),
        "epochs": run.epochs,
        **flops,
    }


def rows_of(runs: tuple[Run, ...], known: pd.DataFrame) -> pd.DataFrame:
    """The known rows of these runs, in their order."""
    wanted = pd.DataFrame(
        [(variant(run.recipe.to_mapping()), run.recipe.to_mapping()["method"]["sparsity"], run.seed) for run in runs],
        columns=KEY,
    )
    return wanted.merge(known, on=KEY, how="inner")


def cells(rows: pd.DataFrame) -> list[list[str]]:
    """A row of text for each variant and sparsity, compared with the preset's runs of the same seeds."""
    return [
        summary(own, rows[(rows["variant"] == PRESET) & (rows["sparsity"] == own["sparsity"].iloc[0])])
        for _, own in rows.groupby(["sparsity", "variant"], sort=False)
    ]


def summary(own: pd.DataFrame, preset: pd.DataFrame) -> list[str]:
    """The text of one variant at one sparsity."""
    ours, theirs = (dict(zip(each["seed"], each["last"], strict=True)) for each in (own, preset))
    name = own["variant"].iloc[0]
    found = None if name == PRESET else compare_paired(ours, theirs)
    flops = own["training_flops"].astype(float).mean() / preset["training_flops"].astype(float).mean()
    loss, spread = own["loss"].mean(), deviation(list(own["last"]))
    return [
        f"{100 * own['sparsity'].iloc[0]:g} %",
        "preset" if name == PRESET else str(name).removeprefix(f"{PRESET}, "),
        str(len(own)),
        f"{own['last'].mean():.2f}" + (f" ± {spread:.2f}" if spread is not None else ""),
        f"{found.difference:+.2f}" if found else "",
        f"{found.low:+.2f} to {found.high:+.2f}" if found and found.low is not None else "",
        "" if pd.isna(loss) else f"{loss:.3f}",  # of runs that stored only their accuracies
        f"{own['epochs'].mean():.1f}",
        "" if pd.isna(flops) else f"{flops:.2f}",
    ]


def replaced(page: str, name: str, lines: list[str]) -> str:
    """The page with these lines between the two marks of a table."""
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise RunError(f"{PAGE} has no place for the table {name}; add these two lines: `{begin}` and `{end}`.")
    return before + "\n".join([begin, "", *lines, "", end]) + after
