"""What the grid shows while runs are trained."""

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hypersparse.cli.console import Console
from hypersparse.cli.grid import Grid
from hypersparse.cli.main import app
from hypersparse.errors import DivergedError
from hypersparse.runs import time_left
from hypersparse.runs.store import RunStore
from hypersparse.runs.time_left import TimeLeft
from hypersparse.storage.run_folder import RunFolder
from hypersparse.storage.schemas import Entry
from hypersparse.training.concurrency.concurrent_runs import Job
from hypersparse.training.loop import train
from hypersparse.training.machine import Machine
from hypersparse.training.stop import Stopped
from tests.runs.finished import finish as finish_run
from tests.stored import whole_entry, whole_result
from tests.training.small import StopAfter, small

FIRST = [("pre-train", 0), ("pre-train", 1), ("regularize", 0)]  # phases of a run's first epochs


def shown(grid: Grid) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(grid.render())
    return console.file.getvalue()  # type: ignore[attr-defined]


def grid_of(jobs: list[Job], monkeypatch: pytest.MonkeyPatch, runs_dir: Path | None = None) -> tuple[Grid, list[float]]:
    clock = [100.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), force_terminal=True)
    return Grid(console, TimeLeft.of(jobs, Machine(device="cpu"), runs_dir or jobs[0].folder.parent)), clock


def entry(epoch: int, phase: str = "pre-train", phase_epoch: int = 0, **more: object) -> Entry:
    return whole_entry(**{"epoch": epoch, "phase": phase, "phase_epoch": phase_epoch, "seconds": 10.0, **more})


def finish(job: Job, until: str | None = None) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    RunFolder(job.folder).write_result(whole_result(until=until))


def test_time_left_goes_by_the_epochs_trained_since_the_first_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(small(), seed, tmp_path / f"{seed}") for seed in range(4)]
    finish(jobs[0])
    callback = StopAfter(4 * 3)  # stopped there yesterday, after three epochs of four steps
    with pytest.raises(Stopped):
        train(jobs[1].recipe, 1, Machine(device="cpu"), jobs[1].folder, callback=callback, stop=callback.request)
    grid, clock = grid_of(jobs, monkeypatch)
    assert grid.left() == "time left not known yet"
    grid.count(jobs[3], entry(0, shared=True))  # of a phase another run had trained, long ago
    clock[0] += 90.0  # most of it for compiling
    grid.count(jobs[1], entry(3, "regularize", 1))
    assert grid.left() == "time left not known yet"
    clock[0] += 50.0
    for epoch, (phase, number) in enumerate([*FIRST, ("fine-tune", 0), ("fine-tune", 1)]):
        grid.count(jobs[2], entry(epoch, phase, number))
    finish(jobs[2])
    # A run has five epochs: 2 pre-train, at most 3 regularize (a third is guessed), 2 fine-tune.
    # Six epochs took 60 s, the first 10 of them; two are left of run 1, whose regularize took longer, four of run 3.
    assert grid.left() == "about 60 s left"
    assert "2/4 epoch 4 epoch 1" in shown(grid)
    assert "about 60 s left" in shown(grid)
    for job in (jobs[1], jobs[3]):
        grid.count(job, entry(6, "fine-tune", 1))
    assert grid.left() == "nearly done"  # they write their results now


def test_lines_in_a_pipe_are_not_broken(tmp_path: Path) -> None:
    jobs = [Job(small(), 0, tmp_path / "0")]
    console = Console(file=io.StringIO(), width=20)
    grid = Grid(console, TimeLeft.of(jobs, Machine(device="cpu"), tmp_path))
    grid.count(jobs[0], entry(0))
    said = "art hypersparse · seed 0  pre-train epoch 0  time left not known yet\n"
    assert console.file.getvalue() == said  # type: ignore[attr-defined]


def test_a_common_beginning_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(small(method={"sparsity": sparsity}), 0, tmp_path / f"{sparsity}") for sparsity in (0.9, 0.95, 0.98)]
    grid, clock = grid_of(jobs, monkeypatch)
    for epoch, (phase, number) in enumerate(FIRST):
        clock[0] += 1.0
        grid.count(jobs[0], entry(epoch, phase, number, seconds=1.0))
        grid.count(jobs[0], entry(epoch, phase, number, seconds=0.0))  # again, after it was killed
    # Three more of the second and the third, which will not pre-train, and two of the first.
    assert grid.left() == "about 4 s left"


def test_a_run_that_failed_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [Job(small(), seed, tmp_path / f"{seed}") for seed in range(3)]
    grid, clock = grid_of(jobs, monkeypatch)
    for job in jobs[:2]:
        for epoch, (phase, number) in enumerate(FIRST):
            clock[0] += 10.0
            grid.count(job, entry(epoch, phase, number))
    grid.ended(jobs[0], DivergedError("no longer finite"))
    grid.ended(jobs[1], Stopped("test"))  # to go on with
    # Six epochs took 60 s; of the five of a run, two are left of run 1 and all of run 2.
    assert grid.left() == "about 70 s left"
    assert "0/3 (1 failed) epoch 3" in shown(grid)


@pytest.mark.parametrize(("command", "words"), [("sweep", ["one.toml", "--jobs", "1"]), ("compare", [])])
def test_commands_tell_of_runs_that_failed(
    command: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(Grid, "ended", lambda _, job, outcome: told.append((job.folder.name, type(outcome).__name__)))
    monkeypatch.chdir(tmp_path)
    options = "[options.training]\nlr = 1e30\nepochs = 1\n[options.data]\nimages = 64\ntest_images = 32\nsize = 8\n"
    Path("one.toml").write_text(f'title = "One"\n{options}[[grid]]\ndata = "synthetic"\nmethod = "dense"\n')
    small_data = ["data.images=64", "data.test_images=32", "data.size=8"]
    settings = [word for setting in ("training.lr=1e30", *small_data) for word in ("--set", setting)]
    asked = ["--data", "synthetic", "--methods", "dense", "--epochs", "1", "--seed", "0", *settings]
    done = CliRunner().invoke(app, [command, *(words or asked), "--device", "cpu", "--no-report"])
    assert done.exit_code == 2, done.output
    assert told == [("seed-0", "DivergedError")]


def test_a_run_past_the_phase_that_was_asked_for_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(small(until="regularize"), 0, tmp_path / "0")
    grid, _ = grid_of([job], monkeypatch)
    assert grid.time_left.rest == {job.folder: 3}
    grid.count(job, entry(5, "fine-tune", 1))
    assert grid.time_left.rest == {job.folder: 0}


def test_phases_are_expected_to_be_as_long_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finished = {"pre-train": 2, "regularize": 9, "fine-tune": 2}
    finish_run(RunStore(tmp_path), small(), seed=1, epochs=finished)
    job = Job(small(), 0, tmp_path / "new" / "seed-0")
    grid, _ = grid_of([job], monkeypatch, tmp_path)
    assert grid.time_left.rest == {job.folder: 13}
    grid.count(job, entry(4, "regularize", 2))
    assert grid.time_left.rest == {job.folder: 8}
    grid.count(job, entry(15, "regularize", 13))  # longer than that
    assert grid.time_left.rest == {job.folder: 2}


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
