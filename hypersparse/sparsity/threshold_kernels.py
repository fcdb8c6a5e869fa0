"""Triton kernels for the HyperSparse penalty on a GPU; `penalties` holds the same in plain PyTorch.

Magnitudes order like their bits, so the k-th largest is found digit by digit. A sample gives an estimate of its coarse
digit (eight values to an octave). One pass over all weights gathers those with this digit or a neighbouring one, and
counts the larger ones. Four short passes read the gathered weights only, or all weights if the estimate was wrong. The
gradient reads all weights three times: to gather, to sum tanh, to write.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersparse.sparsity.penalties import SHARPEST_BEND

MOST = 2**30  # weights; positions are 32-bit integers
SAMPLED = 2**20  # weights at least, of which the first guess is made
BLOCK = 4096  # weights a program takes at a time where it only adds and writes
PROGRAMS_A_PROCESSOR = 4
TILE = 512  # and where it counts and moves: in one warp, where that needs no waiting
WARPS_A_PROCESSOR = 32
ROWS = 16  # shares of such warps that a program with more of them counts: fewer programs, less waiting for each other
RANK, FOUND, COARSE, MISLED, SUM = (tl.constexpr(slot) for slot in range(5))  # what the kernels tell each other
BINS = tl.constexpr(256)
LOWEST = tl.constexpr((127 - 28) << 3)  # the coarse digit tells magnitudes from 2^-28 to 2^4 apart
BEND = tl.constexpr(SHARPEST_BEND)
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def _magnitudes(pointer, offsets, total):
    """|w|; 0 beyond the end, which is the smallest and adds nothing."""
    return tl.abs(tl.load(pointer + offsets, mask=offsets < total, other=0.0))


@triton.jit
def _coarse(bits):
    """Exponent and three more bits, cut to 0 to 255."""
    return tl.minimum(tl.maximum((bits >> 20) - LOWEST, 0), BINS - 1)


@triton.jit
def _tanh(x):
    """For x >= 0; a series near 0, where the other form would cancel."""
    square = x * x
    near = x * (1 - square * (1 / 3 - square * (2 / 15 - square * (17 / 315))))
    return tl.where(x < 0.2, near, 1 - 2 / (tl.exp(2 * x) + 1))


@triton.jit
def _count_coarse(weights, total, stride, counts, tile: tl.constexpr):
    """How many weights of every `stride`-th tile have each coarse digit."""
    bins = tl.arange(0, BINS)
    found = tl.zeros([BINS], tl.int32)
    step = stride * tile
    for start in range(tl.program_id(0) * step, total, tl.num_programs(0) * step):
        magnitude = _magnitudes(weights, start + tl.arange(0, tile), total)
        found += tl.histogram(_coarse(magnitude.to(tl.int32, bitcast=True)), BINS)
    tl.atomic_add(counts + bins, found, mask=found > 0, sem="relaxed")


@triton.jit
def _digit(counts, rank):
    """The digit that holds the weight of a rank, and how many have a larger one."""
    bins = tl.arange(0, BINS)
    count = tl.load(counts + bins)
    above = tl.sum(count) - tl.cumsum(count)
    digit = tl.minimum(tl.sum((above >= rank).to(tl.int32)), BINS - 1)
    return digit, tl.sum(tl.where(bins == digit, above, 0))


@triton.jit
def _guess(counts, slots, rank):
    digit, _ = _digit(counts, rank)
    tl.store(slots + COARSE, digit)


@triton.jit
def _move(weights, total, share, slots, moved, moved_counts, above_counts, sums, rows: tl.constexpr):
    """Each program puts the bits of its weights near the guess at the beginning of its share of `moved`.

    Places are counted in rows of four, which one thread holds, and then over the rows. Beyond the end there are zeros,
    which may be moved too: they are the smallest.
    """
    program = tl.program_id(0)
    guess = tl.load(slots + COARSE)
    lower = tl.where(guess > 1, (guess - 1 + LOWEST) << 20, 0)
    upper = tl.where(guess < BINS - 2, (guess + 2 + LOWEST) << 20, 2147483647)  # beyond infinity and NaN
    first = program * share
    tile = tl.arange(0, rows)[:, None] * 4 + tl.arange(0, 4)[None, :]
    kept = 0
    above = tl.zeros([rows, 4], tl.int32)
    added = tl.zeros([rows, 4], tl.float32)
    for start in range(first, tl.minimum(first + share, total), rows * 4):
        magnitude = _magnitudes(weights, start + tile, total)
        bits = magnitude.to(tl.int32, bitcast=True)
        fits = ((bits >= lower) & (bits < upper)).to(tl.int32)
        in_row = tl.sum(fits, axis=1)
        up_to_row = tl.cumsum(in_row)
        places = (up_to_row - in_row)[:, None] + tl.cumsum(fits, axis=1)
        tl.store(moved + (first + kept - 1) + places, bits, mask=fits > 0)
        kept += tl.sum(in_row)
        above += (bits >= upper).to(tl.int32)
        added += magnitude
    tl.store(moved_counts + program, kept)
    tl.store(above_counts + program, tl.sum(above))
    tl.store(sums + program, tl.sum(added))


@triton.jit
def _settle(slots, keep, moved_counts, above_counts, sums, programs, places: tl.constexpr):
    """The rank to look for among the moved weights, if it is one of theirs; the sum of all magnitudes."""
    place = tl.arange(0, places)
    moved = tl.sum(tl.load(moved_counts + place, mask=place < programs, other=0))
    rank = keep - tl.sum(tl.load(above_counts + place, mask=place < programs, other=0))
    misled = (rank < 1) | (rank > moved)
    tl.store(slots + MISLED, misled.to(tl.int32))
    tl.store(slots + RANK, tl.where(misled, keep, rank))
    added = tl.sum(tl.load(sums + place, mask=place < programs, other=0.0))
    tl.store(slots + SUM, added.to(tl.int32, bitcast=True))


@triton.jit
def _count_digit(
    weights,
    total,
    share,
    slots,
    moved,
    moved_counts,
    workers,
    counts,
    shift: tl.constexpr,
    rows: tl.constexpr,
    tile: tl.constexpr,
):
    """Of the weights whose higher bits are the ones found, how many have each digit at `shift`; `rows` shares each."""
    higher = tl.load(slots + FOUND)
    misled = tl.load(slots + MISLED)
    row = tl.program_id(0) * rows + tl.arange(0, rows)
    first = row * share
    everything = tl.maximum(tl.minimum(share, total - first), 0)
    own = tl.where(misled != 0, everything, tl.load(moved_counts + row, mask=row < workers, other=0))
    bins = tl.arange(0, BINS)
    found = tl.zeros([BINS], tl.int32)
    for start in range(0, tl.max(own), tile):
        inside = start + tl.arange(0, tile)
        there = inside[None, :] < own[:, None]
        offsets = first[:, None] + inside[None, :]
        if misled != 0:
            bits = _magnitudes(weights, offsets, total).to(tl.int32, bitcast=True)
        else:
            bits = tl.load(moved + offsets, mask=there, other=0)
        fits = there & ((bits.to(tl.int64) >> (shift + 8)).to(tl.int32) == higher)
        digits = tl.reshape((bits >> shift) & (BINS - 1), [rows * tile])
        found += tl.histogram(digits, BINS, mask=tl.reshape(fits, [rows * tile]))
    tl.atomic_add(counts + bins, found, mask=found > 0, sem="relaxed")


@triton.jit
def _pick(counts, slots):
    """Append the digit that holds the weight looked for; its rank is now one among those with this digit."""
    rank = tl.load(slots + RANK)
    digit, above = _digit(counts, rank)
    tl.store(slots + RANK, rank - above)
    tl.store(slots + FOUND, tl.load(slots + FOUND) * BINS + digit)


@triton.jit
def _sharpness(slots):
    """The factor s, which puts the sharpest bend of tanh at the smallest kept weight."""
    return BEND / tl.maximum(tl.load(slots + FOUND).to(tl.float32, bitcast=True), TINY)


@triton.jit
def _sum_tanh(weights, total, slots, partial_sums, block: tl.constexpr):
    program = tl.program_id(0)
    s = _sharpness(slots)
    sums = tl.zeros([block], tl.float32)
    for start in range(program * block, total, tl.num_programs(0) * block):
        sums += _tanh(s * _magnitudes(weights, start + tl.arange(0, block), total))
    tl.store(partial_sums + program, tl.sum(sums))


@triton.jit
def _write_gradient(
    weights, total, slots, partial_sums, programs, strength, out, places: tl.constexpr, block: tl.constexpr
):
    place = tl.arange(0, places)
    tanhs = tl.sum(tl.load(partial_sums + place, mask=place < programs, other=0.0))
    magnitudes = tl.load(slots + SUM).to(tl.float32, bitcast=True)
    s = _sharpness(slots)
    height = tl.minimum(s * magnitudes / tl.maximum(tanhs, TINY), LARGEST) * tl.load(strength)
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(weights + offsets, mask=offsets < total, other=0.0)
    t = _tanh(s * tl.abs(values))
    sign = (values > 0).to(tl.float32) - (values < 0).to(tl.float32)
    tl.store(out + offsets, sign * (1 - t * t) * height, mask=offsets < total)


def _programs(vector: Tensor, size: int, a_processor: int) -> int:
    """How many programs share a pass over the weights, `size` at a time."""
    processors = torch.cuda.get_device_properties(vector.device).multi_processor_count if vector.is_cuda else 1
    return int(min(triton.cdiv(vector.numel(), size), a_processor * processors))


def select(vector: Tensor, keep: int) -> Tensor:
    """The slots the kernels leave: the `keep`-th largest magnitude and the sum of all, as bits."""
    total = vector.numel()
    workers = _programs(vector, TILE, WARPS_A_PROCESSOR)
    share = triton.cdiv(triton.cdiv(total, workers), TILE) * TILE
    workers = triton.cdiv(total, share)
    stride = max(1, total // SAMPLED)
    zeros = torch.zeros((6, BINS.value), dtype=torch.int32, device=vector.device)
    counts, slots = zeros[:5], zeros[5]
    moved = torch.empty(workers * share, dtype=torch.int32, device=vector.device)
    moved_counts, above_counts = torch.empty((2, workers), dtype=torch.int32, device=vector.device)
    sums = torch.empty(workers, device=vector.device)
    counters = min(triton.cdiv(total, BLOCK * stride), 2 * _programs(vector, BLOCK, 1))
    _count_coarse[(counters,)](vector, total, stride, counts, tile=BLOCK, num_warps=8)
    _guess[(1,)](counts, slots, max(1, keep // stride))
    grid = (workers,)
    _move[grid](vector, total, share, slots, moved, moved_counts, above_counts, sums, rows=TILE // 4, num_warps=1)
    places = triton.next_power_of_2(workers)
    _settle[(1,)](slots, keep, moved_counts, above_counts, sums, workers, places=places, num_warps=8)
    for row, shift in enumerate((24, 16, 8, 0), start=1):
        _count_digit[(triton.cdiv(workers, ROWS),)](
            vector,
            total,
            share,
            slots,
            moved,
            moved_counts,
            workers,
            counts[row],
            shift=shift,
            rows=ROWS,
            tile=TILE // 2,
            num_warps=8,
        )
        _pick[(1,)](counts[row], slots)
    return slots


def kth_largest(vector: Tensor, k: int) -> Tensor:
    """The k-th largest magnitude of a float32 vector."""
    return select(vector, k).view(torch.float32)[FOUND.value]


@torch.library.custom_op("hypersparse::penalty_gradient", mutates_args=())
def hypersparse_grad(vector: Tensor, keep: int, strength: Tensor) -> Tensor:
    """Gradient of the HyperSparse penalty of a float32 vector, times a strength (a tensor of one number)."""
    total, programs = vector.numel(), _programs(vector, BLOCK, PROGRAMS_A_PROCESSOR)
    slots = select(vector, keep)
    partial_sums = torch.empty(programs, device=vector.device)
    _sum_tanh[(programs,)](vector, total, slots, partial_sums, block=BLOCK, num_warps=8)
    out, places = torch.empty_like(vector), triton.next_power_of_2(programs)
    _write_gradient[(triton.cdiv(total, BLOCK),)](
        vector, total, slots, partial_sums, programs, strength, out, places=places, block=BLOCK, num_warps=8
    )
    return out


@hypersparse_grad.register_fake
def _(vector: Tensor, keep: int, strength: Tensor) -> Tensor:
    return torch.empty_like(vector)
