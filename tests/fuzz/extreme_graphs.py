"""Networks that look valid and are extreme: every operation of PyTorch that a file may name, and a graph's own."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from hypersparse.export.aten_ops import DTYPES
from hypersparse_runtime.graph import INPUT, Graph, Node
from tests.export.aten_examples import EXAMPLES, Example

SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 16, 64, 255, 4096, 2**15, 2**16, 2**20, 2**22, 2**24 - 1, 2**24, 2**24 + 1)
NUMBERS = (*SIZES, -1, -2, -5, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, -(2**31), -(2**63))
REALS = (0.0, -1.0, 0.5, 2.0, 1e-300, 1e300, 1e-45, 3.4e38, 1e9, float("inf"))


def extreme(random: Random, value: Any) -> Any:
    """Another argument in the place of this one."""
    if isinstance(value, list):
        items = list(value)
        change = random.randrange(4)
        if change == 0 and items:
            items.pop(random.randrange(len(items)))
        elif change == 1:
            items.insert(random.randrange(len(items) + 1), extreme(random, items[0] if items else 1))
        elif change == 2:
            items = items * random.choice((2, 3, 16, 600))
        elif items:
            place = random.randrange(len(items))
            items[place] = extreme(random, items[place])
        return items
    kinds: list[Callable[[], Any]] = [
        lambda: random.choice(NUMBERS),
        lambda: random.choice(SIZES[:10]),
        lambda: random.choice(SIZES[:10]),
        lambda: random.choice(REALS),
        lambda: random.choice((True, False, None)),
        lambda: random.choice(
            ("same", "valid", "reflect", "replicate", "circular", "tanh", "floor", "ij,jk->ik", "...i,...j")
        ),
        lambda: [random.choice(NUMBERS) for _ in range(random.randrange(4))],
        lambda: {"dtype": random.choice(sorted(DTYPES))},
        lambda: {"input": random.randrange(2)},
        lambda: {"tensor": random.choice("wbmv")},
        lambda: {"batch": 1},
    ]
    like = 0 if isinstance(value, int) and random.random() < 0.6 else None
    like = 3 if isinstance(value, float) and random.random() < 0.6 else like
    return kinds[random.randrange(len(kinds)) if like is None else like]()


def other_shape(random: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Another shape in the place of this one, of at most 2^22 elements."""
    sides = list(shape)
    change = random.randrange(4)
    if change == 0 and len(sides) > 1:
        sides.pop(random.randrange(len(sides)))
    elif change == 1:
        sides.insert(random.randrange(len(sides) + 1), 1)
    else:
        sides[random.randrange(len(sides))] = random.choice(SIZES[1:])
    while int(np.prod(sides)) > 2**22:
        sides[sides.index(max(sides))] = random.choice((1, 2, 3, 4))
    return tuple(sides)


def mutated(random: Random, example: Example) -> tuple[Node, tuple[int, ...], dict[str, Any]]:
    """A call of an operation that may be anything, its input's shape and its arrays."""
    shape, arguments, keywords = example.shape, list(example.arguments), dict(example.keywords)
    arrays = example.values()
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        change = random.randrange(8)
        if change < 4 and len(arguments) > 1:
            place = random.randrange(1, len(arguments))
            arguments[place] = extreme(random, arguments[place])
        elif change == 4:
            keywords[random.choice(("dim", "dropout_p", "training", "dtype", "alpha", "keepdim"))] = extreme(random, 1)
        elif change == 5 and arrays:
            role = random.choice(sorted(arrays))
            arrays[role] = np.ones(other_shape(random, arrays[role].shape), arrays[role].dtype)
        elif change == 6 and arrays:
            role = random.choice(sorted(arrays))
            arrays[role] = (arrays[role] * random.choice((1, 2, -1, 2**40))).astype(
                random.choice(("f4", "f8", "i4", "i8", "?"))
            )
        else:
            shape = other_shape(random, shape)
    options = {"arguments": arguments, "keywords": keywords, "shape": example.node().options["shape"]}
    return Node(example.op, (INPUT,), "y", {role: f"{role}.weight" for role in arrays}, options), shape, arrays


def opaque_graph(random: Random) -> Graph:
    """One mutated operation of PyTorch, perhaps with others before and behind it."""
    node, shape, arrays = mutated(random, random.choice(EXAMPLES))
    tensors = {f"{role}.weight": array for role, array in arrays.items()}
    nodes: list[Node] = []
    source = INPUT
    for place in range(random.choice((0, 0, 1, 2))):
        nodes.append(Node("relu", (source,), f"r{place}"))
        source = f"r{place}"
    nodes.append(replace(node, inputs=(source,) * random.choice((1, 1, 1, 2))))
    last = "y"
    if node.options["shape"] is None:
        picked = {
            "arguments": [{"input": 0}, random.choice((0, 0, 0, 1, -1, 5, [0], "0"))],
            "keywords": {},
            "shape": (4, 6, 6),
        }
        nodes.append(Node("getitem", ("y",), "z", {}, picked))
        last = "z"
    for place in range(random.choice((0, 0, 1, 3, 40))):
        op = random.choice(("relu", "add", "concat", "flatten", "aten.silu.default"))
        options: dict[str, Any] = {}
        if op.startswith("aten"):
            options = {"arguments": [{"input": 0}], "keywords": {}, "shape": (1,)}
        inputs = {"add": 2, "concat": random.choice((1, 2, 2, 1000))}.get(op, 1)
        nodes.append(Node(op, (last,) * inputs, f"p{place}", {}, options))
        last = f"p{place}"
    return Graph(shape, tuple(nodes), tensors)


def own_graph(random: Random) -> Graph:
    """A chain of a graph's own operations with extreme sizes; most weights are zero, so that the file is small."""
    shape: tuple[int, ...] = (
        random.choice((1, 2, 64, 4096, 2**20, 2**22)),
        random.choice((1, 2, 64, 2048)),
        random.choice((1, 3, 64)),
    )
    start, nodes, tensors, last = shape, list[Node](), dict[str, Any](), INPUT
    for place in range(random.choice((1, 2, 3, 8, 60))):
        node, arrays, shape = _own_node(random, shape, last, place)
        nodes.append(node)
        tensors |= arrays
        last = node.output
    return Graph(start, tuple(nodes), tensors)


def _own_node(
    random: Random, shape: tuple[int, ...], last: str, place: int
) -> tuple[Node, dict[str, Any], tuple[int, ...]]:
    output, name = f"v{place}", f"l{place}"
    op = random.choice(
        (
            "conv",
            "conv",
            "conv",
            "pool",
            "batch_norm",
            "concat",
            "add",
            "relu",
            "clip",
            "plane",
            "linear",
            "mean",
            "flatten",
        )
    )
    if len(shape) == 1 and op in ("conv", "pool", "mean", "plane"):
        op = "linear"
    if op == "conv":
        return _conv(random, shape, last, output, name)
    if op == "pool":
        kernel = (random.choice((1, 2, 3, 2**12, 2**24)), random.choice((1, 2, 64)))
        padding = tuple(side // 2 for side in kernel) if random.random() < 0.7 else (0, 0)
        stride = (random.choice((1, 1, 2, 2**20)), random.choice((1, 1, 2**31 - 1)))
        sides = tuple(
            (side + 2 * pad - of) // step + 1
            for side, pad, of, step in zip(shape[1:], padding, kernel, stride, strict=True)
        )
        options = {"kernel": kernel, "stride": stride, "padding": padding}
        return Node(random.choice(("max_pool", "avg_pool")), (last,), output, {}, options), {}, (shape[0], *sides)
    if op == "batch_norm":
        arrays = {
            f"{name}.{own}": np.zeros(shape[0], np.float32) for own in ("weight", "bias", "running_mean", "running_var")
        }
        roles = dict(zip(("weight", "bias", "mean", "variance"), arrays, strict=True))
        return Node("batch_norm", (last,), output, roles, {"epsilon": random.choice((0.0, 1e-5))}), arrays, shape
    if op == "concat":
        times = random.choice((1, 2, 3, 1024))
        return Node("concat", (last,) * times, output), {}, (shape[0] * times, *shape[1:])
    if op == "linear":
        inputs = int(np.prod(shape)) if len(shape) == 1 else shape[0]
        outputs = random.choice((1, 2, 1000, max(2**22 // max(inputs, 1), 1)))
        weight = np.zeros((outputs, inputs) if outputs * inputs <= 2**23 else (1, 1), np.float32)
        return Node("linear", (last,), output, {"weight": f"{name}.weight"}), {f"{name}.weight": weight}, (outputs,)
    if op == "plane":
        value = np.zeros(shape if np.prod(shape) <= 2**22 else (1, 1, 1), np.float32)
        value.reshape(-1)[:1] = 1
        return Node("plane", (last,), output, {"value": f"{name}.value"}), {f"{name}.value": value}, shape
    after = {"mean": shape[:1], "flatten": (int(np.prod(shape)),)}.get(op, shape)
    options = {"low": 0.0, "high": random.choice((6.0, 3e38))} if op == "clip" else {}
    return Node(op, (last,) * (2 if op == "add" else 1), output, {}, options), {}, after


def _conv(
    random: Random, shape: tuple[int, ...], last: str, output: str, name: str
) -> tuple[Node, dict[str, Any], tuple[int, ...]]:
    groups = random.choice((1, 1, shape[0]))
    outputs = groups * random.choice((1, 2)) if groups > 1 else random.choice((1, 2, 64, 2**20))
    kernel = (random.choice((1, 1, 3, 101, 2**11)), random.choice((1, 1, 3, 101, 2**11)))
    if outputs * (shape[0] // groups) * kernel[0] * kernel[1] > 2**23:
        kernel, outputs = (1, 1), groups
    weight = np.zeros(
        (outputs, shape[0] // groups, *kernel) if outputs * shape[0] // groups <= 2**23 else (1, 1, 1, 1), np.float32
    )
    weight.reshape(-1)[:: random.choice((1, 7, 10**9)) + 1] = random.choice((0, 1, 1))
    stride = (random.choice((1, 1, 2, 2**20)), random.choice((1, 1, 2)))
    dilation = (random.choice((1, 1, 2, 2**20)), random.choice((1, 1, 2)))
    reach = [step * (side - 1) + 1 for step, side in zip(dilation, kernel, strict=True)]
    padding = tuple(side // 2 for side in reach) if random.random() < 0.7 else (0, 0)
    sides = tuple(
        (side + 2 * pad - of) // step + 1 for side, pad, of, step in zip(shape[1:], padding, reach, stride, strict=True)
    )
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    roles = {"weight": f"{name}.weight"}
    arrays = {f"{name}.weight": weight}
    if random.random() < 0.5:
        roles["bias"], arrays[f"{name}.bias"] = f"{name}.bias", np.zeros(outputs, np.float32)
    return Node("conv", (last,), output, roles, options), arrays, (outputs, *sides)


def random_graph(seed: int) -> Graph:
    """The network of a case."""
    random = Random(seed)
    return own_graph(random) if random.random() < 0.1 else opaque_graph(random)
