"""Compression Position on the page, made of the means beside the runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from reproduction import positions_section as positions
from reproduction.learning_order.samples import samples_of
from reproduction.learning_order.stored_positions import runs_with_positions, write_positions
from reproduction.superclasses import SUPERCLASSES
from tests.analysis.recorded import dataset, runs_in, store
from tests.reproduction.learning_order.test_stored_positions import kept_runs


def test_the_page_has_the_papers_seven_rows(tmp_path: Path) -> None:
    kept_runs(tmp_path)
    (result,) = positions.analyze(runs_in(tmp_path))
    assert result.name == "positions-cifar10-resnet32"
    assert result.figure.get_suptitle().endswith("(resnet32)")
    lines = positions.table_below(result)
    rows = [line.split(" | ") for line in lines]
    assert [row[1] for row in rows[2:9]] == ["1", "missing", "missing", "1", "missing", "missing", "1"]
    other = positions.table_below(replace(result, name="positions-cifar10-vgg19"))  # nobody says whose they are
    assert other == lines
    (deer,) = [row for row in rows if row[:2] == ["| 0.98", "0"]]
    assert deer[2] == "0.250 (0.045)"  # the only image of a deer that nobody named wrongly, and the paper's mean


def test_without_people_there_is_one_row_a_level(tmp_path: Path) -> None:
    kept_runs(tmp_path, hard=False)
    (result,) = positions.analyze(runs_in(tmp_path))
    *_, first, second, third, empty, end = positions.table_below(result)
    assert [line.split(" | ")[1] for line in (first, second, third)] == ["all images"] * 3
    assert (empty, end) == ("", "</details>")


def test_runs_without_means_give_no_figure(tmp_path: Path) -> None:
    store(tmp_path, dense=[2, 1, 1, 0], data="cifar10")
    assert positions.analyze(runs_in(tmp_path)) == []
    assert runs_with_positions(runs_in(tmp_path)) == []


def test_of_cifar100_the_page_has_its_super_classes(tmp_path: Path) -> None:
    names = tuple(sorted(name for kind in SUPERCLASSES.values() for name in kind))
    labels = list(range(100))
    right = np.array([int(name in SUPERCLASSES["trees"]) for name in names])
    store(tmp_path, dense=right, pruned=1 - right, data="cifar100", sparsity=0.98)
    runs = runs_in(tmp_path)
    write_positions(runs, samples_of(runs, dataset(labels, name="cifar100", classes=names), None))
    (result,) = positions.analyze(runs)
    lines = positions.table_below(result)
    table = lines[lines.index("| super-class | dense | 0.98 |") : -2]
    assert len(table) == 2 + 20
    assert lines[-2:] == ["", "</details>"]
    assert table[2] == "| trees | 0.025 | 0.975 |"  # five of a hundred images come first, or last
    assert set(table[3:]) >= {"| large man-made outdoor things | 0.525 | 0.475 |"}
