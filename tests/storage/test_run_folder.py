"""The files of a run say what is wrong with them, and which one it is."""

import json
from pathlib import Path

import pytest

from hypersparse.analysis.paper import epochs_to_mask
from hypersparse.errors import RunError
from hypersparse.storage.run_folder import RunFolder
from tests.training.small import small


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_recipe(small(), 3)
    for epoch in range(4):
        folder.append_log({"epoch": epoch, "best_epoch": epoch})
    folder.write_result({"until": None, "epochs": {"regularize": 4}})
    return folder


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", r"no \[data\]"),  # and not the recipe that is the default
        (b"# seed = 3\n[data]\nname = 'digits'\n", r"no \[model\]"),
        (b"\xff\xfe", "not text"),
        (b"[data", "not valid TOML"),
    ],
)
def test_a_damaged_recipe_is_nobodys(run: RunFolder, content: bytes, said: str) -> None:
    run.recipe_file.write_bytes(content)
    with pytest.raises(RunError, match=said):
        run.recipe()


def test_a_recipe_of_another_version_names_its_run(run: RunFolder) -> None:
    assert run.recipe() == small()
    run.recipe_file.write_text(run.recipe_file.read_text().replace("growth = ", "grwth = "))
    with pytest.raises(RunError, match=rf"{run.path} cannot be used: There is no art option `grwth`"):
        run.recipe()


def test_a_result_says_what_it_lacks(run: RunFolder) -> None:
    result = run.result()
    assert result is not None
    assert result.get("sparse") is None
    assert json.loads(json.dumps(result)) == {"until": None, "epochs": {"regularize": 4}}
    with pytest.raises(RunError, match=r"result.json has no `sparse`"):
        result["sparse"]
    run.result_file.write_text("{}")
    with pytest.raises(RunError, match=r"result.json has no `until`"):
        run.result()


@pytest.mark.parametrize(("content", "said"), [(b"3\n", "damaged"), (b"\xff\xfe\n", "0 epochs of 4")])
def test_a_log_that_is_none_is_said(run: RunFolder, content: bytes, said: str) -> None:
    run.log_file.write_bytes(content)
    with pytest.raises(RunError, match=said):
        run.whole_log()


def test_a_log_that_is_cut_off_does_not_count_for_fewer_epochs(run: RunFolder) -> None:
    assert epochs_to_mask(run) == 4
    lines = run.log_file.read_text().splitlines()
    run.log_file.write_text("\n".join([*lines[:2], lines[2][:5]]))
    assert len(run.log()) == 2  # as a kill leaves it, to go on from
    with pytest.raises(RunError, match="2 epochs of 4"):
        epochs_to_mask(run)
