"""Fuzzes the readers of images in large files: damaged tar shards, Arrow files and Parquet files.

    nice python -m tests.fuzz.fuzz_shards --cases 2000 [--seed 0] [--keep FOLDER]

Bits are flipped, numbers become huge and ends are cut off. A crash, an error that is not ours, more than 10 s or 1 GB,
and a data set that training could not use are findings.
"""

import io
import shutil
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as arrow
import pyarrow.parquet as parquet
import torch

from hypersparse import data
from hypersparse.errors import DataError, OptionError
from tests.data.pictures import encoded
from tests.fuzz.children import FindingError, Outcome, run_cases, run_fuzzer

MOST_SECONDS = 10.0
IMAGES, CLASSES = 12, 3
NUMBERS = (0, 1, 2**7, 2**15 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)


def table(random: Random, *, plain: bool) -> arrow.Table:
    """Images and labels; one time in three of other types, which are allowed or not."""
    images = [encoded(number) for number in range(IMAGES)]
    labels = [number % CLASSES for number in range(IMAGES)]
    if plain or random.random() < 2 / 3:
        return arrow.table({"image": images, "label": labels})
    kind = random.choice((arrow.binary(), arrow.large_binary(), arrow.dictionary(arrow.int32(), arrow.binary())))
    column = arrow.array(images, arrow.binary())
    if arrow.types.is_dictionary(kind):
        column = column.dictionary_encode()
    elif random.random() < 0.3:
        column = arrow.array([None, *images[1:]], kind)
    else:
        column = column.cast(kind)
    others = (
        labels,
        [str(label) for label in labels],
        [0.5] * IMAGES,
        [None, *labels[1:]],
        [[1]] * IMAGES,
        [2**62] * IMAGES,
    )
    return arrow.table({"image": column, "label": arrow.array(random.choice(others))})


def arrow_file(random: Random, *, plain: bool) -> bytes:
    """As `datasets` writes it."""
    stream, made = io.BytesIO(), table(random, plain=plain)
    compression = None if plain else random.choice((None, None, None, "lz4", "zstd"))
    with arrow.ipc.new_stream(
        stream, made.schema, options=arrow.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_table(made, max_chunksize=random.choice((1, 5, 100)))
    return stream.getvalue()


def parquet_file(random: Random, *, plain: bool) -> bytes:
    """As on the Hub."""
    stream = io.BytesIO()
    compression = random.choice(("snappy", "none", "gzip", "zstd"))
    parquet.write_table(
        table(random, plain=plain), stream, compression=compression, use_dictionary=random.random() < 0.5
    )
    return stream.getvalue()


def tar_file(random: Random, *, plain: bool) -> bytes:
    """A shard of WebDataset."""
    stream = io.BytesIO()
    form = random.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
    with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
        for number in range(IMAGES):
            key = f"{'x' * random.choice((0, 0, 0, 150))}{number:04}"
            label = (
                random.choice((b"1", b"2", b"1", b"-1", b"1e9", b"[" * 5000, b"9" * 5000))
                if not plain and random.random() < 0.05
                else b"1"
            )
            for name, content in ((f"{key}.png", encoded(number)), (f"{key}.cls", label)):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                if not plain and random.random() < 0.01:
                    member.type = random.choice(
                        (tarfile.SYMTYPE, tarfile.GNUTYPE_SPARSE, tarfile.CHRTYPE, tarfile.DIRTYPE)
                    )
                    member.linkname = "/etc/passwd"
                tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


WRITERS: dict[str, Callable[..., bytes]] = {".arrow": arrow_file, ".parquet": parquet_file, ".tar": tar_file}


def damaged(content: bytearray, random: Random) -> bytes:
    """With flipped bits, a huge number, an end that is cut off, or as it was."""
    change = random.randrange(6)
    if change < 2:
        for _ in range(random.choice((1, 1, 8))):
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    elif change < 4:  # metadata is at the beginning or at the end
        size = random.choice((1, 2, 4, 8))
        near = random.choice((0, max(0, len(content) - 1500)))
        at = min(near + random.randrange(1500), len(content) - size)
        content[at : at + size] = (random.choice(NUMBERS) % 256**size).to_bytes(size, "little")
    elif change == 4:
        return bytes(content[: random.randrange(len(content) + 1)])
    return bytes(content)


def make_folder(seed: int, path: Path) -> Outcome:
    """Write the folder of a case."""
    random = Random(seed)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    suffix = random.choice(sorted(WRITERS))
    for part in ("train", "test"):
        content = WRITERS[suffix](random, plain=part == "test")
        (path / f"{part}-0{suffix}").write_bytes(damaged(bytearray(content), random) if part == "train" else content)
    return Outcome("written")


def try_folder(_seed: int, path: Path) -> Outcome:
    """Read the folder of a case as a data set."""
    started = time.process_time()
    cache = path.with_name(f"{path.name} cache")
    try:
        found = data.load(str(path), [cache])
        for split in (found.train, found.test):
            labels = split.labels
            if not 0 <= int(labels.min()) <= int(labels.max()) < len(found.classes):
                raise FindingError("the data set has labels without a class")
            split.read(torch.arange(min(len(split), 20)))
    except (DataError, OptionError) as error:
        if "\n" in str(error) or len(str(error)) > 2000:
            raise FindingError(f"a sentence of {len(str(error))} characters: {str(error)[:300]}") from None
        return Outcome("refused", str(error))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
        if time.process_time() - started > MOST_SECONDS:
            raise FindingError(f"it took more than {MOST_SECONDS} s")
    return Outcome("read")


def fuzz(seeds: range, keep: Path) -> tuple[Counter[str], list[str]]:
    """Run the cases of these seeds; what came of them, and a line for each finding, whose folder is kept."""
    torch.set_num_threads(1)
    return run_cases(seeds, make_folder, try_folder, keep / "case")


if __name__ == "__main__":
    run_fuzzer(fuzz, cases=200)
