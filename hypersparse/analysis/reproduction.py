"""The page that puts all our results beside the paper's, made anew from the stored runs."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from hypersparse.analysis import (
    aim,
    allocation,
    epochs,
    finetuning,
    gradients,
    intersection,
    masks,
    paper,
    positions_page,
    tradeoffs,
    variants,
)
from hypersparse.analysis.coverage import coverage
from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.analysis.headline import command
from hypersparse.analysis.notes import BEGINNING, read_notes
from hypersparse.analysis.plotting import AnalysisResult, write
from hypersparse.analysis.tables import details, readable, render, spaced, tally, with_missing
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from hypersparse.storage.files import write_text
from hypersparse.storage.record import read_record

TABLES: dict[str, Callable[[RunStore], pd.DataFrame]] = {
    "accuracy": paper.accuracy,
    "epochs": paper.regularized_epochs,
    "intersection": intersection.beside_paper,
    "variants": variants.variants,
    "aim": aim.aim,
}
COVERED = {
    "accuracy": "best",
    "epochs": "epochs",
    "intersection": "one_before",
    "aim": "over_paper",
}  # what stands for a cell with runs
TITLES = {
    "accuracy": (
        "Accuracy in per cent. `best` is picked on the test set, as by the paper's code; `last` is the last epoch. "
        "Verdicts: *reproduced* where our mean and the paper's differ by at most twice the standard error of the "
        "difference, otherwise *better* or *differs* (worse)."
    ),
    "epochs": "Regularized epochs to the final mask; the same verdicts, and fewer epochs are better.",
    "intersection": "Share of the final mask found after pre-training and one epoch before the final mask.",
    "variants": (
        "What is not as in the preset, against the preset's recipe with the same seeds (`pairs`): mean difference in "
        "points for the last and for the best epoch, in brackets the 95 % interval of the last one's, all "
        "epochs trained and the difference in them. `last over plain` is the last epoch's difference from all seeds of "
        "the preset's recipe, paired or not. `loss` is the last epoch's on training images; `over paper` is the "
        "mean of the best epochs minus the paper's number for the recipe as it is."
    ),
    "aim": (
        "What ART is to do beyond the paper. As many epochs are those that the preset's recipe takes in our own runs, "
        f"all phases together; up to {100 * aim.SLACK - 100:.0f} % more are let pass, since nobody knows before how "
        "many a mask takes. The best recipe that takes so few is shown: where several were tried, that flatters. `over "
        "paper` is the mean of our best epochs minus the paper's number, `margin` twice the standard error of that, as "
        "for the verdicts above, and `last over paper` our last epoch against the paper's best one. *Reached* goes by "
        "the means; *open* is short by less than the margin: more seeds would tell."
    ),
}
SAID: dict[str, Callable[[pd.DataFrame], list[str]]] = {"aim": aim.said}  # what a table comes to, in words
LAYERS, POSITIONS, CLASSES = "Where the kept weights lie", "Compression Position", "Whom sparsity hurts"
TUNING, RUNS = "What fine-tuning gains", "Runs"
WORDS = {
    LAYERS: "Kept weights of each part of the network, mean over seeds, and in brackets the share of it in per cent.",
    TUNING: (
        f"Test accuracy in per cent, from the mean over the first {finetuning.EDGE} epochs of each learning rate to "
        f"that over the last {finetuning.EDGE} (half of them where it has fewer than {2 * finetuning.EDGE}), mean over "
        "seeds."
    ),
    CLASSES: (
        "CIFAR-10 has 1,000 test images of a class and CIFAR-100 has 100: two networks that are as good differ there "
        "by about 1 and 6 points (a standard deviation) by chance alone."
    ),
    POSITIONS: (
        "Which training images the pruned copies get right first, from 0 to 1; dense is the network in pre-training "
        "([more](positions.md)). Images are told apart by how many of CIFAR-N's people named them wrongly, of three "
        "for CIFAR-10 and of one for CIFAR-100. In brackets the paper's number (its table 3, and all seven rows in the "
        "supplement's table 2); it has them for CIFAR-10 only and does not say which network they are of."
    ),
}
TABLES_BELOW: dict[str, Callable[[AnalysisResult], list[str]]] = {
    LAYERS: allocation.section,
    TUNING: finetuning.section,
    POSITIONS: positions_page.section,
}
Make = Callable[[Sequence[FinishedRun]], AnalysisResult | list[AnalysisResult]]
FIGURES: dict[str, Make] = {
    "Which weights the penalty pulls": gradients.studies,
    LAYERS: allocation.studies,
    "How soon the final mask is found": intersection.studies,
    "Weights that cross the cut": masks.crossings,
    "How long the penalty grows": epochs.study,
    TUNING: finetuning.studies,
    "How far two seeds agree": masks.agreement,
    "Kept weights that can matter": tradeoffs.effective,
    "What sparsity costs": tradeoffs.accuracy,
    CLASSES: tradeoffs.classes,
}
NOTES = "NOTES.md"  # in the results' folder: what agrees, what does not, and why, under the page's headings


def write_page(store: RunStore, page: Path, readme: Path | None = None) -> list[Path]:
    """The page, and its figures in a folder of its name beside it; `readme` is what the same command writes too."""
    folders = [run.path for run in store.runs()]
    if not folders:
        raise RunError(f"There are no runs in {store.root}; `hypersparse sweep --results` puts them there.")
    notes = read_notes(store.root / NOTES, [*map(str.capitalize, TABLES), *FIGURES, POSITIONS, RUNS])
    runs, figures = load(folders), _Figures(page, notes)
    _check(runs)
    made = ["```text", command(store, page, readme), "```"]
    lines = ["# Reproduction", "", f"Made of {len(runs)} stored runs, and made anew by", "", *made, ""]
    tables = {name: make(store) for name, make in TABLES.items()}
    counts = [f"- [{name.capitalize()}](#{name}), {_counted(frame)}" for name, frame in tables.items()]
    lines += ["Cells of each table, by what our runs say:", "", *counts, ""]
    lines += notes.get(BEGINNING, [])
    for name, frame in tables.items():
        heading, told = name.capitalize(), [*SAID[name](frame), ""] if name in SAID else []
        lines += [f"## {heading}", "", TITLES[name], "", *told, *_table(frame, COVERED.get(name)), ""]
        lines += notes.get(heading, [])
    for heading, draw in FIGURES.items():
        lines += figures.lines(heading, _drawn(draw, runs))
    lines += figures.lines(POSITIONS, positions_page.studies(runs))  # not `_drawn`: a file that is wrong must be said
    lines += [f"## {RUNS}", "", *notes.get(RUNS, []), *_runs(runs)]
    write_text(page, "\n".join(lines).rstrip() + "\n")
    return [page, *figures.written]


class _Figures:
    """Writes figures into the folder that is named after the page, and says what stands on the page for them."""

    def __init__(self, page: Path, notes: Mapping[str, Sequence[str]]) -> None:
        self.written: list[Path] = []
        self._page, self._folder, self._notes = page, page.with_suffix(""), notes

    def lines(self, heading: str, studies: Iterable[AnalysisResult]) -> list[str]:
        """A section; where there is no figure it says so."""
        lines = [f"## {heading}", ""]
        if heading in WORDS:
            lines += [WORDS[heading], ""]
        lines += self._notes.get(heading, [])
        before = len(lines)
        for study in studies:
            self.written += write(self._folder, study, for_page=True)
            place = Path(os.path.relpath(self._folder, self._page.parent)) / f"{study.name}.png"
            lines += [f"![{heading}: {study.name}]({place.as_posix()})", ""]
            if heading in TABLES_BELOW:
                lines += [*TABLES_BELOW[heading](study), ""]
        return lines if len(lines) > before else [*lines, "Missing: no stored run has what this figure needs.", ""]


def _table(frame: pd.DataFrame, covered: str | None) -> list[str]:
    """The cells with runs of ours, and what of the rest is missing."""
    shown = frame[frame["seeds"] > 0] if covered else frame
    rows = render(shown, with_missing(readable(shown)), "md").splitlines() if len(shown) else []
    lines = [*rows, *([""] if rows else []), f"Of {_counted(frame)}"]
    if covered is None:
        return lines
    every = coverage(frame, covered)
    said = f"Every cell, with <code>{spaced(covered)}</code> and in brackets how many seeds"
    return [*lines, "", *details(said, render(every, every, "md").splitlines())]


def _counted(frame: pd.DataFrame) -> str:
    return f"{len(frame)} cells: {tally(frame)}."


def _check(runs: Sequence[FinishedRun]) -> None:
    """Says which file is damaged: a figure that cannot read one would be called missing."""
    for run in runs:
        run.folder.whole_log()
        if run.folder.record_file.is_file():
            read_record(run.folder.record_file)


def _drawn(draw: Make, runs: Sequence[FinishedRun]) -> Iterator[AnalysisResult]:
    """The figures for which there are runs."""
    try:
        made = draw(runs)
    except RunError:
        return
    yield from made if isinstance(made, list) else [made]


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
    return render(frame := pd.DataFrame(rows), frame, "md").splitlines()
