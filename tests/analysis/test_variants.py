"""Variants against the plain recipe, seed by seed."""

from pathlib import Path
from typing import Any

import pytest

from hypersparse.analysis.variants import variants
from hypersparse.runs.store import RunStore
from tests.analysis.small import write
from tests.stored import whole_entry


def run(root: Path, seed: int, last: float, *, epochs: int = 5, **changed: Any) -> None:
    result = {"sparse": {"last": last, "best": last + 0.01}, "epochs": {"fine-tune": epochs}, **changed}
    write(root, seed=seed, **result)


def test_differences_are_over_the_seeds_of_both(tmp_path: Path) -> None:
    for seed, last in enumerate((0.90, 0.91, 0.80)):
        run(tmp_path, seed, last)
    for seed, last in ((0, 0.91), (1, 0.94), (7, 0.5)):  # nobody trained seed 7 plainly
        run(tmp_path, seed, last, epochs=4, method_options={"best_by": "mean"})
    found = variants(RunStore(tmp_path))
    (row,) = found[found["seeds"] > 0].to_dict("records")
    assert (row["data"], row["method"], row["sparsity"], row["variant"]) == (
        "digits", "art", 0.9, "art hypersparse, best_by=mean",
    )  # fmt: skip
    assert (row["seeds"], row["pairs"]) == (3, 2)
    assert row["last"] == pytest.approx((91 + 94 + 50) / 3)
    assert row["last_difference"] == pytest.approx(2.0)  # 1 and 3 points
    assert row["best_difference"] == pytest.approx(2.0)
    assert row["preset_seeds"] == 3
    assert row["last_minus_preset"] == pytest.approx((91 + 94 + 50) / 3 - (90 + 91 + 80) / 3, abs=1e-4)
    assert row["epochs_difference"] == -1
    assert row["high"] - 2.0 == pytest.approx(12.706 * 2**0.5 / 2**0.5, rel=1e-3)  # Student's t with one degree


def test_the_loss_on_training_images_is_compared_too(tmp_path: Path) -> None:
    for options, losses in (({}, (0.5, 0.52)), ({"best_by": "mean"}, (0.4, 0.42))):
        for seed, loss in enumerate(losses):
            folder = write(tmp_path, seed=seed, method_options=options).folder
            folder.append_log(whole_entry(epoch=5, phase="fine-tune", loss=loss))
    found = variants(RunStore(tmp_path))
    (row,) = found[found["seeds"] > 0].to_dict("records")
    assert (row["loss"], row["loss_difference"]) == pytest.approx((0.41, -0.1))


def test_without_the_plain_recipe_there_is_no_difference(tmp_path: Path) -> None:
    run(tmp_path, 0, 0.9, method_options={"stop_reference": "paper"})
    run(tmp_path, 0, 0.9, method_options={"growth": 1.5}, until="regularize")  # nor of what ended early
    found = variants(RunStore(tmp_path))
    (row,) = found[found["seeds"] > 0].to_dict("records")
    assert (row["variant"], row["pairs"]) == ("art hypersparse, stop_reference=paper", 0)
    assert row["last_difference"] != row["last_difference"]  # not a number
    assert (row["preset_seeds"], row["last_minus_preset"]) == (0, pytest.approx(float("nan"), nan_ok=True))


def test_variants_stand_by_their_sparsity_with_the_papers_number(tmp_path: Path) -> None:
    where = {"data": "cifar10", "model": "resnet32"}
    for sparsity, growth in ((0.998, 1.01), (0.98, 1.03), (0.98, 1.02)):
        run(tmp_path, 0, 0.91, sparsity=sparsity, method_options={"growth": growth}, **where)
    run(tmp_path, 0, 0.91, sparsity=0.98, method_options={"growth": 1.02})  # digits are not in the paper
    found = variants(RunStore(tmp_path))
    rows = found[found["seeds"] > 0]
    assert rows["data"].tolist() == ["cifar10"] * 3 + ["digits"]
    assert rows["sparsity"].tolist() == [0.98, 0.98, 0.998, 0.98]
    assert rows["variant"].str[-4:].tolist() == ["1.02", "1.03", "1.01", "1.02"]
    assert rows["minus_paper"].tolist()[:3] == pytest.approx([92 - 92.69, 92 - 92.69, 92 - 84.45])
    assert rows["minus_paper"].isna().tolist() == [False] * 3 + [True]
    assert rows["epochs"].tolist() == [5] * 4
