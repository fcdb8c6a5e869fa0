"""The names that arrays, values and operations of a network may have, in files and everywhere else.

PyTorch, ONNX and C write these names into source text. A name from a stranger's file must therefore contain no
character with a meaning there.
"""

import re
from collections.abc import Iterable

LONGEST = 512  # characters; torchvision and timm have under 100
MADE = "~"  # begins the names of arrays that are not in the traced model's state_dict
NAME = re.compile(rf"[A-Za-z0-9_.~-]{{1,{LONGEST}}}")


def strange_name(names: Iterable[object]) -> str | None:
    """What is wrong with the first invalid name; None if all are valid.

    >>> strange_name(["layers.0.weight", "~made"]) is None
    True
    >>> strange_name(["a b"])
    "'a b' is no name: names have 1 to 512 of the characters A-Z, a-z, 0-9 and _.~-"
    """
    for name in names:
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            said = f"1 to {LONGEST} of the characters A-Z, a-z, 0-9 and _.~-"
            return f"{str(name)[:40]!a} is no name: names have {said}"
    return None
