"""One step of a program and the memory it may access: the parts of which all checks are made."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from hypersparse_runtime.graph import GraphError
from hypersparse_runtime.kernel_tables import KINDS, Ints
from hypersparse_runtime.plane_layout import ALIGNED


@dataclass(frozen=True, eq=False)
class Memory:
    """The memory of a program: its tables, and the floats of its workspace, of an image and of an output."""

    tables: Ints
    workspace: int
    image: int
    output: int


class Step:
    """The words of one step, and the memory it may access."""

    def __init__(self, words: NDArray[Any], memory: Memory) -> None:
        self.memory, self.kind = memory, KINDS[int(words["kind"])]
        self.words: dict[str, int] = dict(zip(words.dtype.names or (), words.item(), strict=True))

    def __getattr__(self, name: str) -> int:
        try:
            return self.words[name]
        except KeyError:
            raise AttributeError(name) from None

    def need(self, condition: bool, what: str) -> None:
        """Refuse the program unless the condition holds."""
        if not condition:
            raise GraphError(f"The network needs a program whose step `{self.kind}` leaves its memory ({what}).")

    def table(self, at: int, length: int, what: str) -> Ints:
        """A part of the tables, checked to be inside them."""
        self.need(at >= 0 and length >= 0 and at + length <= len(self.memory.tables), what)
        return self.memory.tables[at : at + length]

    def floats(self, first: int, end: int, what: str) -> None:
        """Check that a range of floats is inside the workspace."""
        self.need(first >= 0 and end <= self.memory.workspace, what)

    def planes(self, channels: Ints, at: int, plane: int, length: int, what: str) -> None:
        """Check that `length` floats of each channel's plane are inside the workspace."""
        if len(channels):
            self.need(int(channels.min()) >= 0, what)
            self.floats(at, at + int(channels.max()) * plane + length, what)

    @property
    def read_span(self) -> int:
        """The floats from the first position of an input plane to the last."""
        return span(self.height, self.width, self.pitch, self.fold) * self.lanes

    @property
    def written_span(self) -> int:
        """The floats from the first position of an output plane to the last."""
        return span(self.out_height, self.out_width, self.out_pitch, self.out_fold) * self.lanes


def span(height: int, width: int, pitch: int, fold: int) -> int:
    """The number of positions from the first to the last of a plane.

    >>> span(3, 5, 8, 0), span(3, 5, 8, 2)
    (21, 21)
    """
    upper = min(height, fold) if fold else 0
    last = max(2 * (upper - 1), 2 * (height - 1 - fold) + 1) if fold else height - 1
    return last * pitch + width


def vectors(length: int) -> int:
    """`length` rounded up to whole vectors."""
    return -(-length // ALIGNED) * ALIGNED
