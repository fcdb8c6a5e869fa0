import json
from pathlib import Path

import pytest

from hypersparse.runs.run_listing import Filters, from_log, row_of, rows
from hypersparse.runs.store import RunStore
from hypersparse.storage.lock import is_locked
from tests.runs.tiny import EPOCHS, FINISHED, STOPPED, UNTIL, cut, recipe, run_of


def test_a_finished_run_is_its_result(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    row, result = row_of(run), run.result()
    assert result is not None
    assert (row.label, row.seed, row.data, row.model) == (recipe().label, FINISHED, "synthetic", "resnet8")
    assert (row.method, row.sparsity, row.epochs) == ("art", 0.95, EPOCHS)
    assert (row.status, row.state) == ("finished", "finished")
    assert row.sparse_last == result["sparse"]["last"]
    assert row.sparse_best == result["sparse"]["best"]
    assert row.dense_last == result["dense"]["last"]
    assert (row.kept, row.total) == (249, 4964)
    assert row.seconds == result["wall_seconds"]
    assert row.best_picked_on == "test"


def test_every_state_has_its_words(store: RunStore) -> None:
    assert [row.state for row in rows(store)] == ["finished", "stopped in the first epoch", "until pre-train"]
    run = run_of(store, FINISHED)
    cut(run, epochs=3)
    assert row_of(run).state == "stopped in regularize at epoch 3"
    with run.locked():
        assert row_of(run).state == "running in regularize at epoch 3"


def test_an_unfinished_run_is_read_from_its_log(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    before = row_of(run)
    cut(run, epochs=4)
    row = row_of(run)
    assert row.sparse_last == run.log()[3]["test_accuracy"]
    assert (row.dense_last, row.kept, row.total) == (before.dense_last, before.kept, before.total)
    run.cut_log(2)
    assert (row_of(run).sparse_last, row_of(run).kept) == (None, 4964)


def test_the_best_of_an_unfinished_run_is_as_sparse_as_its_last() -> None:
    kept, accuracies = (100, 50, 20, 20), (0.6, 0.9, 0.7, 0.65)  # pruned little by little
    entries = [
        {"epoch": epoch, "phase": "train", "stage": "sparse", "kept": many, "total": 200, "seconds": 1.0}
        | {"test_accuracy": accuracy}
        for epoch, (many, accuracy) in enumerate(zip(kept, accuracies, strict=True))
    ]
    known = from_log(entries, {"data": {}})
    assert (known["sparse"]["best"], known["sparse"]["best_epoch"], known["sparse"]["last"]) == (0.7, 2, 0.65)
    assert (known["kept"], known["total"]) == (20, 200)  # there was no epoch with all weights


def test_a_run_that_went_on_after_until_is_not_until_any_more(store: RunStore) -> None:
    run = run_of(store, UNTIL)
    for entry in run_of(store, FINISHED).log()[1:3]:
        run.append_log(entry)
    assert row_of(run).state == "stopped in regularize at epoch 3"


def test_the_short_name_finds_the_run(store: RunStore) -> None:
    for row in rows(store):
        assert store.find(row.name).path == row.path
        assert len(row.name) == len("12345678/seed-0")


def test_a_run_outside_a_store_has_the_label_of_its_result(store: RunStore, tmp_path: Path) -> None:
    moved = run_of(store, FINISHED).path.rename(tmp_path / "mine")
    assert row_of(type(run_of(store, 0))(moved)).label == recipe().label


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("recipe.toml", ""),
        ("recipe.toml", "not toml at all ["),
        ("recipe.toml", "seed = 'many'\n[data]\nname = 'x'\n"),
        ("result.json", "{"),
        ("result.json", "{}"),
        ("result.json", "[]"),
        ("result.json", json.dumps({"until": None, "epochs": {}, "sparse": {"last": "high"}, "dense": None})),
    ],
)
def test_a_damaged_run_is_a_row_that_says_so(store: RunStore, file: str, text: str) -> None:
    run = run_of(store, FINISHED)
    (run.path / file).write_text(text)
    damaged = [row for row in rows(store) if row.status == "damaged"]
    assert [row.path for row in damaged] == [run.path]
    assert damaged[0].problem
    assert damaged[0].label == recipe().label


def test_a_damaged_log_is_damaged_only_where_it_is_needed(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    run.log_file.write_text("3\n")
    assert row_of(run).status == "finished"
    run.result_file.unlink()
    assert row_of(run).status == "damaged"


def test_a_method_that_cannot_be_imported_here_is_listed(store: RunStore) -> None:
    run = run_of(store, FINISHED)
    run.recipe_file.write_text(run.recipe_file.read_text().replace('"art"', '"somebody.elses:Method"'))
    assert (row_of(run).method, row_of(run).status) == ("somebody.elses:Method", "finished")


@pytest.mark.parametrize(
    ("filters", "seeds"),
    [
        (Filters(), [0, 1, 2]),
        (Filters(data="synthetic", model="resnet8", method="art", sparsity=0.95), [0, 1, 2]),
        (Filters(seed=1), [1]),
        (Filters(finished=True), [FINISHED]),
        (Filters(finished=False), [STOPPED, UNTIL]),
        (Filters(data="digits"), []),
        (Filters(model="vgg19"), []),
        (Filters(method="dense"), []),
        (Filters(sparsity=0.9), []),
    ],
)
def test_filters(store: RunStore, filters: Filters, seeds: list[int]) -> None:
    assert [row.seed for row in rows(store) if filters.fit(row)] == seeds


def test_a_data_set_given_as_a_path_is_found_by_its_name(store: RunStore) -> None:
    run = run_of(store, STOPPED)
    run.recipe_file.write_text(run.recipe_file.read_text().replace('"synthetic"', '"/data/birds.npz"'))
    assert [row.seed for row in rows(store) if Filters(data="birds").fit(row)] == [STOPPED]


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    assert rows(RunStore(tmp_path)) == []


def test_asking_for_the_lock_leaves_no_trace(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
