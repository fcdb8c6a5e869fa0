"""What fine-tuning gains at each rate, of logs written by hand."""

import json
from pathlib import Path

import pytest

from hypersparse.analysis.finished_runs import FinishedRun, load
from hypersparse.errors import RunError
from reproduction.figures import finetuning
from tests.analysis.small import write
from tests.stored import whole_entry

Epochs = list[tuple[float, float]]  # rate and test accuracy


def tuned(root: Path, epochs: Epochs, *, seed: int = 0, sparsity: float = 0.9) -> FinishedRun:
    folder = write(root, seed=seed, sparsity=sparsity).folder
    folder.log_file.unlink()
    folder.timing_file.unlink()
    folder.append_log(whole_entry(phase="regularize", train_accuracy=0.0, test_accuracy=0.0))
    for number, (rate, accuracy) in enumerate(epochs, 1):
        scores = {"lr": rate, "train_accuracy": accuracy + 0.05, "test_accuracy": accuracy}
        folder.append_log(whole_entry(epoch=number, phase="fine-tune", **scores))
    counts = {"regularize": 1} | ({"fine-tune": len(epochs)} if epochs else {})
    result = json.loads(folder.result_file.read_text()) | {"epochs": counts, "epochs_total": 1 + len(epochs)}
    folder.result_file.write_text(json.dumps(result))
    return load([folder.path])[0]


def test_accuracy_at_the_beginning_and_at_the_end_of_each_rate(tmp_path: Path) -> None:
    steps = [(0.1, 0.5)] * 10 + [(0.1, 0.2)] * 20 + [(0.1, 0.4)] * 10 + [(0.01, 0.7), (0.01, 0.8)]
    other = [(0.1, 0.6)] * 40 + [(0.01, 0.9)] * 2
    (result,) = finetuning.analyze([tuned(tmp_path, steps), tuned(tmp_path, other, seed=1)])
    first, second = result.tables["finetuning-digits-resnet8-gains"].to_dict("records")
    assert (first["rate"], first["epochs"], first["seeds"]) == ("0.1", 40, 2)
    assert (first["test_first"], first["test_last"], first["test_gain"]) == pytest.approx((55, 50, -5))
    assert (second["rate"], second["epochs"]) == ("0.01", 2)
    assert (second["test_first"], second["test_last"], second["train_last"]) == pytest.approx((80, 85, 90))
    assert len(result.data) == 2 * 42


@pytest.mark.parametrize("count", [3, 8])
def test_a_short_cosine_falls_too_and_many_steps_do_not(count: int, tmp_path: Path) -> None:
    falling = [(0.1 - 0.01 * number, 0.5 + 0.01 * number) for number in range(count)]
    steps = [(0.1 / 2**number, 0.5) for number in range(6) for _ in range(5)]
    runs = [tuned(tmp_path, falling), tuned(tmp_path, steps, sparsity=0.98)]
    (result,) = finetuning.analyze(runs)
    rates = result.tables["finetuning-digits-resnet8-gains"]["rate"]
    assert rates.str.startswith("from").tolist() == [True] + [False] * 6


def test_seeds_with_other_stages_are_drawn_but_have_no_row(tmp_path: Path) -> None:
    runs = [tuned(tmp_path, [(0.1, 0.5)] * 4), tuned(tmp_path, [(0.1, 0.5), (0.01, 0.6)], seed=1)]
    (result,) = finetuning.analyze(runs)
    assert result.tables["finetuning-digits-resnet8-gains"].empty
    assert len(result.figure.axes[0].lines) == 2


def test_without_fine_tuning_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="None of these runs has a fine-tuning phase"):
        finetuning.analyze([tuned(tmp_path, [])])
