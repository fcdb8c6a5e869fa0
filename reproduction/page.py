"""Builds docs/reproduction.md with its figures, and the README's table, from the runs in results/."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from hypersparse.analysis import allocation, intersection, masks, paper, tradeoffs
from hypersparse.analysis.finished_runs import FinishedRun, NoRunsError, load
from hypersparse.analysis.plotting import AnalysisResult, write, write_figure, write_tables
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text
from hypersparse.storage.record import read_record
from reproduction import goals, headline, methods, positions_section, readme, stop_rules
from reproduction.figure_tables import finetuning_table, layers_table
from reproduction.figures import epochs, finetuning, gradients
from reproduction.notes import INTRODUCTION, read_notes
from reproduction.planned import variants_and_planned
from reproduction.tables import cell_table, counted, markdown

COMMAND = "python -m reproduction"
NOTES = Path(__file__).parent / "NOTES.md"  # hand-written text under the page's headings
PAGE = Path("docs/reproduction.md")
CLAIMS, RUNS = "Claims of the paper", "Runs"  # headings with hand-written text alone


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
        text="Test accuracy in per cent. `best` is the best epoch, picked on the test set as in the paper's code. "
        "`last` is the last epoch. A cell is *reproduced* if our mean and the paper's differ by at most twice the "
        "standard error of the difference. Otherwise it is *better* or *worse*.",
    ),
    TableSection(
        heading="ART against the best other method",
        make=methods.against_best_other,
        text="Test accuracy in per cent by the best epoch. Other methods are SNIP, GraSP, SRatio, LTH, IMP and RigL. "
        "Variants of ART are not among them. Behind the name of our best other method is the number of methods that "
        "were trained in the cell. A method that is missing may be better.",
    ),
    TableSection(
        heading="Epochs to the final mask",
        make=paper.regularized_epochs,
        covered="epochs",
        text="Regularized epochs up to the epoch whose mask is kept. Fewer epochs are better. The verdicts are those "
        "of the accuracy table.",
    ),
    TableSection(
        heading="Stopping rules",
        make=stop_rules.replayed,
        text="Regularized epochs under two [stopping rules](art.md#options), replayed on the stored scores. `average` "
        "is the default, the authors' current code. `own score` is `stop_reference=first_release`, their first "
        "release. `trained` counts the epochs of the phase, `mask` those up to the epoch whose mask is kept. A cell is "
        "empty if the rule had not stopped a run before it ended.",
    ),
    TableSection(
        heading="Mask intersection",
        make=intersection.beside_paper,
        covered="one_before",
        text="Share of the final mask that is already found after pre-training, and one epoch before the final mask. "
        "The paper gives no deviations, so there is no verdict.",
    ),
    TableSection(
        heading="Variants of ART",
        make=variants_and_planned,
        text="Recipes that differ from the preset, compared with the preset's recipe.\n\n"
        "- `last difference` and `best difference` are mean differences in points over the seeds that both have "
        "(`pairs`). The 95 % interval is in brackets.\n"
        "- `last minus preset` is the difference from all seeds of the preset's recipe, paired or not.\n"
        "- `minus paper` is the mean of the best epochs minus the paper's number for the preset's recipe.\n"
        "- `loss` is the training loss of the last epoch. `epochs` counts all phases.",
    ),
    TableSection(
        heading="Goals",
        make=goals.goals,
        covered="minus_paper",
        summary=goals.summary,
        text="Goals for ART beyond the paper, with the best recipe that keeps to the epochs of the goal.\n\n"
        "- `epochs` counts all phases. `percent of epochs` compares with the preset's recipe in our own runs. The "
        f"limit has a tolerance of {100 * goals.TOLERANCE - 100:.0f} %, because the epoch of the mask is not known in "
        "advance.\n"
        "- Where several recipes were tried the best one is shown, which favours the goal.\n"
        "- `minus paper` is the mean of our best epochs minus the paper's number. `margin` is twice the standard error "
        "of this difference. `last minus paper` compares our last epoch with the paper's best one.\n"
        "- *Reached* goes by the means. *Open* misses the goal by less than the margin, so more seeds are needed.",
    ),
)
FIGURES = (
    FigureSection(
        heading="All methods over the sparsity",
        draw=methods.over_sparsity,
        text="Lines with open markers are the paper's means of five seeds. Filled markers are our means by the best "
        "epoch, as in the paper.",
    ),
    FigureSection(
        heading="Penalty gradients",
        draw=gradients.analyze,
        text="Magnitude and penalty gradient over the sorted weights in the regularized phase. Weights left of the "
        "dotted line would be pruned.",
    ),
    FigureSection(
        heading="Weights kept per layer",
        draw=allocation.analyze,
        table_below=layers_table,
        text="Weights kept in each part of the network, mean over seeds. The share in per cent is in brackets.",
    ),
    FigureSection(
        heading="Mask intersection over the epochs",
        draw=intersection.analyze,
        text="Share of the final mask that the largest weights of each epoch already are.",
    ),
    FigureSection(
        heading="Mask changes per epoch",
        draw=masks.crossings,
        text="Share of the largest weights that was not among them in the epoch before.",
    ),
    FigureSection(heading="Regularized epochs", draw=epochs.analyze),
    FigureSection(
        heading="Fine-tuning",
        draw=finetuning.analyze,
        table_below=finetuning_table,
        text=f"Test accuracy in per cent at each learning rate: from the mean over its first {finetuning.EDGE} epochs "
        f"to the mean over its last {finetuning.EDGE}. A rate with fewer than {2 * finetuning.EDGE} epochs is split in "
        "half. Means over seeds.",
    ),
    FigureSection(
        heading="Mask agreement between seeds",
        draw=masks.agreement,
        text="Share of the kept weights that two seeds have in common. The bar is the overlap of two random masks with "
        "as many weights in each layer.",
    ),
    FigureSection(
        heading="Effective weights",
        draw=tradeoffs.effective,
        text="Share of the kept weights that lie on a path from input to output.",
    ),
    FigureSection(heading="Accuracy against cost", draw=tradeoffs.accuracy),
    FigureSection(
        heading="Accuracy by class",
        draw=tradeoffs.classes,
        text="Change of the accuracy of each class from the dense network. A class has 1,000 test images in CIFAR-10 "
        "and 100 in CIFAR-100. Chance alone gives a standard deviation of about 1 and 6 points.",
    ),
    FigureSection(
        heading="Compression Position",
        draw=positions_section.analyze,
        table_below=positions_section.table_below,
        text="The order in which training images are learned, from 0 (first) to 1 (last) ([definition](positions.md)). "
        "They are learned by the pruned copies, or by the dense network in pre-training. Hardness is the number of "
        "CIFAR-N's annotators who chose a wrong label, of three for CIFAR-10 and of one for CIFAR-100. The paper's "
        "numbers are in brackets (its table 3, and table 2 of its supplement). They are for CIFAR-10 only, and the "
        "paper does not name the network.",
    ),
)
HEADINGS = (CLAIMS, *(section.heading for section in (*TABLES, *FIGURES)), RUNS)


def build(root: Path) -> list[Path]:
    """Write the page and the README's table of the checkout at `root`; returns the files written."""
    readme.split(root)  # a README without a place for the table fails before anything is written
    return [*write_page(root), *readme.write(root)]


def write_page(root: Path, notes: Path = NOTES) -> list[Path]:
    """Write the page and its figures; a damaged run is an error, not a missing figure."""
    store = RunStore(root / readme.RESULTS)
    folders = [run.path for run in store.runs()]
    if not folders:
        raise RunError(f"There are no runs in {store.root}; `hypersparse sweep --results` puts them there.")
    written_by_hand = read_notes(notes, HEADINGS)
    runs = load(folders)
    _check(runs)
    tables = [(section, section.make(store)) for section in TABLES]
    found = headline.headline(store)
    lines = [*_introduction(tables, len(runs), written_by_hand), *headline.lines(store, found)]
    if CLAIMS in written_by_hand:
        lines += [f"## {CLAIMS}", "", *written_by_hand[CLAIMS]]
    for section, frame in tables:
        lines += [f"## {section.heading}", "", section.text, ""]
        lines += [*section.summary(frame), ""] if section.summary else []
        lines += [*cell_table(frame, section.covered), ""]
        lines += written_by_hand.get(section.heading, [])
    written = write(root / PAGE.with_suffix(""), found) if len(found.data) else []
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
    counts = [f"- [{section.heading}](#{_anchor(section.heading)}): {counted(frame)}" for section, frame in tables]
    lines = ["# Reproduction", "", f"This page compares {runs} stored runs with the paper. It is regenerated with", ""]
    lines += ["```text", COMMAND, "```", "", *notes.get(INTRODUCTION, [])]
    return [*lines, "Cells of each table by verdict:", "", *counts, ""]


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


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
    return lines if drawn else [*lines, "Missing: no stored run has the data for this figure.", ""]


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
