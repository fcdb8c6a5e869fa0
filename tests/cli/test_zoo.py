"""`hypersparse zoo`: the list, and new entries."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse import zoo
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.main import app
from hypersparse.errors import OptionError, RunError
from hypersparse.zoo.find_network import in_zoo
from tests.runs.tiny import FINISHED, run_of, tiny_store


def call(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, ["zoo", *map(str, arguments)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_list_has_every_network() -> None:
    text = call()
    for entry in zoo.entries():
        (line,) = [line for line in text.splitlines() if line.startswith(f"{entry.name} ")]
        shown = [f"{entry.bytes:,}", f"{100 * entry.last:.2f}", f"{100 * entry.best:.2f}", str(entry.seed)]
        assert all(part in line.split() for part in shown)
    assert [each["name"] for each in json.loads(call("--json"))] == zoo.names()


def test_a_run_is_added_and_listed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = run_of(tiny_store(tmp_path / "runs", tmp_path_factory), FINISHED)
    assert "mine" in call("--add", run.path, "--folder", tmp_path / "zoo", "--name", "mine")
    assert "mine" in call("--folder", tmp_path / "zoo")
    assert zoo.load("mine", folder=tmp_path / "zoo").input_shape == (1, 8, 8)


def test_an_empty_folder_has_no_table(tmp_path: Path) -> None:
    text = call("--folder", tmp_path)
    assert text == f"There are no networks in {tmp_path}; `hypersparse zoo --add RUN --folder {tmp_path}` adds one.\n"
    assert json.loads(call("--folder", tmp_path, "--json")) == []


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="go with `--add RUN`"):
        call("--name", "x")
    with pytest.raises(RunError, match="There is no run"):
        call("--add", "nothing", "--runs-dir", tmp_path)
    with pytest.raises(OptionError, match="There is no folder"):
        call("--folder", tmp_path / "none")


def test_other_commands_know_the_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = CliRunner().invoke(app, ["evaluate", "digits-resnet8-0.95", "--json"], catch_exceptions=False)
    assert json.loads(found.stdout)["test_accuracy"] == pytest.approx(zoo.entry("digits-resnet8-0.95").test_accuracy)
    monkeypatch.chdir(tmp_path)
    assert in_zoo("digits-resnet8-0.95") == zoo.path_of("digits-resnet8-0.95")
    (tmp_path / "digits-resnet8-0.95").mkdir()  # a folder of that name is meant
    assert in_zoo("digits-resnet8-0.95") is None
    assert in_zoo("nothing") is None
    with pytest.raises(RunError, match=r"no run `digits-resnet8-0\.97` .* did you mean digits-resnet8-0\.9"):
        open_network("digits-resnet8-0.97", NetworkQuery(runs_dir=tmp_path))
    with pytest.raises(RunError, match=r"lists them\.$"):
        open_network("something", NetworkQuery(runs_dir=tmp_path))


def test_evaluate_says_the_sparsity_that_the_name_does() -> None:
    done = CliRunner().invoke(app, ["evaluate", "digits-resnet8-0.98", "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert found["recipe_sparsity"] == 0.98
    assert found["sparsity"] < 0.98  # of what is left without dead structure
