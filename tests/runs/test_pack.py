import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from pathlib import Path

import pytest

from hypersparse.errors import OptionError, RunError
from hypersparse.runs.pack import pack, parse_bytes, run_files, unpack
from hypersparse.runs.store import RunStore
from hypersparse.storage.run_folder import RunFolder
from tests.runs.tiny import FINISHED, STOPPED, UNTIL, cut, run_of, tiny_store


@pytest.fixture
def folders(store: RunStore) -> list[Path]:
    return [run.path for run in store.runs()]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): (folder / file).read_bytes() for file in run_files(folder)}


def test_unpacked_runs_equal_the_packed_ones(folders: list[Path], tmp_path: Path) -> None:
    written = pack(folders, tmp_path / "pack", 20_000)
    assert [path.name for path in written[:2]] == ["part-000.hspack", "part-001.hspack"]
    assert written[-1].name == "index.json"
    assert all(path.stat().st_size == 20_000 for path in written[:-2])
    placed = unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert [contents(path) for path in placed] == [contents(path) for path in folders]
    assert [path.relative_to(tmp_path / "elsewhere") for path in placed] == [
        path.relative_to(tmp_path / "runs") for path in folders
    ]
    assert not list((tmp_path / "elsewhere").glob(".*"))


def test_locks_temporary_files_and_pictures_are_not_packed(folders: list[Path], tmp_path: Path) -> None:
    for name in (".lock", ".checkpoint.safetensors.123", "curves.png", "payload.py", "matplotlibrc"):
        (folders[0] / name).write_text("x")
    (folders[0] / "notes").mkdir()
    (folders[0] / "notes" / "mine.txt").write_text("kept")
    pack(folders[:1], tmp_path / "pack", 10**6)
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
    first = pack(folders, tmp_path / "a", 50_000)
    for path in folders[0].iterdir():
        path.touch()
    second = pack(folders[::-1], tmp_path / "b", 50_000)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_new_pack_replaces_an_old_longer_one(folders: list[Path], tmp_path: Path) -> None:
    pack(folders, tmp_path / "pack", 2_000)
    written = pack(folders[:1], tmp_path / "pack", 10**6)
    assert sorted((tmp_path / "pack").iterdir()) == sorted(written)


def test_a_run_outside_a_store_is_named_by_its_recipe(store: RunStore, tmp_path: Path) -> None:
    path = run_of(store, FINISHED).path
    moved = path.rename(tmp_path / "mine")
    pack([moved], tmp_path / "pack", 10**6)
    (placed,) = unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert placed.relative_to(tmp_path / "elsewhere") == path.relative_to(store.root)


def test_two_runs_of_the_same_name_cannot_share_a_pack(
    folders: list[Path], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tiny_store(tmp_path / "other", tmp_path_factory)
    with pytest.raises(RunError, match="are both"):
        pack([folders[0], run_of(other, FINISHED).path], tmp_path / "pack", 10**6)


def test_invalid_runs_raise_an_error_and_keep_an_earlier_pack(folders: list[Path], tmp_path: Path) -> None:
    earlier = pack(folders, tmp_path / "pack", 10**6)
    with pytest.raises(RunError, match="not a run folder"):
        pack([tmp_path], tmp_path / "pack", 10**6)
    with pytest.raises(RunError, match="no runs to pack"):
        pack([], tmp_path / "pack", 10**6)
    with pytest.raises(OptionError, match="at least 1,024 bytes; got 10"):
        pack(folders, tmp_path / "pack", 10)
    with RunFolder(folders[0]).locked(), pytest.raises(RunError, match="A process is training"):
        pack(folders, tmp_path / "pack", 10**6)
    assert all(path.exists() for path in earlier)


def damage(path: Path, how: str) -> None:
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("how", "words"), [("missing", "is missing"), ("truncated", "bytes instead of"), ("altered", "altered")]
)
def test_a_damaged_part_is_named_and_nothing_is_unpacked(
    folders: list[Path], tmp_path: Path, how: str, words: str
) -> None:
    pack(folders, tmp_path / "pack", 20_000)
    damage(tmp_path / "pack" / "part-001.hspack", how)
    with pytest.raises(RunError, match=rf"part-001\.hspack.* {words}"):
        unpack(tmp_path / "pack", tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("index", "words"),
    [
        (None, "not a pack: it has no index.json"),
        ("{", "damaged"),
        ("[]", "it should be a valid dictionary"),
        ('{"version": 2, "parts": [], "runs": []}', "version 2"),
        ('{"version": 1, "parts": [{"file": "../x", "bytes": 1, "sha256": ""}], "runs": []}', "names a part"),
        ('{"version": 1, "parts": [], "runs": ["../../x"]}', "runs are called"),
    ],
)
def test_an_invalid_index_raises_an_error(tmp_path: Path, index: str | None, words: str) -> None:
    if index is not None:
        (tmp_path / "index.json").write_text(index)
    with pytest.raises(RunError, match=words):
        unpack(tmp_path, tmp_path / "runs")


def forged(folder: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    """A pack whose checksums are right and whose content is not."""
    folder.mkdir()
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    raw = stream.getvalue()
    part = {"file": "part-000.hspack", "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (folder / "part-000.hspack").write_bytes(raw)
    (folder / "index.json").write_text(json.dumps({"version": 1, "parts": [part], "runs": ["a/seed-0"]}))
    return folder


STRANGE = [
    "/etc/x.txt",
    "a/seed-0/../../../x.txt",
    "b/seed-0/recipe.toml",
    "a/seed-0/.lock",
    "a",
    "a/seed-0/payload.py",
    "a/seed-0/matplotlibrc",
    "a/seed-0/page.html",
    "a/seed-0/library.so",
]


@pytest.mark.parametrize("name", STRANGE)
def test_files_outside_the_runs_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="not a file of its runs"):
        unpack(forged(tmp_path / "pack", tarfile.TarInfo(name), b"x"), tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("a/seed-0/recipe.toml")
    member.type, member.linkname = kind, "/etc/passwd"
    with pytest.raises(RunError, match="not a file of its runs"):
        unpack(forged(tmp_path / "pack", member), tmp_path / "runs")


def test_a_listed_run_that_is_missing_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="does not hold all of it"):
        unpack(forged(tmp_path / "pack", tarfile.TarInfo("a/seed-0/log.jsonl"), b"x"), tmp_path / "runs")


def unpack_again(pack_folder: Path, root: Path) -> tuple[list[Path], list[str]]:
    sentences: list[str] = []
    return unpack(pack_folder, root, skipped=sentences.append), sentences


def test_existing_runs_are_skipped(folders: list[Path], store: RunStore, tmp_path: Path) -> None:
    pack(folders, tmp_path / "pack", 10**6)
    (folders[0] / "curves.png").write_text("a picture")
    placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert sentences == [f"{folder} is already there." for folder in folders]


def test_an_unfinished_run_never_replaces_a_finished_one(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    finished = contents(run.path)
    pack([run.path], tmp_path / "finished", 10**6)
    cut(run, epochs=4)
    pack([run.path], tmp_path / "unfinished", 10**6)
    assert unpack_again(tmp_path / "finished", store.root) == ([run.path], [])  # the finished one gets further
    placed, sentences = unpack_again(tmp_path / "unfinished", store.root)
    assert placed == []
    assert "is finished and the one in the pack is not" in sentences[0]
    assert contents(run.path) == finished


def test_of_two_unfinished_runs_the_longer_one_stays(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    cut(run, epochs=4)
    pack([run.path], tmp_path / "long", 10**6)
    run.cut_log(2)
    pack([run.path], tmp_path / "short", 10**6)
    assert unpack_again(tmp_path / "long", store.root)[0] == [run.path]
    placed, sentences = unpack_again(tmp_path / "short", store.root)
    assert placed == []
    assert "has 4 epochs and the one in the pack 2" in sentences[0]
    assert len(run.log()) == 4


def test_a_different_finished_run_is_kept_and_a_damaged_one_replaced(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    pack([run.path], tmp_path / "pack", 10**6)
    run.result_file.write_text(run.result_file.read_text().replace('"python": "', '"python": "9.', 1))
    placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert "differs" in sentences[0]
    run.result_file.write_text("{")
    assert unpack_again(tmp_path / "pack", store.root)[0] == [run.path]
    assert run.result() is not None


def test_a_run_being_trained_is_kept(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    pack([run.path], tmp_path / "pack", 10**6)
    cut(run, epochs=3)
    with run.locked():
        placed, sentences = unpack_again(tmp_path / "pack", store.root)
    assert placed == []
    assert "being trained" in sentences[0]


def test_a_stopped_run_is_packed_with_its_checkpoint(store: RunStore, tmp_path: Path) -> None:
    pack([run_of(store, seed).path for seed in (STOPPED, UNTIL)], tmp_path / "pack", 10**6)
    for path in unpack(tmp_path / "pack", tmp_path / "elsewhere"):
        assert RunFolder(path).checkpoint_file.is_file()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("15M", 15 * 10**6), ("15mb", 15 * 10**6), ("2 KiB", 2048), ("1.5G", 1_500_000_000), ("7kB", 7000)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "0", "15T", "1e6", "15 M B", "0.1"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="such as 15M"):
        parse_bytes(text)


def test_leftovers_of_a_killed_unpack_are_restored_or_removed(store: RunStore, tmp_path: Path) -> None:
    run = run_of(store, FINISHED)
    before = contents(run.path)
    pack([run.path], tmp_path / "pack", 10**6)
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
