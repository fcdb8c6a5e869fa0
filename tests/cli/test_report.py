"""The command report, and the page that train and compare leave."""

import json
import re
from pathlib import Path

import pytest

from tests.analysis.report.made import make_run
from tests.cli.commands import QUICK, SHORT, run, the_run
from tests.cli.test_train import Call, call

__all__ = ["call"]  # a fixture
DATA = re.compile(r'id="data">(.*?)</script>', re.DOTALL)


def runs_in(page: Path) -> list[dict[str, object]]:
    (data,) = DATA.findall(page.read_text())
    found: list[dict[str, object]] = json.loads(data)["runs"]
    return found


def test_all_runs_or_those_that_are_named(tmp_path: Path, call: Call) -> None:
    first, *_ = [make_run(tmp_path / "runs", seed=seed) for seed in range(3)]
    done = call("report")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("report.html: 3 runs; 0.")
    assert len(runs_in(tmp_path / "report.html")) == 3
    assert call("report", str(first.path), "-o", "one.html").stdout.startswith("one.html: 1 run;")
    assert [run["seed"] for run in runs_in(tmp_path / "one.html")] == [0]
    (tmp_path / "runs").rename(tmp_path / "results")
    assert call("report", "results", "-o", "kept.html").returncode == 0
    assert len(runs_in(tmp_path / "kept.html")) == 3


def test_a_damaged_run_is_said_and_the_others_are_written(tmp_path: Path, call: Call) -> None:
    make_run(tmp_path / "runs", seed=0)
    damaged = make_run(tmp_path / "runs", seed=1)
    damaged.result_file.write_text("{")
    make_run(tmp_path / "runs", seed=2, finished=False)
    done = call("report")
    assert done.returncode == 0
    assert done.stderr.startswith(f"left out: {damaged.path.relative_to(tmp_path)}: ")
    assert done.stderr.count("\n") == 1
    assert "2 runs, 1 of them not finished" in done.stdout


def test_an_experiment_is_looked_for_among_runs_and_results(tmp_path: Path, call: Call) -> None:
    grid = '[[grid]]\ndata = "cifar10"\nmethod = "art"\nsparsity = [0.9, 0.98]\nseeds = 2\n'
    (tmp_path / "mine.toml").write_text(f'title = "My grid"\n\n{grid}')
    make_run(tmp_path / "runs", sparsity=0.9, finished=False)
    make_run(tmp_path / "kept", sparsity=0.9)
    make_run(tmp_path / "kept", sparsity=0.98, seed=1)
    make_run(tmp_path / "runs", method="snip")  # not part of it
    done = call("report", "mine.toml", "--results", "kept")
    assert done.returncode == 0, done.stderr
    assert "2 runs, 2 of the experiment not there yet" in done.stdout
    assert [run["status"] for run in runs_in(tmp_path / "report.html")] == ["finished", "finished"]
    assert "<title>My grid</title>" in (tmp_path / "report.html").read_text()


BAD = {
    "no runs": (["report"], "There are no runs in runs yet"),
    "a run that is missing": (["report", "nothing"], "There is no run `nothing`"),
    "an experiment that is missing": (["report", "nothing.toml"], "nothing.toml cannot be read"),
    "an experiment without runs": (["report", "mine.toml"], "The experiment has 1 run, and none is in runs or"),
    "a folder to write to": (["report", "-o", "folder"], "file 'folder' is a directory"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_clear_sentence(what: str, tmp_path: Path, call: Call) -> None:
    arguments, message = BAD[what]
    (tmp_path / "mine.toml").write_text('[[grid]]\nmethod = "art"\n')
    (tmp_path / "folder").mkdir()
    done = call(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_report_that_cannot_be_written_is_said(tmp_path: Path, call: Call) -> None:
    make_run(tmp_path / "runs")
    done = call("report", "-o", "nowhere/report.html")
    assert done.returncode == 2
    assert "its folder does not exist" in done.stderr


@pytest.mark.slow
def test_train_leaves_a_report_unless_told_not_to(tmp_path: Path) -> None:
    done = run("train", *SHORT, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "result.json, report.html)" in done.stdout
    page = the_run(tmp_path).path / "report.html"
    assert runs_in(page)[0]["status"] == "finished"
    page.unlink()
    page.mkdir()  # in the way of the file
    again = run("train", *SHORT, folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "no report: " in again.stdout
    assert "sparse" in again.stdout
    page.rmdir()
    assert run("train", *SHORT, "--no-report", folder=tmp_path).returncode == 0
    assert not page.exists()


@pytest.mark.slow
def test_several_runs_and_a_comparison_leave_one_for_all(tmp_path: Path) -> None:
    assert run("train", *SHORT, "--seed", "0-1", "--jobs", "1", folder=tmp_path).returncode == 0
    assert len(runs_in(tmp_path / "runs" / "report.html")) == 2
    grid = [
        "compare",
        *QUICK,
        "--methods",
        "random,dense",
        "--sparsity",
        "0.5",
        "--seed",
        "0",
        "--epochs",
        "1",
        "--jobs",
        "1",
    ]
    done = run(*grid, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "comparison/report.html" in done.stdout
    assert len(runs_in(tmp_path / "comparison" / "report.html")) == 2
