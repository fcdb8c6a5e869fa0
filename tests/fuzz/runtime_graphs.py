"""Networks of the runtime's own operations that fit together and are extreme: branches, sums, joins and odd sizes."""

from random import Random
from typing import Any

import numpy as np

from hypersparse_runtime.graph import INPUT, Graph, GraphError, Node, Shape, shapes

SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 100)
LARGE = (255, 1024, 4096, 2**15, 2**17, 2**20, 2**22, 2**31 - 1)
FEW = (1, 1, 1, 2, 2, 3)
TRIES = 12
MOST_FEATURES, MOST_WEIGHTS = 2**21, 2**23  # that arrays are made for: the fuzzer's own memory counts as well


class Builder:
    """A network that grows by one operation at a time, each of values that are there."""

    def __init__(self, random: Random, *, wild: float) -> None:
        self.random, self.wild = random, wild
        self.generator = np.random.default_rng(random.randrange(2**32))
        image = (random.choice((1, 2, 3, 5, 8)), self.side(SIDES), self.side(SIDES))
        self.shape: Shape = image if random.random() < 0.85 else (self.side(SIDES),)
        self.nodes: list[Node] = []
        self.tensors: dict[str, np.ndarray] = {}
        self.values: dict[str, Shape] = {INPUT: self.shape}

    def side(self, usual: tuple[int, ...] = FEW) -> int:
        """A number: as a rule small, sometimes huge."""
        return self.random.choice(LARGE if self.random.random() < self.wild else usual)

    def pair(self, usual: tuple[int, ...] = FEW) -> tuple[int, int]:
        """Two of them, as often as not the same."""
        first = self.side(usual)
        return (first, first) if self.random.random() < 0.5 else (first, self.side(usual))

    def graph(self) -> Graph:
        """So far."""
        return Graph(self.shape, tuple(self.nodes), self.tensors)

    def operations(self, name: str) -> tuple[str, ...]:
        """Those that a value of its shape can go to."""
        return IMAGES if len(self.values[name]) == 3 else VECTORS

    def grow(self) -> None:
        """One operation more; what does not fit is taken back."""
        if sum(array.size for array in self.tensors.values()) > MOST_WEIGHTS:
            return
        name = self.random.choice(list(self.values)[-4:])
        op = self.random.choice(self.operations(name))
        before = len(self.nodes), dict(self.tensors)
        getattr(self, f"_{op}")(name)
        try:
            self.values = shapes(self.graph())
        except GraphError:
            del self.nodes[before[0] :]
            self.tensors = before[1]

    def _add(self, op: str, *inputs: str, roles: dict[str, np.ndarray] | None = None, **options: Any) -> None:
        output = f"v{len(self.nodes) + 1}"
        named = {role: f"{output}.{role}" for role in roles or {}}
        self.tensors |= {named[role]: array for role, array in (roles or {}).items()}
        self.nodes.append(Node(op, inputs, output, named, options))

    def _array(self, *shape: int) -> np.ndarray:
        """Empty, sparse, dense, or one number everywhere."""
        kind = self.random.choice(("empty", "sparse", "sparse", "sparse", "dense", "same", "one"))
        if kind == "same" or np.prod(shape) > 2**18:  # random numbers take long to deflate
            return np.full(shape, 0.25, np.float32)
        share = {"empty": 0.0, "sparse": self.random.choice((0.02, 0.1, 0.4)), "dense": 1.0, "one": 0.0}[kind]
        array = np.zeros(shape, np.float32)
        kept = self.generator.random(shape) < share if share else np.zeros(shape, bool)
        array[kept] = self.generator.normal(size=int(kept.sum())) / max(1, np.prod(shape[1:]) * share) ** 0.5
        if kind == "one" and array.size:
            array.flat[self.random.randrange(array.size)] = 1
        return array

    def _conv(self, name: str) -> None:
        channels, height, width = self.values[name]
        groups = self.random.choice((1, 1, 1, channels, 2))
        groups = groups if channels % groups == 0 else 1
        rows = groups * max(1, self.side((1, 2, 3, 4, 8, 16, 40)) // groups)
        kernel = self.random.choice(((1, 1), (3, 3), (3, 3), (height, width), self.pair((1, 2, 3, 5, 7))))
        while rows * channels // groups * kernel[0] * kernel[1] > 2**21:
            rows, kernel = groups, (max(1, kernel[0] // 2), max(1, kernel[1] // 2))
            if kernel == (1, 1):
                break
        roles = {"weight": self._array(rows, channels // groups, *kernel)}
        if self.random.random() < 0.6:
            roles["bias"] = self._array(rows)
        dilation = self.pair((1, 1, 1, 2, 3))
        same = tuple(step * (of - 1) // 2 for step, of in zip(dilation, kernel, strict=True))
        padding = same if self.random.random() < 0.6 else self.pair((0, 0, 1, 2, 5, 40))
        options = {"stride": self.pair((1, 1, 1, 2, 3)), "padding": padding, "dilation": dilation, "groups": groups}
        self._add("conv", name, roles=roles, **options)

    def _pool(self, name: str) -> None:
        kernel = self.random.choice(((2, 2), (3, 3), self.pair((1, 2, 3, 5, 8)), self.values[name][1:]))
        padding = tuple(self.random.choice((0, of // 2)) for of in kernel)
        op = self.random.choice(("max_pool", "avg_pool"))
        self._add(op, name, kernel=kernel, stride=self.random.choice((kernel, self.pair())), padding=padding)

    def _linear(self, name: str) -> None:
        features = self.values[name][0]
        if features > MOST_FEATURES:
            return
        rows = self.side((1, 2, 3, 10, 16, 40))
        rows = rows if rows * features <= 2**21 else 1
        roles = {"weight": self._array(rows, features)} | ({"bias": self._array(rows)} if rows % 2 else {})
        self._add("linear", name, roles=roles)

    def _norm(self, name: str) -> None:
        if self.values[name][0] > MOST_FEATURES:
            return
        roles = {role: self._array(self.values[name][0]) for role in ("weight", "bias", "mean")}
        roles["variance"] = np.abs(self._array(self.values[name][0])) + np.float32(0.1)
        self._add("batch_norm", name, roles=roles, epsilon=1e-5)

    def _sum(self, name: str) -> None:
        same = [other for other, shape in self.values.items() if shape == self.values[name]]
        self._add("add", name, self.random.choice(same))

    def _concat(self, name: str) -> None:
        same = [other for other, shape in self.values.items() if shape[1:] == self.values[name][1:]]
        count = self.random.choice((1, 2, 2, 3, 3, 64 if self.random.random() < self.wild else 4))
        self._add("concat", name, *(self.random.choice(same) for _ in range(count)))

    def _plane(self, name: str) -> None:
        if np.prod(self.values[name]) < 2**20:
            self._add("plane", name, roles={"value": self._array(*self.values[name])})

    def _relu(self, name: str) -> None:
        self._add("relu", name)

    def _clip(self, name: str) -> None:
        self._add("clip", name, **self.random.choice(({"low": 0.0, "high": 6.0}, {"high": 0.5}, {"low": -1.0})))

    def _mean(self, name: str) -> None:
        self._add("mean", name)

    def _flatten(self, name: str) -> None:
        self._add("flatten", name)

    def finish(self) -> None:
        """A last operation, perhaps of shares."""
        last = self.nodes[-1].output if self.nodes else INPUT
        if not self.nodes or (len(self.values[last]) == 1 and self.random.random() < 0.3):
            op = self.random.choice(("softmax", "log_softmax", "relu")) if len(self.values[last]) == 1 else "relu"
            self._add(op, last)


IMAGES = (*("conv",) * 6, "pool", "pool", "norm", "sum", "sum", "concat", "concat", "plane", "relu", "relu", "clip",
          "mean", "flatten")  # fmt: skip
VECTORS = ("linear", "linear", "norm", "sum", "concat", "relu", "clip", "flatten", "plane")


def runtime_graph(seed: int) -> Graph:
    """The network of a case: one in three has huge numbers in it, one in forty is very long.

    Every other one has operations on values of any shape.
    """
    from tests.fuzz.value_graphs import ValueBuilder  # which is a `Builder`

    random = Random(seed)
    builder = (ValueBuilder if seed % 2 else Builder)(
        random, wild=random.choice((0.0, 0.0, 0.15)) if seed % 40 else 0.0
    )
    for _ in range(random.choice((1, 2, 3, 5, 8, TRIES) if seed % 40 else (200, 1000))):
        builder.grow()
    builder.finish()
    return builder.graph()
