"""The functions of C that an exported file begins with: those that it calls, for the types that it calls them with.

In the kernel files `X_t`, `Y_t` and `Z_t` stand for types. A function `name_X_Y` is written once for each pair of types
that is called, as `name_i8_u8` and so on. `name_F` applies a function `of_F` of elements: `apply_silu` calls `of_silu`,
which is written from its row in `hypersparse_runtime.functions`.
A blank line ends each function and each type.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from types import MappingProxyType

from hypersparse_runtime.functions import FUNCTIONS, OPERATORS

SHARED, FLOATS, INTEGERS = "kernels.c", "kernels_fp32.c", "kernels_int8.c"
TYPES: Mapping[str, str] = MappingProxyType(
    {"f32": "float", "i8": "int8_t", "u8": "uint8_t", "i16": "int16_t", "i32": "int32_t"}
)
_DEFINED = re.compile(r"^(?:static \w+ (\w+)\(|\} (\w+);)", re.MULTILINE)
_USED = re.compile(r"\b(\w+(?=\()|(?:window|layer|merge|view)_t\b)")
_LETTER = re.compile(r"_([XYZF])(?![A-Za-z0-9])")

Key = tuple[str, int]  # a name without its types, and how many these are


def functions_for(text: str, files: Sequence[str]) -> list[str]:
    """What the text calls and the types it names, and what those use in turn, in an order that C accepts.

    >>> [part.split("(")[0] for part in functions_for("relu(input, output, 4);", [SHARED, FLOATS])]
    ['static void relu']
    """
    parts = {**_of_elements(), **{key: part for name in files for key, part in _parts(name).items()}}
    return list(_used_by(text, parts, set()))


def _used_by(text: str, parts: Mapping[Key, str], seen: set[str]) -> Iterator[str]:
    for name in dict.fromkeys(_USED.findall(text)):
        base, _, function = name.rpartition("_")
        for known, kinds in (_split(name), (name, []), (base, [function])):
            if name not in seen and (known, len(kinds)) in parts:
                seen.add(name)
                part = _written_for(parts[known, len(kinds)], kinds)
                yield from _used_by(part, parts, seen)
                yield part


def _split(name: str) -> tuple[str, list[str]]:
    """A name and the types at its end.

    >>> _split("conv_i8_u8")
    ('conv', ['i8', 'u8'])
    """
    words = name.split("_")
    kinds: list[str] = []
    while words[-1] in TYPES:
        kinds.insert(0, words.pop())
    return "_".join(words), kinds


def _written_for(part: str, kinds: Sequence[str]) -> str:
    (name,) = (one or two for one, two in _DEFINED.findall(part))
    of = dict(zip(_LETTER.findall(name), kinds, strict=True))
    part = re.sub(r"\b([XYZ])_t\b", lambda match: TYPES[of[match[1]]], part)
    return _LETTER.sub(lambda match: f"_{of[match[1]]}", part)


def c_name(function: str) -> str:
    """A function of elements in names of C, whose last word it is."""
    return function.replace("_", "")


@cache
def _of_elements() -> Mapping[Key, str]:
    """The functions of elements and the operators of two."""
    rows = [
        (name, "float x, float parameter" if each.parameter else "float x", each.c) for name, each in FUNCTIONS.items()
    ]
    rows += [(name, "float x, float z", each.c) for name, each in OPERATORS.items()]
    heads = [(f"of_{c_name(name)}", given, text) for name, given, text in rows]
    return {(name, 0): f"static float {name}({given})\n{{\n    return {text};\n}}\n" for name, given, text in heads}


@cache
def _parts(file: str) -> Mapping[Key, str]:
    text = (resources.files("hypersparse.export") / file).read_text()
    parts = {}
    for part in text.strip().split("\n\n"):
        (name,) = (one or two for one, two in _DEFINED.findall(part))
        parts[_LETTER.sub("", name), len(_LETTER.findall(name))] = f"{part}\n"
    return parts
