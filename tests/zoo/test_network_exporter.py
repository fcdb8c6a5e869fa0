"""Networks that are kept while a sweep goes on: what is wanted, what fails, what a stop leaves."""

import io
import shutil
import threading
from pathlib import Path

import pytest

from hypersparse.runs.experiment import Run
from hypersparse.runs.store import RunStore
from hypersparse.training.stop import StopRequest
from hypersparse.zoo.network_exporter import NetworkKeeper, name_of, networks_kept
from tests.runs.tiny import FINISHED, UNTIL, run_of


def another(run: Path) -> Path:
    return shutil.copytree(run, run.with_name("seed-9"))


def test_only_finished_sparse_networks_that_are_not_there_are_made(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    monkeypatch.setattr(NetworkKeeper, "_make", lambda self, run: made.append(run) or "")  # type: ignore[func-returns-value]
    finished, there = run_of(store, FINISHED).path, another(run_of(store, FINISHED).path)
    (tmp_path / f"{name_of(there)}.json").touch()
    with NetworkKeeper(print, tmp_path, None, StopRequest()) as keeper:
        for run in (finished, finished, there, run_of(store, UNTIL).path):
            keeper.keep(run)
    assert made == [finished]
    with networks_kept(print, None, None, [], store, StopRequest()) as keep:
        assert keep is None


def test_a_damaged_run_ends_no_sweep(store: RunStore, tmp_path: Path) -> None:
    run, said = run_of(store, FINISHED), io.StringIO()
    run.result_file.write_text("{")
    with NetworkKeeper(said.write, tmp_path, None, StopRequest()) as keeper:
        keeper.keep_finished([Run(run.recipe(), run.seed())], store)
    assert said.getvalue() == ""  # the sweep says it


@pytest.mark.slow
def test_what_fails_is_said(store: RunStore, tmp_path: Path) -> None:
    run, said = run_of(store, FINISHED), io.StringIO()
    run.final_file.write_bytes(b"damaged")
    with NetworkKeeper(said.write, tmp_path / "networks", None, StopRequest()) as keeper:
        keeper.keep(run.path)
    assert f"{name_of(run.path)} was not written to" in said.getvalue()
    assert not list((tmp_path / "networks").glob("*"))


@pytest.mark.parametrize("late", [False, True], ids=["before", "while it waits"])
def test_a_stop_waits_for_the_one_under_way_only(
    store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    began, go_on, made = threading.Event(), threading.Event(), list[Path]()

    def make(_: NetworkKeeper, run: Path) -> str:
        began.set()
        go_on.wait(60)
        made.append(run)
        return ""

    monkeypatch.setattr(NetworkKeeper, "_make", make)
    first, said = run_of(store, FINISHED).path, io.StringIO()
    second = another(first)
    stop = StopRequest(after_seconds=None if late else 0)
    with NetworkKeeper(said.write, tmp_path, None, stop) as keeper:
        keeper.keep(first)
        keeper.keep(second)
        assert began.wait(60)
        if late:
            threading.Timer(0.3, stop.stop, ["SIGINT"]).start()
        threading.Timer(1.5, go_on.set).start()
    assert made == [first]
    assert "1 of them are left to the next sweep" in said.getvalue()
