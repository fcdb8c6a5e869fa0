"""What the grid shows while runs are trained."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from hypersparse.cli import grid as module
from hypersparse.cli.grid import Grid
from hypersparse.training.folder import RunFolder
from hypersparse.training.together import Job
from tests.training.small import small


def shown(grid: Grid) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(grid.render())
    return console.file.getvalue()  # type: ignore[attr-defined]


def grid_of(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> tuple[Grid, list[float]]:
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    return Grid(Console(file=io.StringIO(), force_terminal=True), jobs), clock


def entry(epoch: int, **more: object) -> dict[str, object]:
    return {"epoch": epoch, "phase": "pre-train", **more}


def finish(job: Job, until: str | None = None) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "result.json").write_text(json.dumps({"until": until}))


def test_time_left_goes_by_the_epochs_trained_since_it_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(small(), seed, tmp_path / f"{seed}") for seed in range(4)]
    finish(jobs[0])
    jobs[1].folder.mkdir()
    for epoch in range(3):  # stopped there yesterday
        RunFolder(jobs[1].folder).append_log({"epoch": epoch})
    grid, clock = grid_of(jobs, monkeypatch)
    assert grid.left() == "time left not known yet"
    clock[0] += 60.0
    grid.count(jobs[1], entry(3))
    for epoch in range(5):
        grid.count(jobs[2], entry(epoch))
    finish(jobs[2])
    grid.count(jobs[3], entry(0, shared=True))  # of a stage another run had trained
    # A run has five epochs: 2 pre-train, at most 3 regularize (a third is guessed), 2 fine-tune.
    # Six epochs took 60 s; one is left of run 1 and four of run 3.
    assert grid.left() == "about 50 s left"
    assert "2/4 epoch 4 epoch 1" in shown(grid)
    assert "about 50 s left" in shown(grid)


def test_a_run_that_ended_with_its_mask_is_not_done_when_more_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, masked = Job(small(), 0, tmp_path / "0"), Job(small(until="regularize"), 0, tmp_path / "0")
    finish(whole, until="regularize")
    assert "0/1" in shown(grid_of([whole], monkeypatch)[0])
    assert "1/1" in shown(grid_of([masked], monkeypatch)[0])


def test_variants_of_a_method_have_rows_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [small(), small(method={"penalty": "l1"}), small(method={"growth": 2.0})]
    jobs = [Job(recipe, 0, tmp_path / f"{number}") for number, recipe in enumerate(recipes)]
    lines = shown(grid_of(jobs, monkeypatch)[0]).splitlines()
    wanted = ["art hypersparse, growth=3.0", "art l1, growth=3.0", "art hypersparse, growth=2.0"]
    assert [line.split("  ")[0] for line in lines[1:4]] == wanted
    assert all("0/1" in line for line in lines[1:4])
