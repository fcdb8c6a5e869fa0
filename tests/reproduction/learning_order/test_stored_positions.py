"""Compression Position without the data set: the means that are kept beside runs, and the page made of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from hypersparse.errors import RunError
from reproduction.__main__ import app
from reproduction.learning_order.compression_position import by_seed, learning_orders
from reproduction.learning_order.samples import samples_of
from reproduction.learning_order.stored_positions import (
    FILE,
    as_csv,
    read_positions,
    runs_with_positions,
    write_positions,
)
from tests.analysis.recorded import dataset, runs_in, store
from tests.reproduction.learning_order.test_compression_position import LABELS, human

IMAGES = 1437  # of digits
RESULTS = Path(__file__).parents[3] / "results"


def kept_runs(root: Path, *, hard: bool = True) -> None:
    """Two sparsities that share their pre-training, with their means beside them."""
    for sparsity in (0.98, 0.998):
        store(root, dense=[2, 1, 1, 0], pruned=[2, 2, 1, 0], data="cifar10", sparsity=sparsity)
    runs = runs_in(root)
    samples = samples_of(runs, dataset(LABELS), human(LABELS, [0, 1, 0, 1]) if hard else None)
    assert len(write_positions(runs, samples)) == 2


def test_what_is_read_is_what_was_counted(tmp_path: Path) -> None:
    kept_runs(tmp_path)
    runs = runs_in(tmp_path)
    samples = samples_of(runs, dataset(LABELS), human(LABELS, [0, 1, 0, 1]))
    wanted = by_seed(learning_orders(runs, samples), samples)
    came = read_positions(runs_with_positions(runs)).drop(columns="data")
    order = ["sparsity", "human_label_errors", "class"]
    wanted, came = (frame.sort_values(order).reset_index(drop=True)[sorted(frame)] for frame in (wanted, came))
    pd.testing.assert_frame_equal(came, wanted, check_dtype=False, rtol=1e-5)  # the dense rows count once


def test_means_by_hardness_are_not_lost_where_nobody_says_how_hard_images_are(tmp_path: Path) -> None:
    kept_runs(tmp_path)
    runs = runs_in(tmp_path)
    first, second = (run.folder.path / FILE for run in runs)
    texts = first.read_text(), second.read_text()
    without = samples_of(runs, dataset(LABELS), None)
    first.write_text("")  # unreadable, and so no loss
    with pytest.raises(RunError, match="which would be lost; pass CIFAR-N's labels with `--human`"):
        write_positions(runs, without)
    assert (first.read_text(), second.read_text()) == ("", texts[1])
    second.unlink()
    assert write_positions(runs, without) == [first, second]
    write_positions(runs, samples_of(runs, dataset(LABELS), human(LABELS, [0, 1, 0, 1])))
    assert (first.read_text(), second.read_text()) == texts


@pytest.mark.parametrize("sparsity", [0.95123456789, 1 - 1 / 3, 0.1 + 0.2])
def test_a_sparsity_of_many_digits_is_read_as_it_was(tmp_path: Path, sparsity: float) -> None:
    store(tmp_path, pruned=[2, 2, 1, 0], data="cifar10", sparsity=sparsity)
    runs = runs_in(tmp_path)
    write_positions(runs, samples_of(runs, dataset(LABELS), None))
    assert set(read_positions(runs)["sparsity"]) == {sparsity}


@pytest.mark.parametrize("path", sorted(RESULTS.glob(f"*/seed-*/{FILE}")), ids=lambda path: path.parent.parent.name)
def test_what_is_stored_is_written_the_same_again(path: Path) -> None:
    assert as_csv(pd.read_csv(path)) == path.read_text()


def test_a_variant_that_had_another_name_is_still_read(tmp_path: Path) -> None:
    store(tmp_path, dense=[2, 1, 0], pruned=[2, 1, 0], data="cifar10", validation=1)
    runs = runs_in(tmp_path)
    (path,) = write_positions(runs, samples_of(runs, dataset(LABELS), None))
    text = path.read_text()
    path.write_text(text.replace('"art hypersparse, validation=1"', "art hypersparse validation=1"))
    assert path.read_text() != text
    assert set(read_positions(runs)["method"]) == {"pre-training", "art hypersparse, validation=1"}


def test_means_of_another_record_are_refused(tmp_path: Path) -> None:
    kept_runs(tmp_path)
    paths = sorted(tmp_path.glob(f"*/seed-0/{FILE}"))
    text = paths[0].read_text()
    for wrong in (text.replace("0.98,", "0.95,"), text.replace(",0.25,", ",0.35,"), "a,b\n1,2\n", ""):
        assert wrong != text
        paths[0].write_text(wrong)
        with pytest.raises(RunError, match=r"python -m reproduction store-positions"):
            read_positions(runs_in(tmp_path))


def test_the_command_writes_means_beside_digits(tmp_path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 3, IMAGES)
    folder = store(tmp_path / "runs", dense=counts, pruned=counts[::-1])
    done = CliRunner().invoke(app, ["store-positions", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(folder / FILE)
    assert set(read_positions(runs_in(tmp_path / "runs"))["human_label_errors"]) == {-1}
    (folder / "record.npz").unlink()
    done = CliRunner().invoke(app, ["store-positions", str(tmp_path / "runs")])
    assert isinstance(done.exception, RunError)
    assert "has a record" in str(done.exception)
