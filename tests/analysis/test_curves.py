from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from hypersparse.analysis.curves import draw, phase_spans, save
from hypersparse.analysis.layers import LayerWeights, layer_weights
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from tests.analysis.report.made import make_run
from tests.runs.tiny import FINISHED, STOPPED, UNTIL, cut, recipe, run_of


def test_phases_have_their_first_and_last_epoch(store: RunStore) -> None:
    spans = phase_spans(run_of(store, FINISHED).log())
    assert spans == [("pre-train", 0, 0), ("regularize", 1, 2), ("fine-tune", 3, 4)]


def test_a_finished_run_has_three_panels(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    figure = draw(run)
    accuracy, penalty, bars, _ = figure.axes  # the fourth is the right scale of the penalty
    lines = {str(line.get_label()): line.get_xydata() for line in accuracy.lines}
    assert [float(point[1]) for point in lines["test"]] == [100 * entry["test_accuracy"] for entry in run.log()]
    assert [float(point[0]) for point in lines["pruned score (training images)"]] == [1, 2]
    assert any("best (picked on test)" in label for label in lines)
    assert penalty.get_yscale() == bars.get_xscale() == "log"
    assert len(bars.patches) == 2 * len(layer_weights(run))
    assert {"pre-train (1 epoch)", "fine-tune (2 epochs)"} <= {text.get_text() for text in accuracy.texts}
    assert recipe().label in figure.get_suptitle()


def test_without_a_penalty_there_is_no_panel_for_it(store: RunStore) -> None:
    assert len(draw(run_of(store, UNTIL)).axes) == 2


def test_an_unfinished_run_is_drawn(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    cut(run, epochs=2)
    assert "stopped in regularize at epoch 2" in draw(run).get_suptitle()


def test_what_cannot_be_drawn_is_one_sentence(store: RunStore) -> None:
    with pytest.raises(RunError, match="has not finished an epoch"):
        draw(run_of(store, STOPPED))
    run = run_of(store, FINISHED)
    run.recipe_file.write_text("[")
    with pytest.raises(RunError, match="is damaged and cannot be drawn"):
        draw(run)


def test_the_picture_appears_whole(store: RunStore, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    save(run_of(store, FINISHED), folder / "run.png")
    assert (folder / "run.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in folder.iterdir()] == ["run.png"]
    with pytest.raises(RunError, match="could not be written"):
        save(run_of(store, FINISHED), tmp_path / "nowhere" / "run.png")


def test_layers_of_a_finished_and_an_unfinished_run(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    result = run.result()
    assert result is not None
    found = layer_weights(run)
    assert found[0] == LayerWeights("conv1", result["kept_by_layer"]["conv1.weight"], 36)
    assert sum(layer.kept for layer in found) == 249
    cut(run, epochs=3)
    assert layer_weights(run) == [
        LayerWeights(f"layer {number}", kept, None)
        for number, kept in enumerate(run.log()[2]["kept_by_layer"], start=1)
    ]
    run.cut_log(1)
    assert layer_weights(run) == []


def test_names_of_phases_do_not_lie_over_each_other(tmp_path: Path) -> None:
    run = make_run(tmp_path, layers=34, epochs=860)
    result = run.result()
    assert result is not None
    rounds = ["dense", *(f"round {number}" for number in range(1, 6))]  # as IMP has
    plan = ["begin"] * 20 + [name for name in rounds for _ in range(140)]
    entries = [{**entry, "phase": phase} for entry, phase in zip(run.log(), plan, strict=True)]
    run.log_file.unlink()
    run.timing_file.unlink()
    for entry in entries:
        run.append_log(entry)
    run.write_result({**result, "epochs": dict(Counter(plan))})
    figure = draw(run)
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 7
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
