"""`python -m benchmarks microcontroller`, `int8` and `aarch64`: small devices, by compilers and emulators."""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks import aarch64, int8, microcontroller
from benchmarks.row_tables import print_rows
from benchmarks.workloads import parse_names
from hypersparse.cli.console import Console
from hypersparse.cli.load_data import DataDir, data_folders
from hypersparse.errors import OptionError, unknown
from hypersparse.storage.files import write_json
from hypersparse.zoo import names

Row = dict[str, Any]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="A JSON file for the rows.", dir_okay=False)]
Networks = Annotated[str | None, typer.Option(help="Of the zoo, between commas; by default all.")]

app = typer.Typer(pretty_exceptions_enable=False)


def _chosen(networks: str | None) -> list[str]:
    return list(parse_names(networks) if networks else names())


def _report(rows: list[Row], words: Callable[[Row], Mapping[str, str]], title: str, out: Path | None) -> None:
    print_rows([words(row) for row in rows], [], title=title)
    if out:
        write_json(out, rows)


def _said(row: Row) -> None:
    Console(stderr=True).say(" ".join(str(row[part]) for part in ("name", "arithmetic", "processor") if part in row))


@app.command("microcontroller")
def measure_microcontrollers(
    out: Out = None,
    networks: Networks = None,
    processors: Annotated[str, typer.Option(help="Between commas.")] = ",".join(
        target.name for target in microcontroller.TARGETS
    ),
    data_dir: DataDir = None,
) -> None:
    """Build the zoo's networks as C for microcontrollers and run them in QEMU: outputs, flash, RAM, instructions."""
    known = {target.name: target for target in microcontroller.TARGETS}
    asked = parse_names(processors)
    if strange := sorted(set(asked) - set(known)):
        raise OptionError(unknown("processor", strange[0], known))
    targets = [known[name] for name in asked]
    rows = microcontroller.measure_zoo(_chosen(networks), targets, data_folders(data_dir), _said)
    _report(rows, _microcontroller_words, "Firmware in QEMU, -O2, instructions an image", out)


def _microcontroller_words(row: Row) -> dict[str, str]:
    return {
        "name": row["name"],
        "arithmetic": row["arithmetic"],
        "processor": row["processor"],
        "accuracy": f"{100 * row['accuracy']:.2f} %",
        "flash": f"{row['flash']:,}",
        "RAM": f"{row['ram']:,}",
        "instructions": f"{row['instructions'] / 1e6:.2f} M",
        "fits 256 kB / 128 kB": "yes" if row["fits_256k_128k"] else "no",
    }


@app.command("int8")
def measure_int8(out: Out = None, networks: Networks = None, data_dir: DataDir = None) -> None:
    """Write the zoo's networks in fp16 and with int8 weights: bytes, and accuracy on all test images."""
    rows = int8.measure_zoo(_chosen(networks), data_folders(data_dir), _said)
    _report(rows, _int8_words, "Files of --deploy and of --deploy --int8", out)


def _int8_words(row: Row) -> dict[str, str]:
    return {
        "name": row["name"],
        "fp16 bytes": f"{row['fp16_bytes']:,}",
        "int8 bytes": f"{row['int8_bytes']:,}",
        "smaller": f"{row['smaller']:.2f}x",
        "exact": f"{100 * row['exact_accuracy']:.2f} %",
        "fp16": f"{100 * row['fp16_accuracy']:.2f} %",
        "int8": f"{100 * row['int8_accuracy']:.2f} %",
        "predicted otherwise": f"{row['changed']} of {row['images']}",
    }


@app.command("aarch64")
def count_on_aarch64(
    out: Out = None,
    networks: Networks = None,
    python: Annotated[
        str, typer.Option(help="Arguments of qemu-aarch64 that run a Python with ONNX Runtime; without it, not run.")
    ] = "",
) -> None:
    """Count instructions on 64-bit ARM in QEMU: the sparse runtime, and dense ONNX Runtime."""
    rows = aarch64.measure_zoo(_chosen(networks), shlex.split(python), _said)
    _report(rows, _aarch64_words, "Instructions an image on 64-bit ARM, one thread", out)


def _aarch64_words(row: Row) -> dict[str, str]:
    dense = row["onnxruntime"]
    return {
        "name": row["name"],
        "sparse runtime": f"{row['sparse_runtime'] / 1e6:.2f} M",
        "ONNX Runtime": f"{dense / 1e6:.1f} M" if dense else "",
        "fewer": f"{row['fewer']:.1f}x" if dense else "",
    }
