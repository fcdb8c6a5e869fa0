"""What layers do that are not sums over nonzero weights: copies, functions of elements, norms, products of two values.

Places count elements of a value in its dense order, channels, rows and columns.
"""

from dataclasses import dataclass

from hypersparse_runtime.sparse_layers import Array, Entries


@dataclass(frozen=True, eq=False)
class Copy:
    """For each element of the output, or for some, the place that it comes from: in the input or in constants."""

    places: Array
    constant: Array | None = None
    targets: Array | None = None  # places of the output; None: all of them in their order


@dataclass(frozen=True, eq=False)
class Elementwise:
    """A function of each element, by its name in `elementwise.FUNCTIONS`."""

    function: str
    parameter: float


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """The input with another value or an array of constants; for each element the place of the second operand."""

    function: str
    places: Array
    other: str | None = None
    constant: Array | None = None


@dataclass(frozen=True, eq=False)
class Norm:
    """Less the mean and divided by the deviation: of so many channels one after another.

    A layer norm takes both at each position, a group norm over all positions of a group.
    """

    channels: int
    gain: Array
    shift: Array
    epsilon: float


@dataclass(frozen=True, eq=False)
class MatMul:
    """Rows of sums: output row r of batch b is the sum over k of first[b, r, k] times the vector second[b, k].

    First factors are the input's, of which each is one number; second ones are runs of the other value.
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
    """Softmax or a reduction at each position over so many channels one after another."""

    channels: int
    function: str = ""


@dataclass(frozen=True, eq=False)
class Embedding:
    """A row of weights for each number of the input, whose place is given; features become channels."""

    places: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Resample:
    """Each position of the output as a weighted sum of positions of the same channel."""

    position: Array  # of the output, sorted
    source: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Recurrent:
    """An LSTM or a GRU over positions; the input holds the gates' sums over its features, and is overwritten."""

    entries: Entries  # of the hidden state's weights
    bias: Array  # added to the last gate's sum over the hidden state in a GRU
    reverse: bool
