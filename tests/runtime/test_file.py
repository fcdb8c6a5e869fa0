"""`.hsp` files: what goes in comes out, and nothing else is believed."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from hypersparse_runtime.container import FileError, container, sections_of
from hypersparse_runtime.file import DTYPES, pack, read, unpack, write
from hypersparse_runtime.graph import INPUT, Graph, Node
from hypersparse_runtime.row_quantization import dequantize_rows, quantize_rows

CONV = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}


def small_graph(density: float = 0.2) -> Graph:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((6, 3, 3, 3)).astype(np.float32)
    weight[generator.random((6, 3, 3, 3)) >= density] = 0
    tensors = {
        "conv.weight": weight,
        "conv.bias": generator.standard_normal(6).astype(np.float32),
        "linear.weight": generator.standard_normal((4, 6)).astype(np.float32),
        "count": np.array(7, np.int64),
        "empty": np.zeros((0, 3), np.float64),
    }
    nodes = (
        Node("conv", (INPUT,), "a", {"weight": "conv.weight", "bias": "conv.bias"}, CONV),
        Node("relu", ("a",), "b"),
        Node("mean", ("b",), "c"),
        Node("linear", ("c",), "d", {"weight": "linear.weight"}),
    )
    return Graph((3, 5, 5), nodes, tensors, {"classes": ["ä", "b", "c", "d"], "recipe": "x = 1\n"})


def test_everything_comes_back_bit_for_bit(tmp_path: Path) -> None:
    graph = small_graph()
    size = write(graph, tmp_path / "a.hsp")
    back = read(tmp_path / "a.hsp")
    assert size == (tmp_path / "a.hsp").stat().st_size
    assert list(tmp_path.iterdir()) == [tmp_path / "a.hsp"]
    assert list(back.tensors) == list(graph.tensors)
    for name, array in graph.tensors.items():
        came = back.tensors[name]
        assert (came.dtype, came.shape, came.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.about == graph.about
    assert back.input_shape == graph.input_shape
    assert [(node.op, dict(node.options)) for node in back.nodes] == [(n.op, dict(n.options)) for n in graph.nodes]


def test_the_same_network_makes_the_same_bytes() -> None:
    assert pack(small_graph()) == pack(unpack(pack(small_graph())))


def test_safetensors_reads_it(tmp_path: Path) -> None:
    write(small_graph(), tmp_path / "a.hsp")
    with safe_open(str(tmp_path / "a.hsp"), "np") as file:
        assert sorted(file.keys()) == ["graph", "positions", "values"]
        assert json.loads(file.metadata()["about"])["classes"][0] == "ä"


def test_half_rounds_once_and_keeps_what_does_not_fit() -> None:
    graph = small_graph()
    graph.tensors["conv.bias"][0] = 1e6  # type: ignore[index]
    back = unpack(pack(graph, half=True))
    weight = graph.tensors["conv.weight"]
    assert (back.tensors["conv.weight"] == weight.astype(np.float16).astype(np.float32)).all()
    assert back.tensors["conv.weight"].dtype == np.float32
    assert back.tensors["conv.bias"][0] == 1e6
    again = unpack(pack(back, half=True))
    assert all((again.tensors[name] == back.tensors[name]).all() for name in back.tensors)


def quantized_graph() -> Graph:
    """The small graph with weights that are whole steps."""
    graph = small_graph()
    weights = {name: array for name, array in graph.tensors.items() if name.endswith("weight") and array.ndim > 1}
    assert weights
    tensors = {**graph.tensors, **{name: dequantize_rows(*quantize_rows(array)) for name, array in weights.items()}}
    return Graph(graph.input_shape, graph.nodes, tensors, graph.about)


def test_whole_steps_are_stored_as_int8() -> None:
    graph = quantized_graph()
    content = pack(graph, int8=True)
    back = unpack(content)
    assert all(np.array_equal(back.tensors[name], array) for name, array in graph.tensors.items())
    assert all(back.tensors[name].dtype == array.dtype for name, array in graph.tensors.items())
    assert pack(back, int8=True) == pack(graph, int8=True)
    assert len(content) < len(pack(graph, half=True))
    other = small_graph()  # no whole steps: nothing is rounded
    assert pack(other, int8=True) == pack(other)


@pytest.mark.parametrize("kind", ["scale", "steps", "rows", "cut"])
def test_int8_that_is_made_up_gets_one_sentence(kind: str) -> None:
    sections, about = sections_of(pack(quantized_graph(), int8=True))
    values = bytearray(zlib.decompress(sections["values"]))
    text = json.loads(zlib.decompress(sections["graph"]))
    if kind == "scale":
        values[-1] = 0x80  # the sign of the last one
    if kind == "steps":
        scales = 2 * sum(row[1][0] for row in text["arrays"] if DTYPES[row[2]] == "int8_rows")
        values[-scales - 1] = 0x80
    if kind == "rows":
        text["arrays"].append(["a", [2**40, 0], DTYPES.index("int8_rows"), -1])
    if kind == "cut":
        del values[-2:]
    sections |= {"values": zlib.compress(bytes(values)), "graph": zlib.compress(json.dumps(text).encode())}
    with pytest.raises(FileError) as raised:
        unpack(container(sections, json.dumps(about)))
    assert "\n" not in str(raised.value)


def test_minus_zero_in_a_sparse_array_is_zero() -> None:
    graph = small_graph()
    graph.tensors["conv.weight"][graph.tensors["conv.weight"] == 0] = -0.0  # type: ignore[index]
    assert len(pack(graph)) == len(pack(small_graph()))


def test_an_array_no_file_can_hold_is_said() -> None:
    graph = small_graph()
    odd = Graph(graph.input_shape, graph.nodes, {**graph.tensors, "count": np.array(1j)}, {})
    with pytest.raises(FileError, match="complex128"):
        pack(odd)


def resealed(change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> bytes:
    """A file whose graph and parts were changed by somebody who knows how to seal it again."""
    sections, about = sections_of(pack(small_graph()))
    text = json.loads(zlib.decompress(sections["graph"]))
    change(text, sections)
    if sections["graph"]:
        sections["graph"] = zlib.compress(json.dumps(text).encode())
    return container(sections, json.dumps(about))


def set_row(number: int, place: int, value: Any) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    return lambda text, _: text["arrays"][number].__setitem__(place, value)


HOSTILE: dict[str, Callable[[dict[str, Any], dict[str, bytes]], Any]] = {
    "huge array": set_row(0, 1, [2**30, 2**15, 3, 3]),
    "many weights": set_row(0, 1, [2**12, 2**12, 3, 3]),
    "negative side": set_row(0, 1, [-6, 3, 3, 3]),
    "count too large": set_row(0, 3, 10**6),
    "count too small": set_row(0, 3, 1),
    "count is text": set_row(0, 3, "many"),
    "other layout": set_row(0, 4, 3),
    "many bits": set_row(0, 5, 60),
    "no such dtype": set_row(0, 2, 99),
    "two of a name": set_row(0, 0, "linear.weight"),
    "no name": set_row(0, 0, None),
    "array missing": lambda text, _: text["arrays"].pop(0),
    "no arrays": lambda text, _: text.pop("arrays"),
    "arrays are a number": lambda text, _: text.__setitem__("arrays", 3),
    "no nodes": lambda text, _: text.__setitem__("nodes", []),
    "reads the future": lambda text, _: text["nodes"][0].__setitem__(1, [3]),
    "reads nothing": lambda text, _: text["nodes"][0].__setitem__(1, []),
    "array out of range": lambda text, _: text["nodes"][0].__setitem__(2, {"weight": 77}),
    "huge padding": lambda text, _: text["nodes"][0][3].__setitem__("padding", [2**20, 2**20]),
    "stride of zero": lambda text, _: text["nodes"][0][3].__setitem__("stride", [0, 0]),
    "option is a table": lambda text, _: text["nodes"][0][3].__setitem__("stride", {}),
    "huge input": lambda text, _: text.__setitem__("input", [3, 2**20, 2**20]),
    "short row": lambda text, _: text["nodes"][0].pop(),
    "strings too long": lambda text, _: text.__setitem__("strings", [2**40, 0, 0, 0]),
    "positions gone": lambda _, sections: sections.__setitem__("positions", b""),
    "bomb": lambda _, sections: sections.__setitem__("values", zlib.compress(b"\0" * 2**24)),
    "values gone": lambda _, sections: sections.__setitem__("values", zlib.compress(b"")),
    "no deflate": lambda _, sections: sections.__setitem__("values", b"abc"),
    "trailing": lambda _, sections: sections.__setitem__("values", sections["values"] + b"x"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_made_up_file_gets_one_sentence(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.hsp").write_bytes(resealed(HOSTILE[name]))
    with pytest.raises(FileError) as raised:
        read(tmp_path / "a.hsp")
    assert str(raised.value).count("\n") == 0
    assert "export it again" in str(raised.value)


def test_the_seal_of_the_tests_is_a_good_one() -> None:
    assert unpack(resealed(lambda text, sections: None)).about == small_graph().about


def test_deep_json_does_not_break_the_reader() -> None:
    text = b'{"__metadata__":' + b"[" * 100_000
    with pytest.raises(FileError):
        unpack(len(text).to_bytes(8, "little") + text)


def test_every_cut_is_noticed() -> None:
    content = pack(small_graph())
    for length in range(len(content)):
        with pytest.raises(FileError):
            unpack(content[:length])


def test_every_changed_byte_is_noticed_or_changes_nothing() -> None:
    content = pack(small_graph())
    expected = unpack(content)
    generator = np.random.default_rng(0)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(generator.integers(8))
        try:
            came = unpack(bytes(damaged))
        except FileError:
            continue
        assert all((came.tensors[name] == array).all() for name, array in expected.tensors.items())
        assert came.about == expected.about


def test_changed_insides_that_are_sealed_again_never_crash() -> None:
    sections, about = sections_of(pack(small_graph()))
    inflated = zlib.decompress(sections["graph"])
    generator = np.random.default_rng(0)
    read_well = 0
    for _ in range(2000):
        text, positions = bytearray(inflated), bytearray(sections["positions"])
        for content in (text, positions):
            for place in generator.integers(len(content), size=int(generator.integers(3))):
                content[place] ^= 1 << int(generator.integers(8))
        parts = {**sections, "graph": zlib.compress(bytes(text), 1), "positions": bytes(positions)}
        try:
            unpack(container(parts, json.dumps(about)))
            read_well += 1
        except FileError:
            continue
    assert 0 < read_well < 2000  # some changes are harmless, as in a name


def test_a_missing_file_and_a_folder_are_said(tmp_path: Path) -> None:
    for path in (tmp_path / "no.hsp", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            read(path)


def test_a_foreign_file_is_said(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(3)}, tmp_path / "a.safetensors")
    with pytest.raises(FileError, match="another kind"):
        read(tmp_path / "a.safetensors")
