"""`hypersparse zoo`: the list."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse import zoo
from hypersparse.cli.load_network import NetworkQuery, open_network
from hypersparse.cli.main import app
from hypersparse.errors import RunError
from hypersparse.zoo.find_network import in_zoo


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
    done = CliRunner().invoke(app, ["evaluate", "digits-resnet8-0.98"], catch_exceptions=False)
    assert "dead structure of the trained network is not in the file" in done.stdout
