"""Fuzzes the reader of `.npz` data sets with files that look valid and are not.

    nice python -m tests.fuzz.fuzz_npz --cases 5000 [--seed 0] [--keep FOLDER]

Names, types, shapes, labels and values are extreme, headers and fields of the zip say what is not true, and bytes are
changed. A crash, an error that is not ours, more than 2 s or 1 GB, and a data set that training could not use are
findings.
"""

import io
import struct
import time
import zipfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from hypersparse.data import npz
from hypersparse.errors import DataError
from tests.fuzz.children import FindingError, Outcome, run_cases, run_fuzzer

MOST_SECONDS = 2.0
KINDS = (
    "u1",
    "u1",
    "i1",
    "<f4",
    "<f8",
    ">f8",
    "<f2",
    "<i8",
    "<u8",
    "?",
    "<c8",
    "U3",
    "S3",
    "M8[s]",
    "V4",
    "V0",
    "U0",
    "O",
)
VALUES = (0, 1, 2, 255, -1, 2**31, 2**62, 0.5, 1e300, float("nan"), float("inf"))
LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"  # where headers of members begin
FIELDS = {
    LOCAL: (4, 6, 8, 14, 18, 22, 26, 28),
    CENTRAL: (4, 6, 8, 10, 16, 20, 24, 28, 30, 42),
}  # of a zip, two bytes each


def arrays_of(random: Random) -> dict[str, Any]:
    """Arrays of a data set, of which some are strange."""
    images, tests = random.choice((1, 2, 4, 50)), random.choice((1, 2, 4))
    side = random.choice(((6, 5), (6, 5, 3), (3, 6, 5), (7,), (1,)))
    side = (600, 600, 3) if random.random() < 0.01 else side
    arrays: dict[str, Any] = {
        "x_train": np.zeros((images, *side), np.uint8),
        "y_train": np.arange(images) % 2,
        "x_test": np.zeros((tests, *side), np.uint8),
        "y_test": np.zeros(tests, np.uint8),
    }
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        name = random.choice(sorted(arrays))
        change = random.randrange(6)
        if change == 0:
            del arrays[name]
        elif change == 1:
            arrays[random.choice(("classes", "train_images", "x_train\n", "../x", "x" * 5000))] = arrays[name]
        elif change == 2:
            arrays[name] = np.zeros(arrays[name].shape, random.choice(KINDS))
        elif change == 3 and arrays[name].size and arrays[name].dtype.kind in "uifb":
            strange = np.array(arrays[name], random.choice(("<f8", "<f4", "<i8")))
            with np.errstate(all="ignore"):
                strange.reshape(-1)[random.randrange(strange.size)] = np.float64(random.choice(VALUES)).astype(
                    strange.dtype
                )
            arrays[name] = strange
        elif change == 4:
            arrays[name] = np.zeros(
                random.choice(((), (0,), (2, 0), (3, 1), (1,) * 9, (2**22,), (2**12, 2**12))),
                random.choice(("u1", "<i8")),
            )
        else:
            arrays["classes"] = np.array(
                random.choice((["a"], ["a", "b"], [b"a", b"b"], [1, 2], [0.5, 1.5], ["\n", "\0b"]))
            )
        if not arrays:
            break
    return arrays


def member(random: Random, array: Any) -> bytes:
    """An array as a member of the file; its header may claim another."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), allow_pickle=True)
    content = stream.getvalue()
    if random.random() < 0.95:
        return content
    shape = tuple(random.choice((0, 1, 2, 4, 2**20, 2**40, 2**62, 2**64, -1)) for _ in range(random.randrange(5)))
    said = random.choice((str(shape), "(" * 300, "(1,) * 9", "(1L,)", "None", "'a'"))
    header = (
        f"{{'descr': {random.choice(KINDS)!r}, 'fortran_order': {random.choice((True, False, 3))}, 'shape': {said}, }}"
    )
    header += " " * random.choice((0, 30, 2**15, 2**20)) + "\n"
    version = random.choice((b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\7\7"))
    length = struct.pack("<I", len(header)) if version[0] > 1 else struct.pack("<H", len(header) % 2**16)
    numbers = content[-array.nbytes :] if array.nbytes else b""
    return b"\x93NUMPY" + version + length + header.encode() + numbers


def npz_file(random: Random) -> bytes:
    """The bytes of a case."""
    stream = io.BytesIO()
    method = random.choice(
        (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    )
    with zipfile.ZipFile(stream, "w", method if random.random() < 0.3 else zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays_of(random).items():
            archive.writestr(f"{name}.npy", member(random, array))
        if random.random() < 0.05:
            archive.writestr("notes.txt", b"0" * random.choice((1, 2**26)))
    content = bytearray(stream.getvalue())
    change = random.randrange(8)
    if change < 3:
        mark = random.choice((LOCAL, CENTRAL))
        places = [at for at in range(len(content) - 46) if content[at : at + 4] == mark]
        if places:
            at = random.choice(places) + random.choice(FIELDS[mark])
            content[at : at + 2] = random.choice((b"\0\0", b"\1\0", b"\xff\xff", b"\x63\0", random.randbytes(2)))
    elif change == 3:
        content = content[: random.randrange(len(content) + 1)]
    elif change == 4:
        for _ in range(random.choice((1, 2, 20))):
            content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


def make_file(seed: int, path: Path) -> Outcome:
    """Write the file of a case."""
    path.write_bytes(npz_file(Random(seed)))
    return Outcome("written")


def try_file(_seed: int, path: Path) -> Outcome:
    """Read the file of a case as a data set."""
    started = time.process_time()
    try:
        data = npz.read(path)
    except DataError as error:
        if "\n" in str(error) or len(str(error)) > 2000 or str(path) not in str(error):
            raise FindingError(f"a sentence of {len(str(error))} characters: {str(error)[:300]}") from None
        return Outcome("refused", str(error))
    finally:
        if time.process_time() - started > MOST_SECONDS:
            raise FindingError("it took more than 2 s")
    for split in (data.train, data.test):
        if not bool(split.images.isfinite().all()) or not 0 <= int(split.labels.min()) <= int(split.labels.max()) < len(
            data.classes
        ):
            raise FindingError("the data set holds what no network can learn")
    return Outcome("read")


def fuzz(seeds: range, keep: Path) -> tuple[Counter[str], list[str]]:
    """Run the cases of these seeds; what came of them, and a line for each finding, whose file is kept."""
    return run_cases(seeds, make_file, try_file, keep / "case.npz")


if __name__ == "__main__":
    run_fuzzer(fuzz, cases=500)
