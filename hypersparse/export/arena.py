"""`plan_arena`: where the values of a network lie in one stretch of memory."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ALIGNMENT = 4  # bytes


@dataclass(frozen=True)
class Step:
    """One function call, by the names of the values that it reads and makes."""

    inputs: tuple[str, ...]
    output: str
    size: int  # bytes of the output
    scratch: int = 0  # bytes that it needs for itself
    over: str | None = None  # an input whose memory the output may take, if nobody reads it later
    elementwise: bool = True  # whether its other inputs may lie there too
    is_view: bool = False  # whether the output is the memory of `over`, whoever reads that later


@dataclass(frozen=True)
class Arena:
    """Offsets in bytes."""

    values: Mapping[str, int]
    scratch: Mapping[str, int]  # by the value that the step makes
    size: int


@dataclass
class _Block:
    """Memory that is needed from one step to another; values that lie over each other share it."""

    size: int
    first: int
    last: int
    reads_left: int = 0
    offset: int = 0
    values: list[str] = field(default_factory=list)
    scratch_of: str | None = None


def plan_arena(steps: Sequence[Step], *, kept: str, outside: frozenset[str]) -> Arena:
    """Find a place for every value that is not `outside`; `kept` is needed after the last step.

    Large blocks are placed first, each at the lowest offset where nothing is that is needed at the same time.

    >>> steps = [Step(("input",), "a", 8), Step(("a",), "b", 4), Step(("b",), "c", 8), Step(("c",), "d", 8, over="c")]
    >>> plan_arena(steps, kept="d", outside=frozenset({"input"}))
    Arena(values={'a': 0, 'c': 0, 'd': 0, 'b': 8}, scratch={}, size=12)
    """
    blocks = sorted(_blocks(steps, kept, outside), key=lambda block: (-block.size, block.first))
    placed: list[_Block] = []
    for block in blocks:
        meeting = [other for other in placed if other.first <= block.last and block.first <= other.last]
        for other in sorted(meeting, key=lambda each: each.offset):
            if block.offset + block.size <= other.offset:
                break
            block.offset = max(block.offset, other.offset + other.size)
        placed.append(block)
    values = {name: block.offset for block in placed for name in block.values}
    scratch = {block.scratch_of: block.offset for block in placed if block.scratch_of is not None}
    return Arena(values, scratch, max((block.offset + block.size for block in placed), default=0))


def _blocks(steps: Sequence[Step], kept: str, outside: frozenset[str]) -> list[_Block]:
    reads = Counter([name for step in steps for name in step.inputs] + [kept])
    block_of: dict[str, _Block] = {}
    found: list[_Block] = []
    for index, step in enumerate(steps):
        for name in step.inputs:
            if name in block_of:
                block_of[name].reads_left -= 1
                block_of[name].last = index
        if step.scratch:
            found.append(_Block(_aligned(step.scratch), index, index, scratch_of=step.output))
        if step.output in outside:
            continue
        block = _taken_over(step, block_of)
        if block is None:
            block = _Block(0, index, index)
            found.append(block)
        block.size = max(block.size, _aligned(step.size))
        block.last = index
        block.reads_left += reads[step.output]
        block.values.append(step.output)
        block_of[step.output] = block
    if kept in block_of:
        block_of[kept].last = len(steps)
    return found


def _taken_over(step: Step, block_of: Mapping[str, _Block]) -> _Block | None:
    """The block of the input that the output lies over, if it may."""
    block = None if step.over is None else block_of.get(step.over)
    if block is None or step.is_view:
        return block
    others = [name for name in step.inputs if name != step.over or step.inputs.count(name) > 1]
    clear = step.elementwise or all(block_of.get(name) is not block for name in others)
    return block if block.reads_left == 0 and clear else None


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
