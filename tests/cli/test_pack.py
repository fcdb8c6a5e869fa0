from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hypersparse.cli.pack import pack, unpack
from hypersparse.errors import RunError
from hypersparse.runs.store import RunStore, find_all
from tests.runs.tiny import FINISHED, STOPPED, UNTIL, recipe, run_of

app = typer.Typer()
app.command()(pack)
app.command()(unpack)


def call(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_runs_go_from_one_folder_to_another(store: RunStore, tmp_path: Path) -> None:
    text = call("pack", recipe().label, "-o", tmp_path / "pack", "--runs-dir", store.root)
    assert text.startswith("3 runs in ")
    text = call("unpack", tmp_path / "pack", "--runs-dir", tmp_path / "other")
    assert text.endswith(f"3 runs unpacked into {tmp_path / 'other'}\n")
    assert [run.path.name for run in RunStore(tmp_path / "other").runs()] == ["seed-0", "seed-1", "seed-2"]
    text = call("unpack", tmp_path / "pack", "--runs-dir", tmp_path / "other")
    assert text.count("is already there") == 3
    assert "0 runs unpacked" in text


def test_a_run_being_trained_is_left_out_and_said(store: RunStore, tmp_path: Path) -> None:
    with run_of(store, STOPPED).locked():
        text = call("pack", store.root, "-o", tmp_path / "pack")
        assert f"left out: a process is training in {run_of(store, STOPPED).path}" in text
        assert "2 runs" in text
        with pytest.raises(RunError, match="no runs to pack"):
            call("pack", run_of(store, STOPPED).path, "-o", tmp_path / "pack")


def test_runs_are_named_in_many_ways_and_packed_once(store: RunStore) -> None:
    paths = [run_of(store, seed).path for seed in (FINISHED, STOPPED, UNTIL)]
    assert find_all([str(paths[0])], store) == paths[:1]
    assert find_all(["seed-1"], store) == paths[1:2]
    assert find_all([recipe().label], store) == paths
    assert find_all([str(store.root / recipe().label)], store) == paths
    assert find_all([str(store.root), "seed-2", f"{recipe().key}/seed-0"], store) == paths


def test_a_name_nobody_has(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no run `vgg`"):
        call("pack", "vgg", "-o", tmp_path / "pack", "--runs-dir", store.root)
    with pytest.raises(RunError, match="is not a whole pack"):
        call("unpack", tmp_path, "--runs-dir", store.root)
