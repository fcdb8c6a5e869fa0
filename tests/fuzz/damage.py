"""Ways in which a file of a run or of a pack may be damaged or crafted."""

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hypersparse.errors import RunError
from hypersparse.storage.checkpoint import load_tree, save_tree
from hypersparse.storage.record import read_record, write_record

VALUES: tuple[Any, ...] = (
    None,
    True,
    "",
    "word",
    "\ud800",
    "\x1b[2J",
    "../../outside",
    "a" * 100_000,
    -1,
    0,
    0.5,
    10**17,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    [],
    {},
    [[[]]],
    {"name": "os:system"},
)
WORDS = (
    '""',
    "nan",
    "-1",
    "1e999",
    "[]",
    "{}",
    "true",
    "9" * 5000,
    "[" * 3000 + "]" * 3000,
    '"os:system"',
    "1979-05-27",
)


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one file under a folder, and say which and how."""
    file = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"))
    ways: list[Callable[[Path, random.Random], None]] = [flip, cut, remove, insert, replace_by_other]
    ways += [way for pattern, way in CRAFTED.items() if re.search(pattern, file.name) for _ in range(8)]
    way = chance.choice(ways)
    try:
        way(file, chance)
    except (RunError, ValueError):  # an earlier damage left nothing of this format
        flip(file, chance)
    return f"{way.__name__} {file.relative_to(folder)}"


def flip(file: Path, chance: random.Random) -> None:
    """Flip some bits."""
    content = bytearray(file.read_bytes() or b"\0")
    for _ in range(chance.choice((1, 1, 1, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut(file: Path, chance: random.Random) -> None:
    """Cut off the end."""
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content) + 1)])


def remove(file: Path, chance: random.Random) -> None:
    """Delete the file."""
    file.unlink()


def insert(file: Path, chance: random.Random) -> None:
    """Insert what a text does not hold."""
    content, added = file.read_bytes(), chance.choice((b"\0" * 50, b"\xff\xfe", b"[" * 50_000, b"\r", b"1" * 5000))
    place = chance.randrange(len(content) + 1)
    file.write_bytes(content[:place] + added + content[place:])


def replace_by_other(file: Path, chance: random.Random) -> None:
    """Put a pipe, a folder, a link or a huge file in its place."""
    file.unlink()
    kind = chance.randrange(4)
    if kind == 0:
        os.mkfifo(file)
    elif kind == 1:
        file.mkdir()
    elif kind == 2:
        file.symlink_to(chance.choice(("/dev/zero", "/nowhere", file.name)))
    else:
        with file.open("wb") as stream:
            stream.truncate(300 << 20)


def retype_json(file: Path, chance: random.Random) -> None:
    """Change a value of a JSON text."""
    tree = json.loads(file.read_text())
    file.write_text(json.dumps(changed(tree, chance)))


def retype_line(file: Path, chance: random.Random) -> None:
    """Change a value in a line of a log, or the order of its lines."""
    lines = file.read_text().splitlines()
    if not lines:
        return
    if chance.random() < 0.1:
        chance.shuffle(lines)
    place = chance.randrange(len(lines))
    lines[place] = json.dumps(changed(json.loads(lines[place]), chance))
    file.write_text("\n".join(lines) + "\n")


def retype_toml(file: Path, chance: random.Random) -> None:
    """Change a value of a recipe."""
    lines = file.read_text().splitlines()
    place = chance.randrange(len(lines))
    name, equals, _ = lines[place].partition(" = ")
    lines[place : place + 1] = [] if not equals or chance.random() < 0.2 else [f"{name} = {chance.choice(WORDS)}"]
    file.write_text("\n".join(lines) + "\n")


def retype_tree(file: Path, chance: random.Random) -> None:
    """Change a value of a checkpoint, with a digest that fits."""
    try:
        save_tree(file, changed(load_tree(file), chance))
    except (RunError, ValueError):  # final weights are no tree
        flip(file, chance)


def retype_arrays(file: Path, chance: random.Random) -> None:
    """Change an array of a record, with checksums that fit."""
    arrays = read_record(file)
    name = chance.choice(sorted(arrays))
    others = (
        np.zeros(0),
        np.zeros((2, 2), int),
        np.array("a"),
        np.array(np.nan),
        np.full(5, -1),
        arrays[name][..., None],
    )
    arrays[name] = chance.choice(others)
    if chance.random() < 0.3:
        del arrays[name]
    write_record(file, arrays)


CRAFTED: dict[str, Callable[[Path, random.Random], None]] = {
    r"\.json$": retype_json,
    r"\.jsonl$": retype_line,
    r"\.toml$": retype_toml,
    r"\.safetensors$": retype_tree,
    r"\.npz$": retype_arrays,
}


def changed(tree: Any, chance: random.Random) -> Any:
    """A tree of tables and lists with one value deleted, replaced or wrapped."""
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.1:
        if isinstance(tree, torch.Tensor) and chance.random() < 0.7:
            others = (tree[..., None], tree.double(), torch.zeros(3), tree.flatten()[:1], tree * torch.nan, -tree)
            return chance.choice(others)
        return chance.choice((*VALUES, [tree], {"inside": tree}))
    places = list(tree) if isinstance(tree, dict) else range(len(tree))
    place = chance.choice(list(places))
    if chance.random() < 0.2:
        return (
            {name: value for name, value in tree.items() if name != place}
            if isinstance(tree, dict)
            else tree[:place] + tree[place + 1 :]
        )
    copied = dict(tree) if isinstance(tree, dict) else list(tree)
    copied[place] = changed(tree[place], chance)
    return copied


def copy(template: Path, folder: Path) -> Path:
    """A fresh copy to damage."""
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(template, folder))
