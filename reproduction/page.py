"""Builds docs/reproduction.md with its figures, and the README's table, from the runs in results/."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hypersparse.analysis import (
    allocation,
    epochs,
    finetuning,
    gradients,
    intersection,
    masks,
    paper,
    tradeoffs,
)
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, load
from hypersparse.analysis.plotting import AnalysisResult, write_figure, write_tables
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text
from hypersparse.storage.record import read_record
from reproduction import goals, positions, readme
from reproduction.figure_tables import finetuning_table, layers_table
from reproduction.notes import INTRODUCTION, read_notes
from reproduction.planned import variants_and_planned
from reproduction.tables import cell_table, counted, markdown

COMMAND = "python -m reproduction"
NOTES = Path(__file__).parent / "NOTES.md"  # hand-written text under the page's headings
PAGE = Path("docs/reproduction.md")
RUNS = "Runs"


@dataclass(frozen=True, kw_only=True)
class TableSection:
    """A heading with a table of the paper's cells beside ours."""

    heading: str
    make: Callable[[RunStore], pd.DataFrame]
    text: str
    covered: str | None = None  # the column that stands for a cell in the list of every cell
    summary: Callable[[pd.DataFrame], list[str]] | None = None


@dataclass(frozen=True, kw_only=True)
class FigureSection:
    """A heading with figures of the stored runs."""

    heading: str
    draw: Callable[[Sequence[FinishedRun]], AnalysisResult | list[AnalysisResult]]
    text: str = ""
    table_below: Callable[[AnalysisResult], list[str]] | None = None


TABLES = (
    TableSection(
        heading="Accuracy",
        make=paper.accuracy,
        covered="best",
        text="Accuracy in per cent. `best` is picked on the test set, as by the paper's code; `last` is the last "
        "epoch. Verdicts: *reproduced* where our mean and the paper's differ by at most twice the standard error of "
        "the difference, otherwise *better* or *differs* (worse).",
    ),
    TableSection(
        heading="Epochs",
        make=paper.regularized_epochs,
        covered="epochs",
        text="Regularized epochs to the final mask; the same verdicts, and fewer epochs are better.",
    ),
    TableSection(
        heading="Intersection",
        make=intersection.beside_paper,
        covered="one_before",
        text="Share of the final mask found after pre-training and one epoch before the final mask.",
    ),
    TableSection(
        heading="Variants",
        make=variants_and_planned,
        text="What is not as in the preset, against the preset's recipe with the same seeds (`pairs`): mean difference "
        "in points for the last and for the best epoch, in brackets the 95 % interval of the last one's, all "
        "epochs trained and the difference in them. `last over plain` is the last epoch's difference from all seeds of "
        "the preset's recipe, paired or not. `loss` is the last epoch's on training images; `over paper` is the "
        "mean of the best epochs minus the paper's number for the recipe as it is.",
    ),
    TableSection(
        heading="Aim",
        make=goals.aim,
        covered="over_paper",
        summary=goals.said,
        text="What ART is to do beyond the paper. As many epochs are those that the preset's recipe takes in our own "
        f"runs, all phases together; up to {100 * goals.SLACK - 100:.0f} % more are let pass, since nobody knows "
        "before how many a mask takes. The best recipe that takes so few is shown: where several were tried, that "
        "flatters. `over paper` is the mean of our best epochs minus the paper's number, `margin` twice the standard "
        "error of that, as for the verdicts above, and `last over paper` our last epoch against the paper's best one. "
        "*Reached* goes by the means; *open* is short by less than the margin: more seeds would tell.",
    ),
)
FIGURES = (
    FigureSection(heading="Which weights the penalty pulls", draw=gradients.analyze),
    FigureSection(
        heading="Where the kept weights lie",
        draw=allocation.analyze,
        table_below=layers_table,
        text="Kept weights of each part of the network, mean over seeds, and in brackets the share of it in per cent.",
    ),
    FigureSection(heading="How soon the final mask is found", draw=intersection.analyze),
    FigureSection(heading="Weights that cross the cut", draw=masks.crossings),
    FigureSection(heading="How long the penalty grows", draw=epochs.analyze),
    FigureSection(
        heading="What fine-tuning gains",
        draw=finetuning.analyze,
        table_below=finetuning_table,
        text=f"Test accuracy in per cent, from the mean over the first {finetuning.EDGE} epochs of each learning rate "
        f"to that over the last {finetuning.EDGE} (half of them where it has fewer than {2 * finetuning.EDGE}), mean "
        "over seeds.",
    ),
    FigureSection(heading="How far two seeds agree", draw=masks.agreement),
    FigureSection(heading="Kept weights that can matter", draw=tradeoffs.effective),
    FigureSection(heading="What sparsity costs", draw=tradeoffs.accuracy),
    FigureSection(
        heading="Whom sparsity hurts",
        draw=tradeoffs.classes,
        text="CIFAR-10 has 1,000 test images of a class and CIFAR-100 has 100: two networks that are as good differ "
        "there by about 1 and 6 points (a standard deviation) by chance alone.",
    ),
    FigureSection(
        heading="Compression Position",
        draw=positions.analyze,
        table_below=positions.table_below,
        text="Which training images the pruned copies get right first, from 0 to 1; dense is the network in "
        "pre-training ([more](positions.md)). Images are told apart by how many of CIFAR-N's people named them "
        "wrongly, of three for CIFAR-10 and of one for CIFAR-100. In brackets the paper's number (its table 3, and all "
        "seven rows in the supplement's table 2); it has them for CIFAR-10 only and does not say which network they "
        "are of.",
    ),
)
HEADINGS = (*(section.heading for section in (*TABLES, *FIGURES)), RUNS)


def build(root: Path) -> list[Path]:
    """Write the page and the README's table of the checkout at `root`; returns the files written."""
    readme.split(root)  # a README without a place for the table fails before anything is written
    return [*write_page(root), *readme.write(root)]


def write_page(root: Path, notes: Path = NOTES) -> list[Path]:
    """Write the page and its figures; a damaged run is an error, as its figure would be called missing."""
    store = RunStore(root / readme.RESULTS)
    folders = [run.path for run in store.runs()]
    if not folders:
        raise RunError(f"There are no runs in {store.root}; `hypersparse sweep --results` puts them there.")
    written_by_hand = read_notes(notes, HEADINGS)
    runs = load(folders)
    _check(runs)
    tables = [(section, section.make(store)) for section in TABLES]
    lines = _introduction(tables, len(runs), written_by_hand)
    for section, frame in tables:
        lines += [f"## {section.heading}", "", section.text, ""]
        lines += [*section.summary(frame), ""] if section.summary else []
        lines += [*cell_table(frame, section.covered), ""]
        lines += written_by_hand.get(section.heading, [])
    written = []
    for figures in FIGURES:
        drawn = list(_drawn(figures, runs))
        lines += _figure_lines(figures, drawn, written_by_hand)
        written += [path for result in drawn for path in _write_for_page(root / PAGE.with_suffix(""), result)]
    lines += [f"## {RUNS}", "", *written_by_hand.get(RUNS, []), *_runs(runs)]
    write_text(root / PAGE, "\n".join(lines).rstrip() + "\n")
    return [root / PAGE, *written]


def _introduction(
    tables: Iterable[tuple[TableSection, pd.DataFrame]], runs: int, notes: Mapping[str, Sequence[str]]
) -> list[str]:
    counts = [f"- [{section.heading}](#{section.heading.lower()}), {counted(frame)}" for section, frame in tables]
    lines = ["# Reproduction", "", f"Made of {runs} stored runs, and made anew by", "", "```text", COMMAND, "```", ""]
    return [*lines, "Cells of each table, by what our runs say:", "", *counts, "", *notes.get(INTRODUCTION, [])]


def _check(runs: Sequence[FinishedRun]) -> None:
    """Read every log and record, so that a damaged file is named."""
    for run in runs:
        run.folder.whole_log()
        if run.folder.record_file.is_file():
            read_record(run.folder.record_file)


def _drawn(section: FigureSection, runs: Sequence[FinishedRun]) -> Iterator[AnalysisResult]:
    """The figures for which there are runs."""
    try:
        made = section.draw(runs)
    except NoRunsError:
        return
    yield from made if isinstance(made, list) else [made]


def _figure_lines(
    section: FigureSection, drawn: Sequence[AnalysisResult], notes: Mapping[str, Sequence[str]]
) -> list[str]:
    heading = section.heading
    lines = [f"## {heading}", "", *([section.text, ""] if section.text else []), *notes.get(heading, [])]
    for result in drawn:
        lines += [f"![{heading}: {result.name}]({PAGE.stem}/{result.name}.png)", ""]
        lines += [*section.table_below(result), ""] if section.table_below else []
    return lines if drawn else [*lines, "Missing: no stored run has what this figure needs.", ""]


def _write_for_page(folder: Path, result: AnalysisResult) -> list[Path]:
    """The figure as PNG and its tables; SVG and all points are left to `hypersparse analyze`."""
    return [write_figure(folder, result, "png"), *write_tables(folder, result.tables)]


def _runs(runs: Sequence[FinishedRun]) -> list[str]:
    rows = [
        {
            "run": run.recipe.label,
            "seed": run.seed,
            "ended after": run.result["until"] or "its plan",
            "epochs": run.epochs,
            "minutes": f"{run.result['wall_seconds'] / 60:.1f}",
            "machine": run.result["machine"]["device"],
            "precision": run.result["machine"]["precision"],
            "torch": run.result["machine"]["torch"],
        }
        for run in runs
    ]
    return markdown(pd.DataFrame(rows))
