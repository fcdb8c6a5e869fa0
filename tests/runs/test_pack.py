import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hypersparse.errors import RunError
from hypersparse.runs.pack import pack, run_files, unpack
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from tests.runs.tiny import FINISHED, STOPPED, UNTIL, cut, run_of, tiny_store


@pytest.fixture
def folders(store: RunStore) -> list[Path]:
    return [run.path for run in store.runs()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): (folder / file).read_bytes() for file in run_files(folder)}


def test_unpacked_runs_equal_the_packed_ones(folders: list[Path], tmp_path: Path) -> None:
    assert pack(folders, tmp_path / "pack") == (tmp_path / "pack").stat().st_size
    placed = unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert [contents(path) for path in placed] == [contents(path) for path in folders]
    assert [path.relative_to(tmp_path / "elsewhere") for path in placed] == [
        path.relative_to(tmp_path / "runs") for path in folders
    ]
    assert not list((tmp_path / "elsewhere").glob(".*"))


def test_locks_temporary_files_and_reports_are_not_packed(folders: list[Path], tmp_path: Path) -> None:
    for name in (".lock", ".checkpoint.safetensors.123", "report.html", "payload.py", "matplotlibrc"):
        (folders[0] / name).write_text("x")
    (folders[0] / "notes").mkdir()
    (folders[0] / "notes" / "mine.txt").write_text("kept")
    pack(folders[:1], tmp_path / "pack")
    (placed,) = unpack(tmp_path / "pack", tmp_path / "elsewhere")
    names = {str(path.relative_to(placed)) for path in placed.rglob("*") if path.is_file()}
    assert names == {
        "recipe.toml",
        "log.jsonl",
        "final.safetensors",
        "record.npz",
        "result.json",
        "timing.jsonl",
        "notes/mine.txt",
    }


def test_equal_runs_give_equal_bytes(folders: list[Path], tmp_path: Path) -> None:
    pack(folders, tmp_path / "a")
    for path in folders[0].iterdir():
        path.touch()
    pack(folders[::-1], tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_earlier_pack_is_not_overwritten(folders: list[Path], tmp_path: Path) -> None:
    pack(folders, tmp_path / "pack")
    before = (tmp_path / "pack").read_bytes()
    with pytest.raises(RunError, match="exists already; delete it"):
        pack(folders[:1], tmp_path / "pack")
    assert (tmp_path / "pack").read_bytes() == before


def test_a_run_outside_a_store_is_named_by_its_recipe(store: RunStore, tmp_path: Path) -> None:
    path = run_of(store, FINISHED).path
    moved = path.rename(tmp_path / "mine")
    pack([moved], tmp_path / "pack")
    (placed,) = unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert placed.relative_to(tmp_path / "elsewhere") == path.relative_to(store.root)


def test_two_runs_of_the_same_name_cannot_share_a_pack(
    folders: list[Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tiny_store(tmp_path / "other", tmp_path_factory)
    with pytest.raises(RunError, match="are both"):
        pack([folders[0], run_of(other, FINISHED).path], tmp_path / "pack")


def test_invalid_runs_raise_an_error_and_write_nothing(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not a run folder"):
        pack([tmp_path], tmp_path / "pack")
    with pytest.raises(RunError, match="no runs to pack"):
        pack([], tmp_path / "pack")
    with RunFolder(folders[0]).locked(), pytest.raises(RunError, match="A process is training"):
        pack(folders, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda raw: b"", "not a whole pack"),
        (lambda raw: b"nothing" * 100, "not a whole pack"),
        (lambda raw: raw[: len(raw) // 2], "not a whole pack"),
        (lambda raw: raw.replace(b"sparsity = 0.95", b"sparsity = 0.96"), r"recipe\.toml in .* was altered"),
    ],
    ids=["empty", "other", "truncated", "altered"],
)
def test_a_damaged_pack_is_named_and_nothing_is_unpacked(
    folders: list[Path], tmp_path: Path, damage: Callable[[bytes], bytes], words: str
) -> None:
    pack(folders, tmp_path / "pack")
    raw = (tmp_path / "pack").read_bytes()
    (tmp_path / "pack").write_bytes(damage(raw))
    assert damage(raw) != raw
    with pytest.raises(RunError, match=words):
        unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_pack_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="There is no pack"):
        unpack(tmp_path / "pack", tmp_path / "runs")
    with pytest.raises(RunError, match="not a whole pack"):
        unpack(tmp_path, tmp_path / "runs")


def forged(file: Path, member: tarfile.TarInfo, data: bytes = b"", *, digest: str | None = None) -> Path:
    """A pack whose index is right, unless a digest is given, and whose content is not."""
    index = json.dumps({member.name: digest or hashlib.sha256(data).hexdigest()}).encode()
    with tarfile.open(file, mode="w") as tar:
        for each, content in ((member, data), (tarfile.TarInfo("index.json"), index)):
            each.size = len(content)
            tar.addfile(each, io.BytesIO(content))
    return file


def test_an_index_of_other_files_is_refused(folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="was altered"):
        unpack(forged(tmp_path / "a", tarfile.TarInfo("a/seed-0/recipe.toml"), b"x", digest="0"), tmp_path / "runs")
    pack(folders[:1], tmp_path / "pack")
    with tarfile.open(tmp_path / "pack", "a") as tar:
        tar.addfile(tarfile.TarInfo("a/seed-0/recipe.toml"))
    with pytest.raises(RunError, match="is not in both"):
        unpack(tmp_path / "pack", tmp_path / "runs")


STRANGE = [
    "/etc/x.txt",
    "a/seed-0/../../../x.txt",
    "a/other/recipe.toml",
    "a/seed-0/.lock",
    "a",
    "a/seed-0/payload.py",
    "a/seed-0/matplotlibrc",
    "a/seed-0/page.html",
    "a/seed-0/library.so",
]


@pytest.mark.parametrize("name", STRANGE)
def test_files_outside_the_runs_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="not a file of a run"):
        unpack(forged(tmp_path / "pack", tarfile.TarInfo(name), b"x"), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("a/seed-0/recipe.toml")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(RunError, match="not a file of a run"):
        unpack(forged(tmp_path / "pack", member), tmp_path / "runs")


def test_a_file_with_holes_is_refused(tmp_path: Path) -> None:
    """A pack of 3 kB that claimed a terabyte of holes took minutes to read."""
    member = tarfile.TarInfo("a/seed-0/recipe.toml")
    member.type = tarfile.GNUTYPE_SPARSE
    with pytest.raises(RunError, match="not a file of a run"):
        unpack(forged(tmp_path / "pack", member), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


def unpack_again(file: Path, root: Path) -> tuple[list[Path], list[str]]:
    sentences: list[str] = []
    return unpack(file, root, skipped=sentences.append), sentences


def test_existing_runs_are_skipped(folders: list[Path], store: RunStore, tmp_path: Path) -> None:
    pack(folders, tmp_path / "pack")
    (folders[0] / "report.html").write_text("a page")
    placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert sentences == [f"{folder} is already there." for folder in folders]


def test_an_unfinished_run_never_replaces_a_finished_one(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    finished = contents(run.path)
    pack([run.path], tmp_path / "finished")
    cut(run, epochs=4)
    pack([run.path], tmp_path / "unfinished")
    assert unpack_again(tmp_path / "finished", store.root) == ([run.path], [])  # the finished one gets further
    placed, sentences = unpack_again(tmp_path / "unfinished", store.root)
    assert placed == []
    assert "is finished and the one in the pack is not" in sentences[0]
    assert contents(run.path) == finished


def test_of_two_unfinished_runs_the_longer_one_stays(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    cut(run, epochs=4)
    pack([run.path], tmp_path / "long")
    run.cut_log(2)
    pack([run.path], tmp_path / "short")
    assert unpack_again(tmp_path / "long", store.root)[0] == [run.path]
    placed, sentences = unpack_again(tmp_path / "short", store.root)
    assert placed == []
    assert "has 4 epochs and the one in the pack 2" in sentences[0]
    assert len(run.log()) == 4


def test_a_different_finished_run_is_kept_and_a_damaged_one_replaced(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    pack([run.path], tmp_path / "pack")
    run.result_file.write_text(run.result_file.read_text().replace('"python": "', '"python": "9.', 1))
    placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert "differs" in sentences[0]
    run.result_file.write_text("{")
    assert unpack_again(tmp_path / "pack", store.root)[0] == [run.path]
    assert run.result() is not None


def test_a_run_being_trained_is_kept(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    pack([run.path], tmp_path / "pack")
    cut(run, epochs=3)
    with run.locked():
        placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert "being trained" in sentences[0]


def test_a_stopped_run_is_packed_with_its_checkpoint(store: RunStore, tmp_path: Path) -> None:
    pack([run_of(store, seed).path for seed in (STOPPED, UNTIL)], tmp_path / "pack")
    for path in unpack(tmp_path / "pack", tmp_path / "elsewhere"):
        assert RunFolder(path).checkpoint_file.is_file()


def test_leftovers_of_a_killed_unpack_are_restored_or_removed(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    before = contents(run.path)
    pack([run.path], tmp_path / "pack")
    process = subprocess.Popen(["true"])
    process.wait()
    name = run.path.relative_to(store.root)
    scratch = store.root / f".unpacking-{platform.node()}-{process.pid}-x"
    (scratch / "old" / name).parent.mkdir(parents=True)
    run.path.rename(scratch / "old" / name)  # killed before the new run took its place
    alive = store.root / f".unpacking-{platform.node()}-{os.getppid()}-x"
    alive.mkdir()
    unpack_again(tmp_path / "pack", store.root)
    assert contents(run.path) == before
    assert not scratch.exists()
    assert alive.exists()
