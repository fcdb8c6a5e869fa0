"""The notebook of the docs: what it prints is stored in it, and it runs as it stands."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"
KEPT = re.compile(r"([\d,]+) of +([\d,]+)(?= weights| kept|$)", re.MULTILINE)
ACCURACY = re.compile(r"([\d.]+) %")


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cells: list[Any]) -> str:
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert all(output["output_type"] != "error" for output in outputs)
    streams = [output for output in outputs if output["output_type"] == "stream"]
    assert all(output["name"] == "stdout" for output in streams), "a warning"
    return "".join("".join(output["text"]) for output in streams)


def test_every_cell_is_stored_as_it_ran() -> None:
    cells = code_cells(json.loads(NOTEBOOK.read_text()))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert "1,542 of 77,072 weights" in printed(cells)
    kinds = [kind for cell in cells for output in cell["outputs"] for kind in output.get("data", ())]
    assert kinds.count("image/png") == 2
    assert kinds.count("text/html") == 1  # the page


def links(notebook: Any) -> set[str]:
    text = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    return set(re.findall(r"\]\(([^)#]+)", text))


def test_links_lead_somewhere() -> None:
    found = links(json.loads(NOTEBOOK.read_text()))
    assert found
    assert not [link for link in found if not (NOTEBOOK.parent / link).exists()]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Jupyter
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="needs Jupyter: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    stored = nbformat.read(NOTEBOOK, 4)
    again = nbformat.read(NOTEBOOK, 4)
    folder = {"metadata": {"path": str(tmp_path)}}
    client.NotebookClient(again, timeout=500, startup_timeout=300, resources=folder).execute()

    before, after = printed(code_cells(stored)), printed(code_cells(again))
    totals = [[total for _, total in KEPT.findall(text)] for text in (before, after)]
    assert totals[0] == totals[1]
    assert "1,542 of 77,072 weights are kept" in after
    accuracies = [[float(share) for share in ACCURACY.findall(text)] for text in (before, after)]
    assert accuracies[1] == pytest.approx(accuracies[0], abs=3)  # another machine rounds differently
    assert {"digits.hsp", "digits.html", "loop.hsp"} <= {path.name for path in tmp_path.iterdir()}
    assert (tmp_path / "digits.html").stat().st_size < 200_000
