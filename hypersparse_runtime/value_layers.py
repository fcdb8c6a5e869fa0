"""Layers that are not sums over nonzero weights: copies, elementwise functions, norms and products of two values.

Positions count the elements of a value in its dense order: channels, rows, columns.
"""

from dataclasses import dataclass

from hypersparse_runtime.sparse_layers import Array, Entries


@dataclass(frozen=True, eq=False)
class Copy:
    """Copies elements: for all or some output elements, the position in the input or in constants."""

    places: Array
    constant: Array | None = None
    targets: Array | None = None  # places of the output; None: all of them in their order


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A function of each element, by its name in `operations.functions`."""

    function: str
    parameter: float


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The input combined with another value or an array of constants, given the second operand's positions."""

    function: str
    places: Array
    other: str | None = None
    constant: Array | None = None


@dataclass(frozen=True, eq=False)
class Norm:
    """Subtracts the mean and divides by the deviation over groups of consecutive channels.

    A layer norm uses the channels at each position, a group norm all positions of a group.
    """

    channels: int
    gain: Array
    shift: Array
    epsilon: float


@dataclass(frozen=True, eq=False)
class MatMul:
    """Rows of sums: output row r of batch b is the sum over k of first[b, r, k] times the vector second[b, k].

    The first factors are single numbers of the input, the second ones runs of the other value.
    """

    other: str
    first: Array  # place of each batch's first factor
    first_row: int  # how far apart the factors of two rows are, in places
    first_term: int
    second: Array
    second_term: int
    rows: int
    terms: int
    length: int
    scale: float


@dataclass(frozen=True, eq=False)
class Planes:
    """Softmax or a reduction at each position over consecutive channels."""

    channels: int
    function: str = ""


@dataclass(frozen=True, eq=False)
class Embedding:
    """The row of weights for each token number of the input; features become channels."""

    places: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Resample:
    """Each output position as a weighted sum of positions of the same channel."""

    position: Array  # of the output, sorted
    source: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Recurrent:
    """An LSTM or a GRU over positions. The input holds the sums of the gates over its features, and is overwritten."""

    entries: Entries  # of the hidden state's weights
    bias: Array  # added to the last gate's sum over the hidden state in a GRU
    reverse: bool
