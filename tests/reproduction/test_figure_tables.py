"""Tables under figures of the page, of logs written by hand."""

from pathlib import Path

from reproduction.figure_tables import finetuning_table
from reproduction.figures import finetuning
from tests.reproduction.figures.test_finetuning import tuned


def test_a_row_of_each_recipe_has_both_ends_of_each_rate(tmp_path: Path) -> None:
    steps = [(0.1, 0.5)] * 10 + [(0.1, 0.2)] * 20 + [(0.1, 0.4)] * 10 + [(0.01, 0.7), (0.01, 0.8)]
    other = [(0.1, 0.6)] * 40 + [(0.01, 0.9)] * 2
    (result,) = finetuning.analyze([tuned(tmp_path, steps), tuned(tmp_path, other, seed=1)])
    words = "\n".join(finetuning_table(result))
    assert words.startswith(
        "Within one learning rate the test accuracy changes by -5.00 to +5.00 points, on average by +0.00."
    )
    assert "| recipe | seeds | rate 0.1 | rate 0.01 |" in words
    assert "| 2 | 55.00 to 50.00 (40 epochs) | 80.00 to 85.00 (2 epochs) |" in words


def test_a_rate_that_falls_all_the_time_is_no_steady_one(tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5 + 0.01 * number) for number in range(8)]
    runs = [tuned(tmp_path, falling), tuned(tmp_path, [(0.1, 0.6)] * 4, sparsity=0.98)]
    (result,) = finetuning.analyze(runs)
    words = "\n".join(finetuning_table(result))
    assert "changes by +0.00 to +0.00 points" in words
    assert "| rate from 0.1 on | rate 0.1 |" in words
    assert "| 51.50 to 55.50 (8 epochs) |  |" in words


def test_a_rate_that_comes_again_is_not_lost_and_one_epoch_says_nothing(tmp_path: Path) -> None:
    cycle = [(0.1, 0.5)] * 4 + [(0.01, 0.7)] * 4 + [(0.1, 0.6)] * 4 + [(0.001, 0.9)]
    (result,) = finetuning.analyze([tuned(tmp_path, cycle)])
    said, _, head, _, row = finetuning_table(result)
    assert said == "Within one learning rate the test accuracy changes by +0.00 to +0.00 points, on average by +0.00."
    assert head == "| recipe | seeds | rate 0.1 | rate 0.01 | rate 0.001 |"
    assert "| 50.00 to 50.00 (4 epochs), again 60.00 to 60.00 (4 epochs) |" in row
    assert row.endswith("| 90.00 to 90.00 (1 epoch) |")


def test_of_falling_rates_alone_nothing_is_said_of_steady_ones(tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5) for number in range(8)]
    (result,) = finetuning.analyze([tuned(tmp_path, falling)])
    assert finetuning_table(result)[0].startswith("| recipe ")


def test_seeds_with_other_stages_have_no_table(tmp_path: Path) -> None:
    runs = [tuned(tmp_path, [(0.1, 0.5)] * 4), tuned(tmp_path, [(0.1, 0.5), (0.01, 0.6)], seed=1)]
    (result,) = finetuning.analyze(runs)
    assert finetuning_table(result) == []
