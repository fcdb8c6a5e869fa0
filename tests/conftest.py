"""Shared by all tests: `fast` is every test that is not marked slow, gpu or ddp; all of them take two processes."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

import hypersparse
from tests.browser import CHROMIUM, FLAGS

# The same examples in every run, and no time limit on one: two busy cores may be slow.
hypothesis.settings.register_profile("hypersparse", derandomize=True, deadline=None)
hypothesis.settings.load_profile("hypersparse")

# Tiny tensors gain nothing from a second thread, and two that wait for one busy core made 0.1 s into 13 s.
torch.set_num_threads(1)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # under nohup; unlike a handler, that is inherited by programs
    signal.signal(signal.SIGHUP, lambda *_: None)
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else torch starts a pool of compilers, which import torch

ROOT = Path(hypersparse.__file__).parents[1]
# Subprocesses find this checkout, and whatever else the tests themselves found.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """`pytest` and `pytest -m fast` use two cores unless `-n` says otherwise; named files take one process."""
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    chosen, everything = config.option, config.args_source is pytest.Config.ArgsSource.TESTPATHS
    alone = chosen.usepdb or chosen.collectonly or torch.cuda.is_available()  # tests that time a GPU want it alone
    if chosen.numprocesses is None and everything and not alone:
        chosen.numprocesses = min(2, os.cpu_count() or 1)
    if chosen.numprocesses and chosen.dist == "no":
        chosen.dist = "worksteal"  # neighbours stay together, so what they share is made once; the end is even


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(name) for name in ("slow", "gpu", "ddp")):
            item.add_marker(pytest.mark.fast)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


DEATHS: list[str] = []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Note how a process that ran tests died: a signal's number with a minus, or what it gave to exit()."""
    if error:
        with contextlib.suppress(subprocess.TimeoutExpired):
            DEATHS.append(f"{node.gateway.id} ended with {node.gateway._io.popen.wait(timeout=5)}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in DEATHS:
        terminalreporter.line(line)


@pytest.fixture(autouse=True)
def _same_random_numbers_for_every_test() -> None:
    torch.manual_seed(0)


@pytest.fixture
def store(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A store of a few tiny runs: a finished one, a stopped one, one that ends after a phase."""
    from tests.runs.tiny import tiny_store

    return tiny_store(tmp_path / "runs", tmp_path_factory)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """For tests marked with `tests.browser.NEEDS_BROWSER`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        started = tool.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()
