import hashlib
import io
import re
import tarfile
import urllib.error
from email.message import Message
from pathlib import Path

import pytest

from hypersparse.data import tiny_imagenet
from hypersparse.data.cifar import CIFAR10, CIFAR100
from hypersparse.data.files import Archive, check_archive, check_sha256, find, locate, read_file, replacing, tar_members
from hypersparse.errors import DataError

CONTENT = b"what the authors published"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


URL = "https://example.org/toy.tar.gz"
ARCHIVE = Archive(file="toy.tar.gz", unpacked="toy", url=URL, sha256=sha256(CONTENT), size=len(CONTENT))


class Answer(io.BytesIO):
    """What urlopen gives back."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self.headers = Message()


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Answer(content))


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(url: str, timeout: float) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr("urllib.request.urlopen", fail)


def test_the_first_folder_takes_precedence_and_unpacked_is_preferred(tmp_path: Path) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    (far / "toy").mkdir(parents=True)
    assert find([near, far], ["toy", "toy.tar.gz"]) == far / "toy"
    near.mkdir()
    (near / "toy.tar.gz").touch()
    assert find([near, far], ["toy", "toy.tar.gz"]) == near / "toy.tar.gz"
    assert locate(ARCHIVE, [near, far], download=True, progress=None) == near / "toy.tar.gz"
    assert find([], ["toy"]) is None


def test_download_goes_to_the_last_folder_and_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, CONTENT)
    reports: list[tuple[str, int, int]] = []
    folders = [tmp_path / "first", tmp_path / "last"]
    path = locate(ARCHIVE, folders, download=True, progress=lambda *report: reports.append(report))
    assert path == tmp_path / "last" / "toy.tar.gz"
    assert path.read_bytes() == CONTENT
    assert reports == [("Downloading toy.tar.gz", len(CONTENT), len(CONTENT))]


def test_a_damaged_download_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, CONTENT[:-3])
    with pytest.raises(DataError, match=r"toy\.tar\.gz arrived damaged .*try again"):
        locate(ARCHIVE, [tmp_path], download=True, progress=None)
    assert list(tmp_path.iterdir()) == []


def test_without_network_the_error_gives_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_network(monkeypatch)
    with pytest.raises(DataError) as caught:
        locate(ARCHIVE, [tmp_path], download=True, progress=None)
    assert "could not be downloaded from https://example.org/toy.tar.gz" in str(caught.value)
    assert "(Name or service not known)" in str(caught.value)
    assert f"Put toy.tar.gz or its unpacked folder toy into {tmp_path}." in str(caught.value)


def test_nothing_is_downloaded_without_permission(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"was not found\. Put toy\.tar\.gz"):
        locate(ARCHIVE, [tmp_path], download=False, progress=None)
    with pytest.raises(DataError, match="into a folder"):
        locate(ARCHIVE, [], download=True, progress=None)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, CONTENT)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="could not be downloaded"):
        locate(ARCHIVE, [tmp_path / "file"], download=True, progress=None)


def test_replacing_keeps_the_old_file_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with replacing(path) as file:
        file.write(b"old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_an_endless_download_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []

    class Endless(Answer):
        def read(self, size: int | None = -1, /) -> bytes:
            served.append(size)
            return bytes(size or 0)

    monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: Endless(b""))
    with pytest.raises(DataError, match=r"toy\.tar\.gz arrived damaged .*, expected 26 with"):
        locate(ARCHIVE, [tmp_path], download=True, progress=None)
    assert len(served) == 1
    assert list(tmp_path.iterdir()) == []


def test_every_archive_has_an_https_url_and_a_sha256() -> None:
    for archive in (CIFAR10.archive, CIFAR100.archive, tiny_imagenet.ARCHIVE):
        assert archive.url.startswith("https://")
        assert re.fullmatch("[0-9a-f]{64}", archive.sha256)


def test_an_existing_archive_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "toy.tar.gz"
    path.write_bytes(CONTENT)
    check_archive(path, ARCHIVE)
    path.write_bytes(CONTENT[1:])
    with pytest.raises(DataError, match=r"toy\.tar\.gz is not the published archive .*delete it and get it again"):
        check_archive(path, ARCHIVE)


def test_check_sha256_names_the_file() -> None:
    assert check_sha256(CONTENT, sha256(CONTENT), Path("train")) == CONTENT
    with pytest.raises(DataError, match="train is truncated or altered"):
        check_sha256(CONTENT[1:], sha256(CONTENT), Path("train"))


def test_a_file_above_the_size_limit_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train").write_bytes(b"12345")
    monkeypatch.setattr("hypersparse.data.files.LARGEST_MEMBER_BYTES", 4)
    with pytest.raises(DataError, match="more than 4 bytes"):
        read_file(tmp_path / "train")


def test_read_file_names_the_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone cannot be read \(No such file"):
        read_file(tmp_path / "gone")


def make_tar(path: Path, members: dict[str, bytes], *links: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for link in links:
            archive.addfile(link)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def test_only_named_members_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    members = {"../escaped": b"evil", "/tmp/absolute": b"evil", "toy/a": b"A", "toy/b": b"B"}
    path = make_tar(folder / "toy.tar.gz", members)
    assert tar_members(path, ["toy/a", "toy/b"]) == {"toy/a": b"A", "toy/b": b"B"}
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["toy.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_member_that_is_not_a_plain_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    link = tarfile.TarInfo("toy/a")
    link.type, link.linkname = kind, "/etc/passwd"
    path = make_tar(tmp_path / "toy.tar.gz", {}, link)
    with pytest.raises(DataError, match=r"toy/a in .* must be a plain file"):
        tar_members(path, ["toy/a"])


def test_a_member_above_the_size_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_tar(tmp_path / "toy.tar.gz", {"toy/a": b"12345"})
    monkeypatch.setattr("hypersparse.data.files.LARGEST_MEMBER_BYTES", 4)
    with pytest.raises(DataError, match="at most 4 bytes"):
        tar_members(path, ["toy/a"])


def test_truncated_foreign_or_incomplete_archives_are_named(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "toy.tar.gz", {"toy/a": bytes(range(256)) * 99, "toy/b": b"B"})
    with pytest.raises(DataError, match=r"toy\.tar\.gz has no member toy/c"):
        tar_members(path, ["toy/a", "toy/c"])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"toy\.tar\.gz is truncated or damaged"):
        tar_members(path, ["toy/a", "toy/b"])
    path.write_bytes(b"<html>Not found</html>")
    with pytest.raises(DataError, match=r"toy\.tar\.gz is truncated or damaged"):
        tar_members(path, ["toy/a"])
