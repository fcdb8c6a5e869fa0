"""What is read of a run, and what is said of one that cannot be read."""

import json
from pathlib import Path

import pytest

from hypersparse.analysis.report.gather import gather
from hypersparse.storage.run_folder import RunFolder
from tests.analysis.report.made import DENSE, KEPT, TOTAL, make_run
from tests.runs.tiny import EPOCHS, FINISHED, STOPPED, UNTIL, run_of, tiny_store
from tests.stored import MACHINE


def test_a_page_says_what_the_run_says(tmp_path: Path) -> None:
    run = make_run(tmp_path, last=0.9, epochs=10)
    (page,) = gather([run]).pages
    content = page.content
    assert (content["sparse_last"], content["sparse_best"], content["sparse_best_epoch"]) == (0.9, 0.91, 7)
    assert (content["dense_last"], content["kept"], content["total"]) == (DENSE, 3 * KEPT, 3 * TOTAL)
    assert [(phase["name"], phase["first"], phase["last"]) for phase in content["phases"]] == [
        ("pre-train", 0, 2),
        ("regularize", 3, 4),
        ("fine-tune", 5, 9),
    ]
    assert content["phases"][2]["seconds"] == 2.5
    assert content["curves"]["strength"]["at"] == 3
    assert len(content["curves"]["strength"]["values"]) == 2
    assert content["curves"]["kept"] == {"at": 0, "runs": [3 * TOTAL, 5, 3 * KEPT, 5]}
    assert content["layers"]["names"] == ["block0.conv", "block1.conv", "block2.conv"]
    assert content["machine"] == {name: str(value) for name, value in MACHINE.items() if value is not None}
    assert content["recipe"].startswith("seed = 0\n")
    assert (content["training_flops"], content["final_bytes"]) == (4e12, 20_000)


def test_a_trained_run_brings_what_its_record_says(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = run_of(tiny_store(tmp_path / "runs", tmp_path_factory), FINISHED)
    (page,) = gather([run]).pages
    assert page.content["epochs"] == EPOCHS
    assert 0 < page.content["record"]["intersection"]["values"][0] <= 1
    assert sum(page.content["record"]["class_total"]) == 64
    assert page.content["record"]["classes"][:2] == ["class 0", "class 1"]
    run.record_file.write_bytes(run.record_file.read_bytes()[:100])
    (page,) = gather([run]).pages
    assert page.content["record"] == {}
    assert "is damaged" in page.content["notes"][0]


def test_unfinished_runs_are_shown_as_such(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tiny_store(tmp_path / "runs", tmp_path_factory)
    stopped, until = gather([run_of(store, STOPPED), run_of(store, UNTIL)]).pages
    assert (stopped.content["status"], stopped.content["phases"], stopped.content["curves"]) == ("stopped", [], {})
    assert until.content["state"] == "until pre-train"
    killed = make_run(tmp_path / "killed", finished=False)
    (page,) = gather([killed]).pages
    assert page.content["state"] == "stopped in fine-tune at epoch 7"
    assert page.content["machine"] == {}


def damage_result(run: RunFolder) -> None:
    run.result_file.write_text("{")


def damage_recipe(run: RunFolder) -> None:
    run.recipe_file.write_text("seed = 0\n[data\n")


def damage_log(run: RunFolder) -> None:
    run.log_file.write_text('{"epoch": 0}\n')


def damage_machine(run: RunFolder) -> None:
    run.write_result({**json.loads(run.result_file.read_text()), "machine": ["a", "list"]})


@pytest.mark.parametrize("damage", [damage_result, damage_recipe, damage_log, damage_machine])
def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path: Path, damage: object) -> None:
    whole, hurt = make_run(tmp_path, seed=0), make_run(tmp_path, seed=1)
    damage(hurt)  # type: ignore[operator]
    found = gather([whole, hurt])
    assert [page.row.seed for page in found.pages] == [0]
    ((name, sentence),) = found.problems
    assert name == str(hurt.path)
    assert sentence


def test_a_run_named_twice_is_there_once_and_names_do_not_clash(tmp_path: Path) -> None:
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b")
    pages = gather([first, RunFolder(first.path / ".." / first.path.name), second]).pages
    assert [page.id for page in pages] == [pages[0].id, f"{pages[0].id}-2"]


def test_numbers_that_json_cannot_say_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    lines = [json.loads(line) for line in run.log_file.read_text().splitlines()]
    lines[4]["test_loss"] = None  # as a loss that is not finite is written
    run.log_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (page,) = gather([run]).pages
    values = page.content["curves"]["test_loss"]["values"]
    assert values[4] is None
    assert values[3] == pytest.approx(2.1 / 4 + 0.0234567, abs=1e-4)
