"""What fine-tuning gains at each rate, of logs written by hand."""

from pathlib import Path

import pytest

from hypersparse.analysis import finetuning
from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.errors import RunError
from tests.analysis.small import write

Epochs = list[tuple[float, float]]  # rate and test accuracy


def tuned(root: Path, epochs: Epochs, *, seed: int = 0, sparsity: float = 0.9) -> FinishedRun:
    folder = write(root, seed=seed, sparsity=sparsity).folder
    folder.log_file.unlink()
    folder.append_log({"epoch": 0, "phase": "regularize", "lr": 0.1, "train_accuracy": 0.0, "test_accuracy": 0.0})
    for number, (rate, accuracy) in enumerate(epochs, 1):
        scores = {"lr": rate, "train_accuracy": accuracy + 0.05, "test_accuracy": accuracy}
        folder.append_log({"epoch": number, "phase": "fine-tune", **scores})
    return load([folder.path])[0]


def test_accuracy_at_the_beginning_and_at_the_end_of_each_rate(tmp_path: Path) -> None:
    steps = [(0.1, 0.5)] * 10 + [(0.1, 0.2)] * 20 + [(0.1, 0.4)] * 10 + [(0.01, 0.7), (0.01, 0.8)]
    other = [(0.1, 0.6)] * 40 + [(0.01, 0.9)] * 2
    (study,) = finetuning.studies([tuned(tmp_path, steps), tuned(tmp_path, other, seed=1)])
    first, second = study.tables["finetuning-digits-resnet8-gains"].to_dict("records")
    assert (first["rate"], first["epochs"], first["seeds"]) == ("0.1", 40, 2)
    assert (first["test_first"], first["test_last"], first["test_gain"]) == pytest.approx((55, 50, -5))
    assert (second["rate"], second["epochs"]) == ("0.01", 2)
    assert (second["test_first"], second["test_last"], second["train_last"]) == pytest.approx((80, 85, 90))
    words = "\n".join(finetuning.section(study))
    assert words.startswith("Within one rate test accuracy changes by -5.00 to +5.00 points, +0.00 in the mean.")
    assert "| recipe | seeds | rate 0.1 | rate 0.01 |" in words
    assert "| 2 | 55.00 to 50.00 (40 epochs) | 80.00 to 85.00 (2 epochs) |" in words
    assert len(study.data) == 2 * 42


def test_a_rate_that_falls_all_the_time_is_no_steady_one(tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5 + 0.01 * number) for number in range(8)]
    runs = [tuned(tmp_path, falling), tuned(tmp_path, [(0.1, 0.6)] * 4, sparsity=0.98)]
    (study,) = finetuning.studies(runs)
    words = "\n".join(finetuning.section(study))
    assert "changes by +0.00 to +0.00 points" in words
    assert "| rate from 0.1 on | rate 0.1 |" in words
    assert "| 51.50 to 55.50 (8 epochs) |  |" in words


def test_a_rate_that_comes_again_is_not_lost_and_one_epoch_says_nothing(tmp_path: Path) -> None:
    cycle = [(0.1, 0.5)] * 4 + [(0.01, 0.7)] * 4 + [(0.1, 0.6)] * 4 + [(0.001, 0.9)]
    (study,) = finetuning.studies([tuned(tmp_path, cycle)])
    said, _, head, _, row = finetuning.section(study)
    assert said == "Within one rate test accuracy changes by +0.00 to +0.00 points, +0.00 in the mean."
    assert head == "| recipe | seeds | rate 0.1 | rate 0.01 | rate 0.001 |"
    assert "| 50.00 to 50.00 (4 epochs), again 60.00 to 60.00 (4 epochs) |" in row
    assert row.endswith("| 90.00 to 90.00 (1 epoch) |")


@pytest.mark.parametrize("count", [3, 8])
def test_a_short_cosine_falls_too_and_many_steps_do_not(count: int, tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5 + 0.01 * number) for number in range(count)]
    steps = [(0.1 / 2**number, 0.5) for number in range(6) for _ in range(5)]
    runs = [tuned(tmp_path, falling), tuned(tmp_path, steps, sparsity=0.98)]
    (study,) = finetuning.studies(runs)
    rates = study.tables["finetuning-digits-resnet8-gains"]["rate"]
    assert rates.str.startswith("from").tolist() == [True] + [False] * 6


def test_of_falling_rates_alone_nothing_is_said_of_steady_ones(tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5) for number in range(8)]
    (study,) = finetuning.studies([tuned(tmp_path, falling)])
    assert finetuning.section(study)[0].startswith("| recipe ")


def test_seeds_with_other_stages_are_drawn_but_have_no_row(tmp_path: Path) -> None:
    runs = [tuned(tmp_path, [(0.1, 0.5)] * 4), tuned(tmp_path, [(0.1, 0.5), (0.01, 0.6)], seed=1)]
    (study,) = finetuning.studies(runs)
    assert study.tables["finetuning-digits-resnet8-gains"].empty
    assert len(study.figure.axes[0].lines) == 2
    assert finetuning.section(study) == []


def test_without_fine_tuning_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="None of these runs was fine-tuned"):
        finetuning.studies([tuned(tmp_path, [])])
