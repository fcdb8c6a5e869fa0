"""`hypersparse analyze positions` and `map`: which training images are learnt first."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from hypersparse.analysis.positions_figure import class_study, study
from hypersparse.analysis.samples import Samples, samples_of
from hypersparse.analysis.stored import Stored, with_records
from hypersparse.analysis.style import write
from hypersparse.cli.analyze import Names, Out, as_table, find
from hypersparse.cli.choices import DataDir, RunsDir, data_folders
from hypersparse.cli.display import load_data
from hypersparse.data import cifar_n
from hypersparse.data.dataset import Dataset

Human = Annotated[
    Path | None,
    typer.Option("--human", help="CIFAR-N's labels, as an .npz or the original .pt file: how hard images are."),
]


def positions(
    runs: Names = None,
    human: Human = None,
    data_dir: DataDir = None,
    runs_dir: RunsDir = Path("runs"),
    out: Out = Path("figures"),
) -> None:
    """Which classes, and which images, are learnt first (table 3 of the paper)."""
    stored = with_records(find(runs, runs_dir))
    _, samples = bring(stored, human, data_dir)
    found, accuracies = study(stored, samples), class_study(stored, samples)
    console = Console(highlight=False)
    console.print(as_table(found.tables["positions-classes"].round(3)))
    console.print(as_table(turned(found.tables["positions-agreement"].round(3))))
    for path in (*write(out, found), *write(out, accuracies)):
        console.print(str(path), style="dim", markup=False, soft_wrap=True)


def turned(facts: pd.DataFrame) -> pd.DataFrame:
    """Facts down and levels across, since there are few levels and many facts."""
    across = facts.dropna(axis="columns", how="all").set_index("sparsity").T.rename_axis("sparsity").reset_index()
    return across.assign(sparsity=across["sparsity"].str.replace("_", " "))


def bring(runs: Sequence[Stored], human: Path | None, data_dir: Path | None) -> tuple[Dataset, Samples]:
    """The data set of runs and the images they were trained on."""
    labels = cifar_n.read(human) if human else None  # first, as data may take a while
    dataset = load_data(runs[0].recipe, data_folders(data_dir), quiet=not Console(stderr=True).is_terminal)
    return dataset, samples_of(runs, dataset, labels)
