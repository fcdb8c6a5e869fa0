"""Networks with operations on values of any shape: views, products of two values, norms, recurrent layers."""

from math import prod

import numpy as np

from hypersparse_runtime.functions import FUNCTIONS, OPERATORS, REDUCTIONS
from hypersparse_runtime.graph import INPUT
from tests.fuzz.runtime_graphs import IMAGES, VECTORS, Builder

ANY = (
    *("elementwise", "elementwise", "arithmetic", "reshape", "reshape", "permute", "permute", "slice"),
    *("expand", "layer_norm", "constant", "join"),
)
SEVERAL = ("token_linear", "token_linear", "reduce", "softmax_last", "matmul", "matmul", "group_norm")
IMAGES_ONLY = ("conv_transpose", "resize", "adaptive_pool")
SAFE = tuple(name for name in FUNCTIONS if name not in ("exp", "log", "sqrt", "rsqrt"))  # finite for small numbers


class ValueBuilder(Builder):
    """As `Builder`, with all operations."""

    def operations(self, name: str) -> tuple[str, ...]:
        """Those that a value of its shape can go to."""
        axes = len(self.values[name])
        usual = IMAGES if axes == 3 else VECTORS if axes == 1 else ()
        more = SEVERAL if axes > 1 else ("embedding",) if name == INPUT else ()
        return usual + ANY + more + (IMAGES_ONLY if axes == 3 else ()) + (("lstm", "gru") if axes == 2 else ())

    def _elementwise(self, name: str) -> None:
        function = self.random.choice(SAFE)
        options = {"parameter": 0.25} if FUNCTIONS[function].parameter else {}
        self._add("elementwise", name, function=function, **options)

    def _arithmetic(self, name: str) -> None:
        shape = self.values[name]
        fits = [each for each, other in self.values.items() if len(other) == len(shape)]
        pair = [name, self.random.choice(fits)]
        self.random.shuffle(pair)
        self._add("arithmetic", *pair, operator=self.random.choice([each for each in OPERATORS if each != "div"]))

    def _reshape(self, name: str) -> None:
        left, shape = prod(self.values[name]), []
        for _ in range(self.random.randrange(4)):
            side = self.random.choice([each for each in (1, 2, 3, 4, 5, 7, 16, left) if left % each == 0])
            shape.append(side)
            left //= side
        shape.append(left)
        self.random.shuffle(shape)
        self._add("reshape", name, shape=tuple(shape))

    def _permute(self, name: str) -> None:
        order = list(range(len(self.values[name])))
        self.random.shuffle(order)
        self._add("permute", name, order=tuple(order))

    def _slice(self, name: str) -> None:
        axis = self.random.randrange(len(self.values[name]))
        start, step = self.random.randrange(self.values[name][axis]), self.random.choice((1, 1, 2, -1, self.side()))
        self._add("slice", name, axis=axis, start=start, length=self.side((1, 1, 2, 4)), step=step)

    def _expand(self, name: str) -> None:
        shape = tuple(self.side() if side == 1 else side for side in self.values[name])
        self._add("expand", name, shape=shape)

    def _constant(self, name: str) -> None:
        shape = self.values[name]
        if prod(shape) < 2**18:
            few = tuple(self.random.choice((1, side)) for side in shape)
            self._add("constant", INPUT, roles={"value": self._array(*few)})

    def _join(self, name: str) -> None:
        axis = self.random.randrange(len(self.values[name]))
        rest = [side for place, side in enumerate(self.values[name]) if place != axis]
        fits = [
            each
            for each, shape in self.values.items()
            if len(shape) == len(rest) + 1 and [s for p, s in enumerate(shape) if p != axis] == rest
        ]
        options = {"axis": axis} if axis else {}
        self._add("concat", name, *(self.random.choice(fits) for _ in range(self.random.randrange(3))), **options)

    def _norm_arrays(self, length: int) -> dict[str, np.ndarray]:
        roles = {"weight": self._array(length), "bias": self._array(length)}
        return {role: array for role, array in roles.items() if self.random.random() < 0.8}

    def _layer_norm(self, name: str) -> None:
        self._add("layer_norm", name, roles=self._norm_arrays(self.values[name][-1]), epsilon=0.01)

    def _group_norm(self, name: str) -> None:
        channels = self.values[name][0]
        groups = self.random.choice([each for each in (1, 2, 4, channels) if channels % each == 0])
        self._add("group_norm", name, roles=self._norm_arrays(channels), groups=groups, epsilon=0.01)

    def _token_linear(self, name: str) -> None:
        features, rows = self.values[name][-1], self.side((1, 2, 3, 10, 16, 40))
        if features * rows <= 2**20:
            roles = {"weight": self._array(rows, features)} | ({"bias": self._array(rows)} if rows % 2 else {})
            self._add("token_linear", name, roles=roles)

    def _reduce(self, name: str) -> None:
        self._add("reduce", name, function=self.random.choice(list(REDUCTIONS)))

    def _softmax_last(self, name: str) -> None:
        self._add("softmax_last", name)

    def _matmul(self, name: str) -> None:
        """With itself turned, or with another value that fits by chance."""
        axes = len(self.values[name])
        other = self.random.choice([each for each, shape in self.values.items() if len(shape) == axes])
        if self.random.random() < 0.7:
            self._add("permute", name, order=(*range(axes - 2), axes - 1, axes - 2))
            other = self.nodes[-1].output
        scale = float(self.values[name][-1]) ** -0.5
        self._add("matmul", *self.random.choice(((name, other), (other, name))), scale=scale)

    def _embedding(self, name: str) -> None:
        self._add("embedding", name, roles={"weight": self._array(self.side((5, 9, 40)), self.side((3, 8, 17)))})

    def _conv_transpose(self, name: str) -> None:
        channels, stride = self.values[name][0], self.pair((1, 2, 2, 3))
        groups = self.random.choice((1, 1, channels))
        kernel, rows = self.pair((1, 2, 3, 4)), self.random.choice((1, 2, 5))
        if channels * rows * prod(kernel) > 2**18:
            return
        more = tuple(self.random.choice((0, min(1, step - 1))) for step in stride)
        options = {"stride": stride, "padding": self.pair((0, 0, 1)), "dilation": self.pair((1, 1, 2))}
        roles = {"weight": self._array(channels, rows, *kernel), "bias": self._array(rows * groups)}
        self._add("conv_transpose", name, roles=roles, **options, output_padding=more, groups=groups)

    def _resize(self, name: str) -> None:
        sides = self.values[name][1:]
        size = tuple(max(1, int(side * self.random.choice((0.5, 1, 2, 1.7)))) for side in sides)
        scale = tuple(new / old for new, old in zip(size, sides, strict=True))
        mode = self.random.choice(("nearest", "bilinear"))
        self._add("resize", name, mode=mode, size=size, scale=scale, align_corners=self.random.choice((0, 1)))

    def _adaptive_pool(self, name: str) -> None:
        self._add("adaptive_pool", name, size=self.pair((1, 2, 3, 5)))

    def _lstm(self, name: str) -> None:
        self._recurrent("lstm", name, 4)

    def _gru(self, name: str) -> None:
        self._recurrent("gru", name, 3)

    def _recurrent(self, op: str, name: str, gates: int) -> None:
        features, size = self.values[name][1], self.side((1, 3, 8, 20))
        if gates * size * max(features, size) > 2**18:
            return
        roles = {"weight_ih": self._array(gates * size, features), "weight_hh": self._array(gates * size, size)}
        roles |= {"bias_ih": self._array(gates * size)} if size % 2 else {}
        self._add(op, name, roles=roles, reverse=self.random.choice((0, 1)))
