"""`python -m benchmarks`: the speed of training and inference on this machine."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import device_commands, inference_engines, kernel_profile, loading, networks, web, workloads
from benchmarks import train as training
from benchmarks import zoo as zoo_networks
from benchmarks.inference import InferenceBench, InferenceRow, title_of
from benchmarks.inference import plan_cases as plan_inference
from benchmarks.progress import progress_bar
from benchmarks.row_tables import print_rows
from benchmarks.token_networks import TOKEN_MODELS
from benchmarks.workloads import parse_counts, parse_names
from hypersparse.cli.console import Console
from hypersparse.cli.main import run
from hypersparse.cli.option_groups import grouped, option
from hypersparse.cli.recipe_options import parse_sparsities
from hypersparse.errors import OptionError, unknown
from hypersparse.models import factory_of
from hypersparse.sparsity.distributions import PAPER_SPARSITIES
from hypersparse.storage.files import write_json
from hypersparse.training.machine import Machine
from hypersparse.zoo import names
from hypersparse_runtime.sparse_model import cores

SLOW_TO_BUILD = "torch.compile"  # half a minute for each case
MINUTES = 10  # of `inference`
MASKS = Path(__file__).with_name("masks")

app = typer.Typer(help="Measure the speed of this machine.", pretty_exceptions_enable=False, no_args_is_help=True)
app.add_typer(device_commands.app)


@dataclass(frozen=True, kw_only=True)
class TrainBenchOptions:
    """What to measure of training."""

    quick: bool = option(False, "Few steps on small batches: under a minute, and rough.", "--quick")
    out: Path | None = option(None, "A JSON file for the rows.", "--out", "-o", dir_okay=False)
    device: str = option("auto", "cpu, cuda, cuda:1 or auto.")
    precision: str | None = option(None, "bf16, tf32 or fp32; by default bf16 on a GPU, fp32 on a CPU.")
    models: str | None = option(
        None, f"Between commas; by default {','.join(workloads.MODELS)}, on a CPU without the last."
    )
    engines: str | None = option(None, f"Of {','.join(workloads.ENGINES)}; by default all this device has.")
    runs: str | None = option(None, "Numbers of concurrent captured runs; by default 1,5,10 on a GPU.")
    steps: int | None = option(None, "Timed steps; by default 100, on a CPU 10, with --quick 3.", min=1)
    minutes: float | None = option(None, "Time limit in all; by default 8, with --quick 1.", min=0)


@app.command()
@grouped
def train(options: TrainBenchOptions) -> None:
    """Time training steps of every engine beside a reimplementation of the authors' loop, on random images.

    Each figure is a number of timed steps after a warm-up, scaled to an epoch.
    """
    place, quick = Machine(device=options.device).torch_device(), options.quick
    precision = options.precision or ("bf16" if place.type == "cuda" else "fp32")
    Machine(device=options.device, precision=precision)  # type: ignore[arg-type]  # checks the precision
    cases = workloads.plan_cases(
        place,
        quick=quick,
        labels=parse_names(options.models) if options.models else None,
        engines=parse_names(options.engines) if options.engines else None,
        runs=parse_counts(options.runs) if options.runs else None,
        precision=precision,
    )
    effort = workloads.effort_for(place, quick=quick, steps=options.steps)
    minutes = (1.0 if quick else 8.0) if options.minutes is None else options.minutes
    measured = training.Bench(place, precision, effort, minutes)  # type: ignore[arg-type]
    with progress_bar(len(cases)) as bar:
        report = measured.run(cases, bar)
    device = training.device_name(place, effort.threads)
    peaks = [training.peaks_sentence(precision, peaks) for precision, peaks in report.peaks.items()]
    print_rows(
        [_training_words(row) for row in report.rows],
        [*_scaling_note(report.rows), *peaks, *report.notes],
        title=f"training on {device}, {precision}, batch {effort.batch_size}",
    )
    if options.out:
        write_json(options.out, report.rows)


@app.command()
def profile(
    model: Annotated[str, typer.Argument(help="The network, such as resnet32 or resnet32-64x64.")] = "resnet32",
    precision: Annotated[str, typer.Option(help="bf16, tf32 or fp32.")] = "bf16",
    engine: Annotated[str, typer.Option(help="cudagraph or fused.")] = "fused",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A JSON file, also with each kernel's name.", dir_okay=False)
    ] = None,
) -> None:
    """Count and time the kernels of a captured training step by kind, in every phase. Needs a GPU."""
    found = kernel_profile.profile_workload(workloads.workload_of(model), precision=precision, engine=engine)
    rows = [words for phase, profiled in found["phases"].items() for words in _profile_words(phase, profiled)]
    title = f"one step of {found['model']} on {found['device']}, {precision}, {engine}, batch {found['batch_size']}"
    print_rows(rows, [], title=title)
    if out:
        write_json(out, found)


@dataclass(frozen=True, kw_only=True)
class LoadingBenchOptions:
    """What to measure of loading."""

    quick: bool = option(False, "A few steps on small images: under a minute, and rough.", "--quick")
    out: Path | None = option(None, "A JSON file for the rows.", "--out", "-o", dir_okay=False)
    device: str = option("auto", "cpu, cuda, cuda:1 or auto.")
    model: str | None = option(None, "The network; by default resnet32, with --quick resnet8.")
    workers: str | None = option(None, "Processes that decode; by default one less than the cores, and none.")
    sources: str = option(",".join(loading.SOURCES), "Between commas.")


@app.command("loading")
@grouped
def loading_(options: LoadingBenchOptions) -> None:
    """Time training on images that are decoded batch by batch, beside a plain PyTorch loop with the same loader.

    Both decode the same JPEG files with random resized crops and flips, in as many processes.
    """
    quick, sources = options.quick, parse_names(options.sources)
    if strange := sorted(set(sources) - set(loading.SOURCES)):
        raise OptionError(unknown("source of images", strange[0], loading.SOURCES))
    counts = parse_counts(options.workers, option="--workers") if options.workers else sorted({0, max(cores() - 1, 1)})
    effort = loading.LoadingEffort(128, 32, 16, 1) if quick else loading.LoadingEffort(2048, 64, 64, 3)
    cases = [loading.LoadingCase(source, count) for source in sources for count in counts]
    model = options.model or ("resnet8" if quick else "resnet32")
    machine = Machine(device=options.device)
    with progress_bar(len(cases)) as bar:
        rows = loading.measure(cases, model, effort, machine, bar)
    print_rows(
        [_loading_words(row) for row in rows],
        [f"{model}, batches of {effort.batch_size} images of {effort.side} x {effort.side}."],
        title=f"loading on {training.device_name(machine.torch_device(), None)}",
    )
    if options.out:
        write_json(options.out, rows)


@dataclass(frozen=True, kw_only=True)
class InferenceBenchOptions:
    """What to measure of inference."""

    quick: bool = option(False, "98 and 99.8 %, batch 1, one thread: under a minute, and rough.", "--quick")
    out: Path | None = option(None, "Write the rows to this JSON file too.", "--out", "-o", dir_okay=False)
    models: str = option(",".join((*networks.MODELS, *TOKEN_MODELS)), "Between commas.")
    sparsities: str | None = option(None, "Between commas; by default 0, 0.9, 0.98 and 0.998.", "--sparsity")
    batches: str | None = option(None, "Images per call; by default 1,64.")
    threads: str | None = option(None, "By default 1 and all cores.")
    engines: str | None = option(
        None, f"Of {','.join(inference_engines.ENGINES)}; by default all installed, but not torch.compile."
    )
    rounds: int | None = option(None, "Turns of each engine; by default up to 25, with --quick 8.", min=1)
    minutes: float | None = option(None, "Time for all cases; by default 10, with --rounds as long as it takes.", min=0)
    masks: Path = option(MASKS, "Folder of MODEL-SPARSITY.hsp; a network without a file has a random mask.")


@app.command()
@grouped
def inference(options: InferenceBenchOptions) -> None:
    """Time sparse networks in the sparse runtime beside PyTorch, ONNX Runtime and OpenVINO, in turns in one process.

    The speedup is over the better of dense ONNX Runtime and OpenVINO. With one thread the process's own CPU time is
    compared, which other programs on the machine do not lengthen; with several threads the clock.
    """
    quick, masks, models = options.quick, options.masks, parse_names(options.models)
    engines = parse_names(options.engines) if options.engines else _default_engines()
    inference_engines.check_engines(engines)
    for model in (each for each in models if each not in TOKEN_MODELS):
        factory_of(model, own_code=[model])  # checks the name
    given = options.threads
    counts = parse_counts(given, option="--threads") if given else [1] if quick or cores() == 1 else [1, cores()]
    chosen = networks.QUICK_SPARSITIES if quick else networks.SPARSITIES
    sparsities = parse_sparsities(options.sparsities) if options.sparsities else list(chosen)
    sizes = parse_counts(options.batches, option="--batches") if options.batches else [1] if quick else [1, 64]
    if not masks.is_dir():
        raise OptionError(f"`--masks` is a folder of MODEL-SPARSITY.hsp files; there is no folder {masks}.")
    if not all(0 <= sparsity < 1 for sparsity in sparsities):
        raise OptionError(f"`--sparsity` are fractions from 0 to below 1; got `{options.sparsities}`.")
    if min(*counts, *sizes) < 1:
        raise OptionError("`--threads` and `--batches` are counts of 1 or more; got 0.")
    cases = list(plan_inference(models, sparsities, sizes, counts))
    rounds = options.rounds or (8 if quick else 25)
    minutes = options.minutes or (math.inf if options.rounds else MINUTES)
    measured = InferenceBench(engines, rounds, masks, seconds=60 * minutes)
    with progress_bar(len(cases)) as bar:
        measured.run(cases, bar)
    notes = [f"{title_of(row)}: {row['note']}" for row in measured.rows if row["note"]]
    notes += [] if options.engines else _missing_engines()
    print_rows([_inference_words(row) for row in measured.rows], [*notes, *measured.notes, *measured.wrong])
    if options.out:
        write_json(options.out, measured.rows)
    if measured.wrong:
        raise typer.Exit(1)


@app.command()
def zoo(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A JSON file for the rows.", dir_okay=False)] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each engine.", min=1)] = 25,
) -> None:
    """Time the networks of the zoo beside their dense twins: one image, one thread, the process's own CPU time."""
    engines = zoo_networks.dense_engines(inference_engines.installed)
    known = names()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("zoo", total=len(known))
        rows = zoo_networks.time_zoo(known, engines, rounds, lambda name: progress.advance(task))
    print_rows([{"name": row["name"], "engine": row["engine"], "ms": f"{row['milliseconds']:.3g}",
             "speedup": f"{row['speedup']:.3g}x" if row["speedup"] else ""} for row in rows], [])  # fmt: skip
    if out:
        write_json(out, rows)


@dataclass(frozen=True, kw_only=True)
class WebBenchOptions:
    """What to measure in a browser."""

    out: Path | None = option(None, "Write the rows to this JSON file too.", "--out", "-o", dir_okay=False)
    models: str = option(",".join(networks.MODELS), "Between commas.")
    sparsities: str | None = option(None, "Between commas; by default the paper's six.", "--sparsity")
    rounds: int = option(25, "Turns of each engine.", min=1)
    masks: Path = option(MASKS, "Folder of MODEL-SPARSITY.hsp; a network without a file has a random mask.")
    package: Path | None = option(None, f"Unpacked npm package {web.ENGINE}; by default npm installs {web.VERSION}.")


@app.command("web")
@grouped
def time_in_browser(options: WebBenchOptions) -> None:
    """Time sparse networks in headless Chromium beside onnxruntime-web on their dense twins, in turns in one page.

    Both engines run in WebAssembly with SIMD on one thread. Networks are not shrunk before.
    """
    given = options.sparsities
    sparsities = parse_sparsities(given) if given else list(PAPER_SPARSITIES)
    cases = [(model, sparsity) for model in parse_names(options.models) for sparsity in sparsities]
    console = Console(stderr=True)
    bench = web.WebBench(options.masks, options.rounds, options.package)
    rows = bench.run(cases, lambda row: console.say(f"{row.model} {100 * row.sparsity:g} %: {row.speedup:.1f}x"))
    print_rows([_web_words(row) for row in rows], [], title=f"Chromium {rows[0].browser}, one image, one thread")
    if options.out:
        write_json(options.out, web.as_json(rows))


def _default_engines() -> list[str]:
    return [each for each in inference_engines.ENGINES if each != SLOW_TO_BUILD and inference_engines.installed(each)]


def _missing_engines() -> list[str]:
    missing = [each for each in inference_engines.DENSE if not inference_engines.installed(each)]
    others = [each for each in inference_engines.DENSE if each not in missing]
    over = f"speed-ups are over {others[0]}" if others else "there are no speed-ups"
    return [f"{' and '.join(missing)} not installed: {over}."] if missing else []


def _scaling_note(rows: Sequence[training.TrainingRow]) -> list[str]:
    if not rows:
        return []
    fewest, most = (pick(row["steps_timed"] for row in rows) for pick in (min, max))
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    return [f"Scaled to an epoch from {count} timed steps each; regularized epochs include scoring the pruned copy."]


def _training_words(row: training.TrainingRow) -> dict[str, str]:
    memory, speedup = row["memory_bytes"], row["speedup"]
    return {
        "model": row["model"],
        "phase": row["phase"],
        "engine": row["engine"],
        "runs": str(row["runs"]),
        "s/epoch a run": seconds(row["seconds_per_epoch"]),
        "speedup": "" if speedup is None else f"{speedup:.{2 if speedup < 10 else 1}f}x",
        "of floor": f"{100 * row['floor_share']:.1f} %",
        "s scoring": seconds(row["scoring_seconds"] / row["runs"]) if row["scoring_seconds"] else "",
        "s to build": f"{row['compile_seconds']:.1f}" if row["compile_seconds"] else "",
        "memory": "" if memory is None else f"{memory / 2**30:.2f} GiB",
    }


def _profile_words(phase: str, profiled: Mapping[str, Any]) -> list[dict[str, str]]:
    wall, gap = profiled["wall_microseconds"], profiled["gap_microseconds"]
    kinds = {**profiled["kinds"], "gaps": {"kernels": None, "microseconds": gap}}
    kinds["step"] = {"kernels": profiled["kernels"], "microseconds": wall}
    return [
        {
            "phase": phase,
            "kind": kind,
            "kernels": "" if row["kernels"] is None else f"{row['kernels']:g}",
            "us": f"{row['microseconds']:.1f}",
            "share": f"{100 * row['microseconds'] / wall:.1f} %",
        }
        for kind, row in kinds.items()
    ]


def _loading_words(row: loading.LoadingRow) -> dict[str, str]:
    return {
        "images": row["images"],
        "workers": str(row["workers"]),
        "loop": row["loop"],
        "steps/s": f"{row['steps_per_second']:.3g}",
        "images/s": f"{row['images_per_second']:,.0f}",
    }


def _inference_words(row: InferenceRow) -> dict[str, str]:
    speedup, share = row["speedup"], row["roofline_share"]
    return {
        "model": row["model"],
        "sparsity": "any" if row["sparsity"] is None else f"{100 * row['sparsity']:g} %",
        "mask": row["mask"],
        "engine": row["engine"] if row["engine"] != inference_engines.OURS else f"{inference_engines.OURS} *",
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


def _web_words(row: web.WebRow) -> dict[str, str]:
    return {
        "model": row.model,
        "mask": row.mask,
        "sparsity": f"{100 * row.sparsity:g} %",
        "ms": f"{row.sparse_milliseconds:.3g}",
        "10-90 %": f"{row.sparse_low:.3g}-{row.sparse_high:.3g}",
        "dense ms": f"{row.dense_milliseconds:.3g}",
        "dense 10-90 %": f"{row.dense_low:.3g}-{row.dense_high:.3g}",
        "speedup": f"{row.speedup:.3g}x",
        "kB": f"{row.bytes / 1e3:,.0f}",
        "dense kB": f"{row.dense_bytes / 1e3:,.0f}",
        "difference": f"{row.difference:.0e}",
    }


def seconds(value: float) -> str:
    """Three digits, and no more than are needed.

    >>> seconds(1.2345), seconds(1234.5)
    ('1.23', '1,234')
    """
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    run(app)
