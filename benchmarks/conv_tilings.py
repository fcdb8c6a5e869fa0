"""The convolutions of a network, candidate tilings of the kernel for them, and their compilation."""

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace

import torch
from torch import Tensor, nn

from hypersparse import models
from hypersparse.training.kernels.conv_tiling import Convolution, Tiling, kernel_takes, shared_out, tile_of, tiling_of

PROGRAMS = (132, 264, 396, 528, 792)
VARIANTS = [  # filters, channels, taps, pixels a block, warps, stages; the first half is what --quick tries
    (64, 64, 3, 64, 4, 1),
    (64, 64, 3, 64, 8, 3),
    (64, 32, 3, 64, 4, 3),
    (32, 32, 3, 64, 2, 1),
    (32, 32, 3, 64, 2, 3),
    (32, 32, 3, 128, 2, 3),
    (64, 64, 1, 64, 4, 3),
    (32, 32, 1, 64, 2, 3),
    (64, 64, 3, 32, 4, 4),
    (64, 64, 3, 64, 4, 2),
    (64, 64, 3, 128, 8, 2),
    (64, 64, 9, 32, 8, 2),
    (64, 32, 9, 32, 4, 3),
    (64, 32, 9, 64, 4, 1),
    (128, 64, 3, 64, 8, 3),
    (128, 128, 1, 64, 8, 3),
    (32, 64, 3, 64, 2, 3),
    (32, 32, 3, 32, 2, 4),
    (32, 32, 3, 64, 4, 1),
    (32, 32, 3, 128, 4, 1),
    (32, 32, 3, 128, 4, 3),
    (32, 16, 9, 64, 2, 1),
    (32, 16, 9, 64, 2, 3),
    (32, 32, 1, 128, 2, 3),
    (64, 64, 1, 64, 4, 1),
]
QUICK = len(VARIANTS) // 2
SMALL = 128 * 128  # filters x channels; with more, smaller tiles only read more
MOST_SUMS = 128  # a thread
MOST_SHARED = 227 * 1024  # bytes a program

Job = tuple[Convolution, Tiling]


def shapes_of(name: str, *, batch: int, side: int) -> tuple[Counter[Convolution], int]:
    """How often each convolution that the kernel takes occurs in a network, and how many others there are."""
    with torch.device("meta"):
        model = models.build(name, shape=(3, side, side), classes=10, options={}).eval()
    found: Counter[Convolution] = Counter()
    others: list[nn.Module] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if not kernel_takes(module):
            others.append(module)
            return
        assert isinstance(module, nn.Conv2d)
        sizes = {"side": module.kernel_size[0], "stride": module.stride[0], "padding": int(module.padding[0])}
        found[Convolution.of(inputs[0], module.out_channels, **sizes)] += 1

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(note)
    model(torch.empty(batch, 3, side, side, device="meta"))
    return found, len(others)


def candidates(convolution: Convolution, *, quick: bool) -> list[Tiling]:
    """Tilings worth a try, the one that training uses first."""
    rule = tiling_of(convolution)
    variants = [
        Tiling(*sizes, shares=1, block=block, warps=warps, stages=stages)
        for *sizes, block, warps, stages in (VARIANTS[:QUICK] if quick else VARIANTS)
    ]
    found = [
        shared_out(tiling, convolution, programs)
        for tiling in (rule, *variants)
        if worth_a_try(tiling, convolution)
        for programs in PROGRAMS
    ]
    return list(dict.fromkeys(used(tiling, convolution) for tiling in (rule, *found)))


def used(tiling: Tiling, convolution: Convolution) -> Tiling:
    """The same, with the shares it will have."""
    return replace(tiling, shares=tiling.used_shares(convolution))


def worth_a_try(tiling: Tiling, convolution: Convolution) -> bool:
    """It fits the weights, the registers and the shared memory, and is not much smaller than it could be."""
    sums = tiling.filters * tiling.channels * tiling.taps / (32 * tiling.warps)
    shared = tiling.stages * tiling.block * (tiling.filters + tiling.taps * tiling.channels) * 2
    largest = tile_of(convolution.filters) * tile_of(convolution.channels)
    least = largest // 4 if convolution.filters * convolution.channels <= SMALL else largest
    fits = tiling.fits(convolution) and sums <= MOST_SUMS and shared <= MOST_SHARED
    return fits and tiling.filters * tiling.channels >= least


def compile_for(job: Job) -> str:
    """Fill Triton's cache, in a process of its own; what went wrong, if anything did."""
    from hypersparse.training.kernels.conv_kernel import _sum_shares, constants

    convolution, tiling = job
    sums = torch.bfloat16 if tiling.shares == 1 else torch.float32
    try:
        _sum_shares.warmup(
            torch.bfloat16,
            torch.bfloat16,
            sums,
            convolution.pixels,
            tiling.blocks(convolution),
            **constants(convolution, tiling),
            grid=(1,),
        )
    except Exception as error:  # of the compiler, for one tiling among many
        return first_line(error)
    return ""


def first_line(error: Exception) -> str:
    """What went wrong, in short."""
    return (str(error) or type(error).__name__).splitlines()[0]


def compile_all(jobs: Sequence[Job], seconds: float) -> set[Job]:
    """All that can be compiled in that time, several at once. CUDA must not be in use yet: processes are forked."""
    # What differs in the number of shares only is compiled once. Every shape's first tilings come first.
    order = sorted(jobs, key=lambda job: [each for shape, each in jobs if shape == job[0]].index(job[1]))
    kinds = {kind_of(job): job for job in reversed(order)}
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("fork"))
    futures = {kind: pool.submit(compile_for, kinds[kind]) for kind in dict.fromkeys(map(kind_of, order))}
    wait(futures.values(), timeout=seconds)
    pool.shutdown(wait=True, cancel_futures=True)
    late = {kind for kind, future in futures.items() if future.cancelled()}
    failed = {kind: future.result() for kind, future in futures.items() if kind not in late and future.result()}
    if len(failed) + len(late) == len(kinds):
        print(f"Nothing could be compiled beforehand, so it takes longer: {next(iter(failed.values()), 'no time')}")
        return set(jobs)
    if late:
        print(f"{len(late)} of {len(kinds)} kinds of tilings were not compiled: no time")
    for (convolution, tiling), error in failed.items():
        print(f"Not compiled: {label(convolution)}, {described(tiling)}: {error}")
    return {job for job in jobs if kind_of(job) not in late | set(failed)}


def kind_of(job: Job) -> Job:
    """What the compiler sees of it: whether there is more than one share."""
    convolution, tiling = job
    return convolution, replace(tiling, shares=min(tiling.shares, 2))


def label(convolution: Convolution) -> str:
    """A shape in a few words."""
    stride = f", stride {convolution.stride}" if convolution.stride > 1 else ""
    side, size = convolution.side, f"{convolution.height}x{convolution.width}"
    return f"{convolution.channels}->{convolution.filters} {side}x{side}{stride} at {size}"


def described(tiling: Tiling) -> str:
    """A tiling in a few words."""
    tile = f"{tiling.filters}x{tiling.channels}x{tiling.taps}"
    return f"{tile}, {tiling.shares} x {tiling.block}, {tiling.warps} warps, {tiling.stages} stages"
