"""Triton kernels for the HyperSparse penalty on a GPU; `penalties` holds the same in plain PyTorch.

Magnitudes order like their bits, so the k-th largest is found digit by digit. A first pass counts a coarse digit, eight
values to an octave; a second one moves the few weights that share the k-th largest's digit together, and four short
ones look at those only. In all the gradient reads the weights four times: to count, to move, to sum tanh, to write.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from hypersparse.sparsity.constants import SHARPEST_BEND

MOST = 2**30  # weights; positions are 32-bit integers
BLOCK = 4096
PROGRAMS_A_PROCESSOR = 4
RANK, FOUND, MOVED, COARSE = (tl.constexpr(slot) for slot in range(4))  # what the kernels tell each other
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
def _count_coarse(weights, total, counts, partial_sums, block: tl.constexpr):
    """How many weights have each coarse digit, and sums of |w|."""
    program = tl.program_id(0)
    bins = tl.arange(0, BINS)
    found = tl.zeros([BINS], tl.int32)
    sums = tl.zeros([block], tl.float32)
    for start in range(program * block, total, tl.num_programs(0) * block):
        magnitude = _magnitudes(weights, start + tl.arange(0, block), total)
        found += tl.histogram(_coarse(magnitude.to(tl.int32, bitcast=True)), BINS)
        sums += magnitude
    tl.atomic_add(counts + bins, found, mask=found > 0, sem="relaxed")
    tl.store(partial_sums + program, tl.sum(sums))


@triton.jit
def _count_moved(moved, slots, counts, shift: tl.constexpr, block: tl.constexpr):
    """Of the moved weights whose higher bits are the ones found, how many have each digit at `shift`."""
    total = tl.load(slots + MOVED)
    higher = tl.load(slots + FOUND)
    first = tl.program_id(0) * block
    if first < total:
        bins = tl.arange(0, BINS)
        found = tl.zeros([BINS], tl.int32)
        for start in range(first, total, tl.num_programs(0) * block):
            offsets = start + tl.arange(0, block)
            bits = tl.load(moved + offsets, mask=offsets < total, other=0)
            fits = (offsets < total) & ((bits.to(tl.int64) >> (shift + 8)).to(tl.int32) == higher)
            found += tl.histogram((bits >> shift) & (BINS - 1), BINS, mask=fits)
        tl.atomic_add(counts + bins, found, mask=found > 0, sem="relaxed")


@triton.jit
def _pick(counts, slots, coarse: tl.constexpr):
    """The digit that holds the weight of the rank looked for, and its rank among those with this digit."""
    bins = tl.arange(0, BINS)
    count = tl.load(counts + bins)
    rank = tl.load(slots + RANK)
    above = tl.sum(count) - tl.cumsum(count)  # how many have a larger digit
    digit = tl.sum((above >= rank).to(tl.int32))  # these digits are too small
    tl.store(slots + RANK, rank - tl.sum(tl.where(bins == digit, above, 0)))
    if coarse:
        tl.store(slots + COARSE, digit)
    else:
        tl.store(slots + FOUND, tl.load(slots + FOUND) * BINS + digit)


@triton.jit
def _move(weights, total, slots, moved, block: tl.constexpr):
    """Copy the bits of the weights with the digit that was picked, in any order, behind each other."""
    wanted = tl.load(slots + COARSE)
    for start in range(tl.program_id(0) * block, total, tl.num_programs(0) * block):
        offsets = start + tl.arange(0, block)
        bits = _magnitudes(weights, offsets, total).to(tl.int32, bitcast=True)
        fits = ((offsets < total) & (_coarse(bits) == wanted)).to(tl.int32)
        place = tl.atomic_add(slots + MOVED, tl.sum(fits), sem="relaxed")
        tl.store(moved + place + tl.cumsum(fits) - 1, bits, mask=fits > 0)


@triton.jit
def _sharpness(slots):
    """The factor s: the sharpest bend of tanh lies at the smallest weight that stays."""
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
    weights, total, slots, partial_sums, programs, strength, out, partials: tl.constexpr, block: tl.constexpr
):
    places = tl.arange(0, partials)
    magnitudes = tl.sum(tl.load(partial_sums + places, mask=places < programs, other=0.0))
    tanhs = tl.sum(tl.load(partial_sums + programs + places, mask=places < programs, other=0.0))
    s = _sharpness(slots)
    height = tl.minimum(s * magnitudes / tl.maximum(tanhs, TINY), LARGEST) * tl.load(strength)
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(weights + offsets, mask=offsets < total, other=0.0)
    t = _tanh(s * tl.abs(values))
    sign = (values > 0).to(tl.float32) - (values < 0).to(tl.float32)
    tl.store(out + offsets, sign * (1 - t * t) * height, mask=offsets < total)


def programs_for(vector: Tensor) -> int:
    """How many programs share a pass over the weights."""
    processors = torch.cuda.get_device_properties(vector.device).multi_processor_count if vector.is_cuda else 1
    return int(min(triton.cdiv(vector.numel(), BLOCK), PROGRAMS_A_PROCESSOR * processors))


def select(vector: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The `keep`-th largest magnitude, as bits in a slot, and partial sums of all of them."""
    total, grid = vector.numel(), (programs_for(vector),)
    counts = torch.zeros((5, BINS.value), dtype=torch.int32, device=vector.device)
    slots = torch.zeros(4, dtype=torch.int32, device=vector.device)
    slots[:1].fill_(keep)
    moved = torch.empty(total, dtype=torch.int32, device=vector.device)
    partial_sums = torch.empty((2, *grid), device=vector.device)
    _count_coarse[grid](vector, total, counts, partial_sums, block=BLOCK, num_warps=8)
    _pick[(1,)](counts, slots, coarse=True)
    _move[grid](vector, total, slots, moved, block=BLOCK, num_warps=8)
    for row, shift in enumerate((24, 16, 8, 0), start=1):
        _count_moved[grid](moved, slots, counts[row], shift=shift, block=BLOCK, num_warps=8)
        _pick[(1,)](counts[row], slots, coarse=False)
    return slots, partial_sums


def kth_largest(vector: Tensor, k: int) -> Tensor:
    """The k-th largest magnitude of a float32 vector."""
    slots, _ = select(vector, k)
    return slots.view(torch.float32)[FOUND.value]


@torch.library.custom_op("hypersparse::penalty_gradient", mutates_args=())
def hypersparse_grad(vector: Tensor, keep: int, strength: Tensor) -> Tensor:
    """Gradient of the HyperSparse penalty of a float32 vector, times a strength (a tensor of one number)."""
    total, grid = vector.numel(), (programs_for(vector),)
    slots, partial_sums = select(vector, keep)
    _sum_tanh[grid](vector, total, slots, partial_sums[1], block=BLOCK, num_warps=8)
    out = torch.empty_like(vector)
    partials = triton.next_power_of_2(grid[0])
    _write_gradient[(triton.cdiv(total, BLOCK),)](
        vector, total, slots, partial_sums, grid[0], strength, out, partials=partials, block=BLOCK, num_warps=8
    )
    return out


@hypersparse_grad.register_fake
def _(vector: Tensor, keep: int, strength: Tensor) -> Tensor:
    return torch.empty_like(vector)
