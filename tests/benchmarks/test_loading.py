"""The loading benchmark measures both loops on every source."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.loading import OURS, PLAIN, write_images
from hypersparse import data
from hypersparse.errors import OptionError


def test_both_sources_hold_the_same_images(tmp_path: Path) -> None:
    places = write_images(tmp_path, 8)
    files, shards = (data.load(str(places[source])).train for source in ("files", "shards"))
    order = [int(label) * 2 + place for place in range(2) for label in range(4)]  # files are sorted by class
    assert shards.images.equal(files.images[order])
    assert shards.labels.tolist() == [0, 1, 2, 3] * 2


@pytest.mark.slow
def test_the_command_writes_a_row_for_each_loop(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    done = CliRunner().invoke(app, ["loading", "--quick", "--device", "cpu", "--workers", "0,1", "--out", str(out)])
    assert done.exit_code == 0, done.output
    rows = json.loads(out.read_text())
    assert [(row["images"], row["workers"], row["loop"]) for row in rows] == [
        (source, workers, loop) for source in ("files", "shards") for workers in (0, 1) for loop in (PLAIN, OURS)
    ]
    assert all(row["steps_per_second"] > 0 for row in rows)


def test_an_unknown_source_is_said() -> None:
    done = CliRunner().invoke(app, ["loading", "--sources", "file"])
    assert isinstance(done.exception, OptionError)
    assert "did you mean `files`" in str(done.exception)
