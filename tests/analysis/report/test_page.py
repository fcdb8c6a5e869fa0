"""The page as text: whole, small, and safe whatever a run is called."""

import json
import re
from pathlib import Path

import pytest

from hypersparse.analysis.report.page import write
from hypersparse.errors import RunError
from tests.analysis.report.made import make_run

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
HOSTILE = "<b onclick=alert(1)>-<!--<script>"


def test_a_page_is_one_file_that_asks_for_nothing(tmp_path: Path) -> None:
    write(tmp_path / "report.html", [make_run(tmp_path / "runs")], title="A & B")
    text = (tmp_path / "report.html").read_text()
    assert "<title>A &amp; B</title>" in text
    assert "{{" not in text.split("<style>")[0]
    assert not re.search(r"<(?:link|script|img|iframe)[^>]+(?:href|src)=[\"']?(?!data:)\w+:", text)
    assert re.search(r"default-src 'none'; script-src 'sha256-[^']+' 'sha256-[^']+';", text)
    (data,) = DATA.findall(text)
    assert json.loads(data)["runs"][0]["sparse_last"] == 0.9


def test_names_cannot_end_the_script_they_stand_in(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", label=HOSTILE)
    run.recipe_file.write_text(run.recipe_file.read_text() + "# </script><b>\u2028\n")
    write(tmp_path / "report.html", [run], title="</title></script><b>")
    text = (tmp_path / "report.html").read_text()
    assert text.count("</script>") == 3
    assert "<b" not in text.split("<style>")[0]
    (data,) = DATA.findall(text)
    assert not set("<>&\u2028") & set(data)
    content = json.loads(data)
    assert content["runs"][0]["label"] == HOSTILE
    assert content["runs"][0]["recipe"].endswith("# </script><b>\u2028\n")


@pytest.mark.slow
def test_two_hundred_runs_of_a_real_size_stay_under_five_megabytes(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "runs", method=method, sparsity=sparsity, seed=seed, epochs=272, layers=34)
        for method in ("art", "snip", "grasp", "rigl")
        for sparsity in (0.9, 0.95, 0.98, 0.99, 0.998)
        for seed in range(10)
    ]
    assert len(runs) == 200
    found = write(tmp_path / "report.html", runs)
    assert len(found.pages) == 200
    assert (tmp_path / "report.html").stat().st_size < 5_000_000


def test_layers_of_the_same_network_are_named_once(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "runs", seed=seed, layers=layers) for seed, layers in enumerate((3, 3, 4))]
    write(tmp_path / "report.html", runs)
    (data,) = DATA.findall((tmp_path / "report.html").read_text())
    content = json.loads(data)
    assert [len(network["names"]) for network in content["networks"]] == [3, 4]
    assert [run["layers"]["network"] for run in content["runs"]] == [0, 0, 1]


def test_without_a_run_there_is_no_page_and_a_sentence(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    run.result_file.write_text("{")
    with pytest.raises(RunError, match="is damaged"):
        write(tmp_path / "report.html", [run])
    assert not (tmp_path / "report.html").exists()


def test_a_failure_to_write_leaves_the_old_page(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs")
    with pytest.raises(RunError, match="its folder does not exist"):
        write(tmp_path / "nowhere" / "report.html", [run])
