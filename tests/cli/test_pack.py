from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hypersparse.cli.pack import pack, unpack
from hypersparse.errors import OptionError, RunError
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
    text = call("pack", recipe().label, "-o", tmp_path / "pack", "--max-bytes", "20k", "--runs-dir", store.root)
    assert text.startswith("3 runs, ")
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


def test_a_run_that_lies_in_the_earlier_pack_alone_is_not_lost(store: RunStore, tmp_path: Path) -> None:
    pack, other, seeds = tmp_path / "pack", tmp_path / "other", [run_of(store, seed).path for seed in (STOPPED, UNTIL)]
    call("pack", *seeds, "-o", pack, "--runs-dir", other)
    before = (pack / "index.json").read_bytes()
    with pytest.raises(RunError, match=rf"pack has .*/seed-{UNTIL}, which is neither .* would be lost: .*unpack"):
        call("pack", seeds[0], "-o", pack, "--runs-dir", other)
    assert (pack / "index.json").read_bytes() == before
    call("unpack", pack, "--runs-dir", other)
    assert call("pack", seeds[0], "-o", pack, "--runs-dir", other).startswith("1 run, ")  # the other is unpacked


def test_runs_are_named_in_many_ways_and_packed_once(store: RunStore) -> None:
    paths = [run_of(store, seed).path for seed in (FINISHED, STOPPED, UNTIL)]
    assert find_all([str(paths[0])], store) == paths[:1]
    assert find_all(["seed-1"], store) == paths[1:2]
    assert find_all([recipe().label], store) == paths
    assert find_all([str(store.root / recipe().label)], store) == paths
    assert find_all([str(store.root), "seed-2", f"{recipe().key}/seed-0"], store) == paths


def test_a_name_nobody_has_and_a_size_nobody_knows(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no run `vgg`"):
        call("pack", "vgg", "-o", tmp_path / "pack", "--runs-dir", store.root)
    with pytest.raises(OptionError, match="such as 15M; got '15X'"):
        call("pack", store.root, "-o", tmp_path / "pack", "--max-bytes", "15X")
    with pytest.raises(RunError, match="is not a pack"):
        call("unpack", tmp_path, "--runs-dir", store.root)
