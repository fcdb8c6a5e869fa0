"""A trained network, drawings of digits, and files that are no images."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from hypersparse.export.sparse_file import load_graph
from hypersparse.serve.network import Served
from hypersparse_runtime.graph import INPUT, Graph, Node

DIGITS = Path(__file__).parent / "digits.hsp"  # `hypersparse train` and `hypersparse export digits`: 99.2 % right
SIDE = 320
STROKES = {  # in a square from 0 to 1, each drawn without lifting the pen
    0: [
        (0.5, 0.1),
        (0.33, 0.2),
        (0.28, 0.5),
        (0.33, 0.8),
        (0.5, 0.9),
        (0.67, 0.8),
        (0.72, 0.5),
        (0.67, 0.2),
        (0.5, 0.1),
    ],
    2: [(0.3, 0.3), (0.38, 0.2), (0.5, 0.16), (0.62, 0.2), (0.68, 0.32), (0.5, 0.62), (0.32, 0.82), (0.72, 0.82)],
    4: [(0.55, 0.85), (0.55, 0.15), (0.28, 0.6), (0.72, 0.6)],
}


def served(path: Path = DIGITS) -> Served:
    return Served(path.name, load_graph(path), path.stat().st_size)


def linear(shape: tuple[int, ...] = (3, 4, 4), outputs: int = 2, **about: object) -> Graph:
    """A network of one layer whose first output is the sum of all inputs; the others are zero."""
    weight = np.zeros((outputs, int(np.prod(shape))), np.float32)
    weight[0] = 1
    nodes = (Node("flatten", (INPUT,), "v1"), Node("linear", ("v1",), "v2", {"weight": "head.weight"}))
    return Graph(shape, nodes, {"head.weight": weight}, about)


def drawing(digit: int, *, pen: int = 22, paper: str = "white", ink: str = "black", size: float = 1.0) -> Image.Image:
    """A digit in a corner of the field, or all over it."""
    image = Image.new("RGB", (SIDE, SIDE), paper)
    points = [(size * SIDE * x, size * SIDE * y) for x, y in STROKES[digit]]
    pencil = ImageDraw.Draw(image)
    pencil.line(points, fill=ink, width=pen, joint="curve")
    for x, y in points:
        pencil.ellipse((x - pen / 2, y - pen / 2, x + pen / 2, y + pen / 2), fill=ink)
    return image


def file_of(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be of this size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
