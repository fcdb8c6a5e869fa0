"""`hypersparse bench inference`: how fast networks predict on this CPU."""

from pathlib import Path
from typing import Annotated

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer import Exit, Option

import hypersparse
from hypersparse.bench.benchmark_networks import MODELS, QUICK_SPARSITIES, SPARSITIES, parse_sparsities
from hypersparse.bench.inference import InferenceBench, InferenceCase, InferenceRow, plan_cases
from hypersparse.bench.inference_engines import ENGINES, OURS, check_engines, installed
from hypersparse.bench.workloads import parse_counts, parse_names
from hypersparse.cli.console import Console, table_console
from hypersparse.errors import OptionError
from hypersparse.models import factory_of
from hypersparse.storage.files import write_json
from hypersparse_runtime.model import cores

SLOW_TO_BUILD = "torch.compile"
MASKS = Path(hypersparse.__file__).parents[1] / "benchmarks" / "masks"  # in a checkout


class Bar:
    """A progress bar over the cases on stderr, and a line for each."""

    def __init__(self, progress: Progress, cases: int) -> None:
        self.progress, self.task = progress, progress.add_task("bench", total=cases)

    def began(self, case: InferenceCase) -> None:
        """A case begins."""
        self.progress.update(self.task, description=case.title)

    def ended(self, case: InferenceCase, seconds: float) -> None:
        """A case is measured."""
        self.progress.console.print(f"{seconds:6.1f} s  {case.title}", highlight=False)
        self.progress.advance(self.task)


def inference(
    quick: Annotated[
        bool, Option("--quick", help="98 and 99.8 %, batch 1, one thread: under a minute, and rough.")
    ] = False,
    out: Annotated[
        Path | None, Option("--out", "-o", dir_okay=False, help="Write the rows to this JSON file too.")
    ] = None,
    models: Annotated[str, Option(help="Between commas.")] = ",".join(MODELS),
    sparsities: Annotated[
        str | None, Option("--sparsity", help="Between commas; by default 0, 0.5, 0.8 and the paper's six.")
    ] = None,
    batches: Annotated[str | None, Option(help="Images at once; by default 1,64.")] = None,
    threads: Annotated[str | None, Option(help="By default 1 and all cores.")] = None,
    engines: Annotated[str | None, Option(help=f"Of {','.join(ENGINES)}; by default all installed.")] = None,
    rounds: Annotated[int | None, Option(help="Turns of each engine; by default 25, with --quick 8.", min=1)] = None,
    masks: Annotated[
        Path | None,
        Option(help="Folder of MODEL-SPARSITY.hsp; by default a checkout's benchmarks/masks, else masks are made up."),
    ] = None,
) -> None:
    """Time dense engines and the sparse runtime side by side, on random images.

    Speed-ups are over the better of dense ONNX Runtime and OpenVINO. With one thread the process's own CPU time is
    compared, which other programs on the machine do not lengthen; with several threads the clock.
    """
    chosen = parse_names(engines) if engines else _default_engines(quick)
    check_engines(chosen)
    for model in parse_names(models):
        factory_of(model, own_code=[model])  # says if there is none
    counts = parse_counts(threads, option="--threads") if threads else [1] if quick or cores() == 1 else [1, cores()]
    levels = parse_sparsities(sparsities) if sparsities else list(QUICK_SPARSITIES if quick else SPARSITIES)
    sizes = parse_counts(batches, option="--batches") if batches else [1] if quick else [1, 64]
    _check(masks, [*counts, *sizes])
    cases = list(plan_cases(parse_names(models), levels, sizes, counts))
    measured = InferenceBench(chosen, rounds or (8 if quick else 25), masks or (MASKS if MASKS.exists() else None))
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        measured.run(cases, Bar(progress, len(cases)))
    _print(table_console(), measured.rows, [*measured.notes, *measured.wrong])
    if out:
        write_json(out, measured.rows)
    if measured.wrong:
        raise Exit(1)


def _check(masks: Path | None, counts: list[int]) -> None:
    if masks is not None and not masks.is_dir():
        raise OptionError(f"`--masks` is a folder of MODEL-SPARSITY.hsp files; there is no folder {masks}.")
    if min(counts) < 1:
        raise OptionError("`--threads` and `--batches` are counts of 1 or more; got 0.")


def _default_engines(quick: bool) -> list[str]:
    return [engine for engine in ENGINES if installed(engine) and not (quick and engine == SLOW_TO_BUILD)]


def _print(console: Console, rows: list[InferenceRow], notes: list[str]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    texts = ("model", "engine", "mask")
    lines = [_words(row) for row in rows]
    for name in lines[0] if lines else ():
        table.add_column(name, justify="left" if name in texts else "right")
    for line in lines:
        table.add_row(*line.values())
    if lines:
        console.print(table)
    handed = [f"{_case(row).title}: {row['note']}" for row in rows if row["note"]]
    for sentence in [*handed, *notes]:
        console.print(sentence, highlight=False, soft_wrap=True, markup=False)


def _case(row: InferenceRow) -> InferenceCase:
    return InferenceCase(row["model"], row["sparsity"], row["batch"], row["threads"])


def _words(row: InferenceRow) -> dict[str, str]:
    speedup, share = row["speedup"], row["roofline_share"]
    return {
        "model": row["model"],
        "sparsity": f"{100 * row['sparsity']:g} %",
        "mask": row["mask"],
        "engine": row["engine"] if row["engine"] != OURS else f"{OURS} *",
        "batch": str(row["batch"]),
        "threads": str(row["threads"]),
        "ms": f"{row['milliseconds']:.3g}",
        "10-90 %": f"{row['milliseconds_low']:.3g}-{row['milliseconds_high']:.3g}",
        "speedup": "" if speedup is None else f"{speedup:.3g}x",
        "kB": f"{row['bytes'] / 1e3:,.0f}",
        "+MB": f"{row['memory_bytes'] / 1e6:.0f}",
        "Mproducts": f"{row['products'] / 1e6:.3g}",
        "of peak": "" if share is None else f"{100 * share:.0f} %",
        "difference": f"{row['max_difference']:.0e}",
    }
