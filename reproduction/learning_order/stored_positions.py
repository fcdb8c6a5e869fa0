"""Compression Position of stored runs: `positions.csv` in a run's folder, means by class and hardness.

The labels of CIFAR and CIFAR-N are not in this repository, and only these means are needed. `python -m
reproduction store-positions` writes them on a machine that has the data, and the page is built from them anywhere.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from hypersparse.analysis.finished_runs import FinishedRun
from hypersparse.errors import RunError
from hypersparse.storage.files import write_text
from reproduction.learning_order.compression_position import (
    ALL,
    PRETRAINING,
    LearningOrder,
    by_seed,
    learning_orders_of,
)
from reproduction.learning_order.samples import Samples, check_counts

FILE = "positions.csv"
COMMAND = "python -m reproduction store-positions"
COLUMNS = ["model", "method", "sparsity", "seed", "epochs", "human_label_errors", "class", "images"]
MEANS = ["compression_position", "psi"]
CLOSE = 1e-4  # of the means as they are written


def write_positions(runs: Sequence[FinishedRun], samples: Samples) -> list[Path]:
    """Write the means of every run that counted images; returns the files."""
    if samples.hardness is None:
        _check_none_is_lost([run.folder.path / FILE for run in runs])
    written = []
    for run in runs:
        check_counts(run, samples)
        networks = list(learning_orders_of(run))
        if networks:
            path = run.folder.path / FILE
            rows = by_seed(networks, samples)[[*COLUMNS, *MEANS]]
            write_text(path, as_csv(rows))
            written.append(path)
    return written


def _check_none_is_lost(paths: Sequence[Path]) -> None:
    """Raise an error before means by hardness are lost, which need CIFAR-N's labels."""
    for path in paths:
        try:
            known = set(pd.read_csv(path)["human_label_errors"]) if path.is_file() else set()
        except (OSError, ValueError, KeyError):  # what cannot be read is no loss
            continue
        if known - {ALL}:
            raise RunError(
                f"{path} has means by label errors, which would be lost; pass CIFAR-N's labels with "
                "`--human`, or delete the file."
            )


def as_csv(rows: pd.DataFrame) -> str:
    """Means with six digits, and the sparsity with all digits, since it identifies the record."""
    means = {name: [f"{mean:.6g}" for mean in rows[name]] for name in MEANS}
    exact = [repr(float(sparsity)).removesuffix(".0") for sparsity in rows["sparsity"]]
    return rows.assign(sparsity=exact, **means).to_csv(index=False)


def runs_with_positions(runs: Sequence[FinishedRun]) -> list[FinishedRun]:
    """The runs with stored means."""
    return [run for run in runs if (run.folder.path / FILE).is_file()]


def read_positions(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """The stored rows, in the format of `by_seed`; shared pre-trainings count once."""
    frames = [_read(run).assign(data=run.settings["data"]) for run in runs]
    return pd.concat(frames, ignore_index=True).drop_duplicates(ignore_index=True)


def _read(run: FinishedRun) -> pd.DataFrame:
    path = run.folder.path / FILE
    try:
        rows = pd.read_csv(path, converters={"sparsity": float})[[*COLUMNS, *MEANS]]  # pandas may miss the last digit
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} cannot be read ({error}); write it again with `{COMMAND}`.") from None
    networks = list(learning_orders_of(run))
    dense = rows["method"].astype(str).str.startswith(PRETRAINING)
    rows["method"] = rows["method"].where(dense, run.variant)  # a variant may have had another name when it was kept
    levels = {(network.settings["method"], network.sparsity) for network in networks}
    if set(zip(rows["method"], rows["sparsity"], strict=True)) != levels:
        raise _foreign(path)
    for network in networks:
        _check(path, network, rows)
    return rows.assign(**{"class": rows["class"].astype(str)})


def _check(path: Path, network: LearningOrder, rows: pd.DataFrame) -> None:
    """Check that the means over classes are those of the record."""
    words = network.settings
    own = rows[(rows["method"] == words["method"]) & (rows["sparsity"] == words["sparsity"])]
    own = own[own["human_label_errors"] == ALL]
    wanted = {"compression_position": 0.5, "psi": float(network.correct.mean()) / network.epochs}
    same = own["images"].sum() == len(network.correct) and (own["epochs"] == network.epochs).all()
    if not same or any(
        abs(np.average(own[name], weights=own["images"]) - mean) > CLOSE for name, mean in wanted.items()
    ):
        raise _foreign(path)


def _foreign(path: Path) -> RunError:
    return RunError(f"{path} does not match the record beside it; write it again with `{COMMAND}`.")
