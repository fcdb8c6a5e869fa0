import csv
import io
import json
from pathlib import Path

import typer
from typer.testing import CliRunner

from hypersparse.cli.runs import runs
from hypersparse.runs.store import RunStore
from tests.runs.tiny import FINISHED, recipe, run_of

app = typer.Typer()
app.command()(runs)


def listed(store: RunStore, *options: str) -> str:
    done = CliRunner().invoke(app, ["--runs-dir", str(store.root), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_table_has_a_line_a_run(store: RunStore) -> None:
    lines = listed(store).splitlines()
    assert lines[0].split()[:5] == ["run", "data", "model", "method", "sparsity"]
    assert lines[1].startswith(f"{recipe().key}/seed-0")
    assert "finished" in lines[1]
    assert "effective" in lines[0]
    assert "stopped in the first epoch" in lines[2]
    assert "until pre-train" in lines[3]


def test_what_is_effective_and_what_was_ablated_is_listed(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    result = run.result()
    assert result is not None
    row = json.loads(listed(store, "--finished", "--format", "json"))[0]
    assert (row["effective_kept"], row["ablation"]) == (result["effective_kept"], None)
    assert 0 <= result["effective_kept"] <= result["kept"]
    text = run.recipe_file.read_text().replace('[ablation]\nname = "none"', '[ablation]\nname = "shuffle"')
    run.recipe_file.write_text(text)
    assert json.loads(listed(store, "--finished", "--format", "json"))[0]["ablation"] == "shuffle"
    assert "art, shuffle" in listed(store)


def test_penalties_are_told_apart_where_there_are_several(store: RunStore) -> None:
    assert "art, " not in listed(store)
    run = run_of(store, FINISHED)
    run.recipe_file.write_text(run.recipe_file.read_text().replace('penalty = "hypersparse"', 'penalty = "l1"'))
    assert "art, l1 " in listed(store)
    assert "art, hypersparse " in listed(store)
    found = json.loads(listed(store, "--format", "json"))
    assert [row["penalty"] for row in found] == ["l1", "hypersparse", "hypersparse"]


def test_runs_from_before_these_were_counted_are_listed(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    result = run.result()
    assert result is not None
    run.write_result({name: value for name, value in result.items() if "effective" not in name and "flops" not in name})
    assert json.loads(listed(store, "--finished", "--format", "json"))[0]["effective_kept"] is None


def test_filters_leave_lines_out(store: RunStore) -> None:
    assert [row["seed"] for row in json.loads(listed(store, "--finished", "--format", "json"))] == [0]
    assert [row["seed"] for row in json.loads(listed(store, "--unfinished", "--format", "json"))] == [1, 2]
    assert [row["seed"] for row in json.loads(listed(store, "--seed", "2", "--format", "json"))] == [2]


def test_csv_and_json_say_the_same(store: RunStore) -> None:
    from_json = json.loads(listed(store, "--format", "json"))
    from_csv = list(csv.DictReader(io.StringIO(listed(store, "--format", "csv"))))
    assert len(from_json) == len(from_csv) == 3
    words = [{name: "" if value is None else str(value) for name, value in row.items()} for row in from_json]
    assert words == from_csv


def test_a_damaged_run_is_listed_with_the_reason(store: RunStore) -> None:
    run_of(store, FINISHED).result_file.write_text("{")
    text = listed(store)
    assert "damaged" in text.splitlines()[1]
    assert "result.json is damaged: it is not JSON" in text.replace("\n", "")


def test_where_there_is_nothing_it_says_what_to_do(store: RunStore, tmp_path: Path) -> None:
    empty = CliRunner().invoke(app, ["--runs-dir", str(tmp_path / "none")])
    assert (empty.exit_code, empty.stdout) == (0, "")
    assert "`hypersparse train` makes one" in empty.stderr
    filtered = CliRunner().invoke(app, ["--runs-dir", str(store.root), "--data", "digits", "--format", "json"])
    assert json.loads(filtered.stdout) == []
    assert "has 3 runs, and none fits" in filtered.stderr
