import pytest
import typer
from typer.testing import CliRunner

from hypersparse.cli.formats import sparkline
from hypersparse.cli.show import show
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore
from tests.runs.tiny import FINISHED, STOPPED, UNTIL, cut, recipe, run_of

app = typer.Typer()
app.command()(show)


def shown(store: RunStore, *arguments: str) -> str:
    command = [*arguments, "--runs-dir", str(store.root)]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_finished_run_is_told(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    text = shown(store, f"{recipe().key}/seed-0")
    assert text.startswith(recipe().label)
    last = 100 * run.log()[-1]["test_accuracy"]
    assert f"{last:.2f} %" in text
    assert "picked on it too" in text
    for words in (
        "pre-train",
        "regularize",
        "fine-tune",
        "pruned",
        "layer3.0.conv2",
        "4,964",
        "effective",
        "FLOPs of training",
    ):
        assert words in text


def test_best_picked_on_validation_is_said(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    result = run.result()
    assert result is not None
    result["sparse"]["best_picked_on"] = "validation"
    run.write_result(result)
    assert "picked on the validation set" in shown(store, str(run.path))


def test_unfinished_runs_are_shown(store: RunStore) -> None:
    assert "No epoch is finished yet" in shown(store, str(run_of(store, STOPPED).path))
    assert "until pre-train" in shown(store, str(run_of(store, UNTIL).path))
    run = run_of(store, FINISHED)
    cut(run, epochs=3)
    text = shown(store, str(run.path))
    assert "stopped in regularize at epoch 3" in text
    assert "What pruning would keep" in text


def test_what_cannot_be_shown_is_one_sentence(store: RunStore) -> None:
    with pytest.raises(RunError, match="There is no run `vgg`"):
        shown(store, "vgg")
    with pytest.raises(RunError, match="has 3 runs"):
        shown(store, recipe().label)
    run_of(store, FINISHED).result_file.write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        shown(store, "seed-0")


def test_curves_fit_their_width() -> None:
    assert sparkline([0.1, 0.1], 10) == "▄▄"
    assert sparkline([], 10) == ""
    assert sparkline([float(number) for number in range(100)], 4) == "▂▄▅▇"
