"""`hypersparse shrink`."""

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hypersparse.cli.shrink import shrink
from hypersparse.errors import OptionError
from hypersparse.export.sparse_file import load_sparse
from hypersparse.runs.store import RunStore
from tests.runs.tiny import FINISHED, run_of, tiny_store

app = typer.Typer()
app.command()(shrink)


def test_the_table_says_what_vanished_and_the_file_is_smaller(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run: RunStore = tiny_store(tmp_path / "runs", tmp_path_factory)
    arguments = [str(run_of(run, FINISHED).path), "-o", str(tmp_path / "small.hsp")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    for words in ("unread", "constant", "removed because", "batch norm folded", "predicted as before", "small.hsp"):
        assert words in done.stdout
    assert not [name for name in load_sparse(tmp_path / "small.hsp").state_dict() if "running" in name]
    with pytest.raises(OptionError, match=r"got `a\.zip`"):
        CliRunner().invoke(app, [*arguments[:2], str(tmp_path / "a.zip")], catch_exceptions=False)
