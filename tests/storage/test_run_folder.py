"""The files of a run say what is wrong with them, and which one it is."""

import contextlib
import math
import os
from pathlib import Path

import pytest

from hypersparse.analysis.paper import epochs_to_mask
from hypersparse.errors import RunError
from hypersparse.storage.run_folder import RunFolder
from tests.stored import whole_entry, whole_result, whole_summary
from tests.training.small import small


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.write_recipe(small(), 3)
    for epoch in range(4):
        folder.append_log(whole_entry(epoch=epoch, phase="regularize", best_epoch=epoch))
    folder.write_result(whole_result(epochs={"regularize": 4}))
    return folder


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it has no `data`"),  # and not the recipe that is the default
        (b"seed = 3\n[data]\nname = 'digits'\n", "it has no `model`"),
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
    assert result["wall_seconds_by_phase"] == {"regularize": 4.0}
    run.write_result({name: value for name, value in result.items() if name != "sparse"})  # type: ignore[arg-type]
    with pytest.raises(RunError, match=r"result.json is damaged: it has no `sparse`. Delete it and run again"):
        run.result()
    run.write_result({**result, "sparse": whole_summary(last="high")})  # type: ignore[typeddict-item]
    with pytest.raises(RunError, match=r"`sparse.last` should be a valid number; got 'high'"):
        run.result()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"3\n", "line 1 is not of the epoch in timing.jsonl"),
        (b"\xff\xfe\n", "not JSON that can be used"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b'{"a": ' * 40 + b"1" + b"}" * 40 + b"\n", "nested too deeply"),
        (b'{"epoch": NaN}\n', "NaN is no number"),
        (b'{"epoch": 1e999}\n', "1e999 is no number"),
        (b'{"epoch": 1234567890123456789012}\n', "is no number"),
        (b'{"phase": "\\ud800"}\n', "not JSON that can be used"),
        (b"", "0 epochs of 4"),
    ],
)
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


def test_every_flipped_bit_of_a_log_is_an_error_or_another_value(run: RunFolder) -> None:
    whole = run.log_file.read_bytes()
    for bit in range(0, 8 * len(whole), 3):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        run.log_file.write_bytes(content)
        with contextlib.suppress(RunError):
            assert len(run.log()) in (3, 4)  # 3 where the last line has lost its end


def test_a_log_without_its_times_is_said(run: RunFolder) -> None:
    lines = run.timing_file.read_text().splitlines(keepends=True)
    run.timing_file.write_text("".join(lines[:3]))
    for read in (run.log, run.result):
        with pytest.raises(RunError, match=r"timing.jsonl is damaged"):
            read()


def test_a_log_of_any_size_is_read_to_a_limit(run: RunFolder) -> None:
    with run.log_file.open("r+b") as file:
        file.truncate(10 << 30)
    with pytest.raises(RunError, match="it has more than 67,108,864 bytes"):
        run.log()


@pytest.mark.parametrize("name", ["recipe.toml", "log.jsonl", "timing.jsonl", "result.json"])
def test_a_pipe_in_place_of_a_file_is_said(run: RunFolder, name: str) -> None:
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    with pytest.raises(RunError, match=rf"{name} cannot be read: not a regular file"):
        run.tables(), run.log(), run.result()


def test_a_loss_that_is_no_number_is_null(run: RunFolder) -> None:
    run.append_log(whole_entry(epoch=4, phase="regularize", test_loss=math.nan))
    assert run.log()[4]["test_loss"] is None
