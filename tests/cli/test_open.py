"""`--open`: commands that open a page in the browser."""

import webbrowser
from pathlib import Path

import pytest

from tests.analysis.report.made import make_run
from tests.cli.test_train import Call, call

__all__ = ["call"]  # a fixture


@pytest.mark.parametrize("has_browser", [True, False])
def test_show_and_report_open_their_page(
    has_browser: bool, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "runs", seed=0)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or has_browser)
    for arguments, page in (
        (["show", str(run.path)], run.path / "report.html"),
        (["report"], tmp_path / "report.html"),
    ):
        page.unlink(missing_ok=True)
        assert call(*arguments).returncode == 0
        assert not opened
        done = call(*arguments, "--open")
        assert done.returncode == 0, done.stderr
        assert opened.pop() == page.as_uri()
        assert page.is_file()
        assert page.as_uri() in done.stdout
        assert ("No browser was found" in done.stdout) is not has_browser
