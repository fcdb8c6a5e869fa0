"""No program leaves its memory: what is too large is refused, and tables are looked at before the kernel reads them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hypersparse_runtime import Graph, SparseModel, kernel_program
from hypersparse_runtime.checked_step import Memory
from hypersparse_runtime.dead_channels import without_dead_channels
from hypersparse_runtime.graph import INPUT, GraphError, Node
from hypersparse_runtime.kernel_program import Program, write_program
from hypersparse_runtime.kernel_tables import KINDS, Tables, to_int32
from hypersparse_runtime.lazy_bias import with_lazy_bias
from hypersparse_runtime.lowering import layers_of
from hypersparse_runtime.plane_layout import place
from hypersparse_runtime.program_check import check_program

CONV = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}


def joined(channels: int, side: int) -> Graph:
    """Many small planes that get the distance of a large one, as convolutions between them tie their layouts."""
    corners = np.zeros((1, 1, side, side), np.float32)
    corners[0, 0, 0, 0] = corners[0, 0, -1, -1] = 1
    arrays = {"corners": corners, "wide": np.ones((channels, 1, 1, 1), np.float32)}
    arrays["narrow"] = np.ones((1, channels, 1, 1), np.float32)
    names = zip((INPUT, "v1", "v2"), ("v1", "v2", "v3"), arrays, strict=True)
    return Graph((1, side, side), tuple(Node("conv", (x,), y, {"weight": w}, CONV) for x, y, w in names), arrays)


def strided() -> Graph:
    """A network with most kinds of steps."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(8, 3, 3, 3)), rng.normal(size=(8, 8, 3, 3))
    second[rng.random(second.shape) < 0.5] = 0
    arrays = {"a": first, "b": second, "c": rng.normal(size=(4, 8)), "bias": rng.normal(size=8)}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    same = CONV | {"padding": (1, 1)}
    nodes = (
        Node("conv", (INPUT,), "x", {"weight": "a", "bias": "bias"}, same | {"stride": (2, 2)}),
        Node("relu", ("x",), "r"),
        Node("conv", ("r",), "y", {"weight": "b", "bias": "bias"}, same),
        Node("add", ("y", "r"), "s"),
        Node("max_pool", ("s",), "p", {}, {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0)}),
        Node("conv", ("p",), "q", {"weight": "b"}, same),
        Node("mean", ("q",), "m"),
        Node("linear", ("m",), "l", {"weight": "c"}),
        Node("softmax", ("l",), "z"),
    )
    return Graph((3, 32, 32), nodes, arrays)


def written(graph: Graph, *, rows: bool = True, folded: bool = False, lanes: int = 1) -> Program:
    network = with_lazy_bias(without_dead_channels(layers_of(graph)))
    return write_program(place(network, rows=rows, folded=folded), lanes, vector=16)


def test_a_layout_that_needs_too_much_memory_is_refused() -> None:
    with pytest.raises(GraphError, match="a workspace of 4297"):
        SparseModel(joined(4096, 1024), engine="hypersparse", threads=1)


def test_many_images_run_one_by_one_where_side_by_side_would_need_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = joined(4, 64)
    images = np.random.default_rng(0).normal(size=(16, 1, 64, 64)).astype(np.float32)
    alone = SparseModel(graph, engine="hypersparse", threads=1)
    wanted = np.concatenate([alone(image[None]) for image in images])
    monkeypatch.setattr(kernel_program, "MOST_FLOATS", 2 * alone._engine._one.program.workspace_floats)  # type: ignore[union-attr]
    model = SparseModel(graph, engine="hypersparse", threads=1)
    np.testing.assert_array_equal(model(images), wanted)
    assert model._engine._many is model._engine._one  # type: ignore[union-attr]


def test_numbers_beyond_32_bits_are_refused_where_tables_are_written() -> None:
    assert to_int32(np.array([-(2**31), 2**31 - 1])).tolist() == [-(2**31), 2**31 - 1]
    for number in (2**31, -(2**31) - 1, 2**40):
        with pytest.raises(GraphError, match="32 bits"):
            to_int32(np.array([0, number]))
        with pytest.raises(GraphError, match="32 bits"):
            Tables().add(np.array([number]))


LAYOUTS = {"rows": (True, False, 1), "folded": (True, True, 1), "padded": (False, False, 1), "many": (False, False, 16)}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_keeps_to_a_workspace_without_a_float_to_spare(layout: str) -> None:
    """The check is exact enough that it fails once the workspace is a room smaller."""
    rows, folded, lanes = LAYOUTS[layout]
    made = written(strided(), rows=rows, folded=folded, lanes=lanes)
    memory = Memory(made.tables, made.workspace_floats, made.image_size, 4)
    check_program(made.steps, memory)
    with pytest.raises(GraphError, match="leaves its memory"):
        check_program(made.steps, replace(memory, workspace=made.workspace_floats // 2))
    with pytest.raises(GraphError, match="image"):
        check_program(made.steps, replace(memory, image=made.image_size - 1))
    with pytest.raises(GraphError, match="output"):
        check_program(made.steps, replace(memory, output=3))


def beyond(made: Program, name: str) -> int:
    return made.workspace_floats if name in ("input", "output", "residual") else len(made.tables)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["input", "output", "channels", "starts", "entries", "bias", "residual", "rows"])
def test_a_word_that_leads_outside_is_found_in_every_step(name: str, layout: str) -> None:
    rows, folded, lanes = LAYOUTS[layout]
    made = written(strided(), rows=rows, folded=folded, lanes=lanes)
    memory = Memory(made.tables, made.workspace_floats, made.image_size, 4)
    found = 0
    for number, step in enumerate(made.steps):
        if not step["rows"] or not step[name] or step[name] == -1 or (KINDS[step["kind"]], name) in UNUSED:
            continue
        for value in (beyond(made, name), -2):
            if (name, value) == ("residual", -2):  # as -1: there is none
                continue
            steps = made.steps.copy()
            steps[name][number] = value
            with pytest.raises(GraphError, match="leaves its memory"):
                check_program(steps, memory)
            found += 1
    assert found > 0


UNUSED = {
    ("pack", "input"),
    ("softmax", "channels"),
    ("unpack", "output"),
    ("clear", "input"),
    ("repeat_rows", "output"),
    ("unpack", "channels"),
}


@pytest.mark.parametrize("change", [lambda offsets: offsets.max() + 10**6, lambda offsets: -(10**6)])
def test_an_entry_that_reads_outside_is_found(change: Callable[[np.ndarray], int]) -> None:
    made = written(strided(), rows=False)
    memory = Memory(made.tables, made.workspace_floats, made.image_size, 4)
    sums = [step for step in made.steps if KINDS[step["kind"]] in ("conv", "dot")]
    assert len(sums) > 2
    for step in sums:
        tables = made.tables.copy()
        tables[step["entries"]] = change(tables[step["entries"] :: 2])
        with pytest.raises(GraphError, match="input"):
            check_program(made.steps, replace(memory, tables=tables))
