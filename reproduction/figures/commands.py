"""`python -m reproduction gradients`, `epochs` and `finetuning`."""

from pathlib import Path
from typing import Annotated

import typer

from hypersparse.analysis.finished_runs import with_records
from hypersparse.cli.analyze import Names, Out, drawing, find, show
from hypersparse.cli.recipe_options import RunsDir
from hypersparse.errors import OptionError
from reproduction.figures import epochs as mask_epochs
from reproduction.figures import finetuning
from reproduction.figures import gradients as curves


def gradients(
    runs: Names = None,
    runs_dir: RunsDir = Path("runs"),
    out: Out = Path("figures"),
    epochs: Annotated[
        str | None, typer.Option("--epochs", help="Regularized epochs to draw, such as 0,20,30,40; a few by default.")
    ] = None,
) -> None:
    """Magnitudes and penalty gradients over the sorted weights (figure 1 of the paper), a figure a run."""
    chosen = None if epochs is None else _numbers(epochs)
    found = find(runs, runs_dir)
    usable = with_records(found) if runs else curves.with_curves(found)  # a run that was named is never left out
    show((curves.analyze_run(run, chosen) for run in usable), out)


def _numbers(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise OptionError(f"`--epochs` expects whole numbers with commas, such as 0,20,30,40; got `{text}`.") from None


epochs = drawing(lambda runs: [mask_epochs.analyze(runs)])
gains = drawing(finetuning.analyze)
