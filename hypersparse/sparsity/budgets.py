"""How many weights to keep: exact counts from a sparsity, over all layers or in each."""

from collections.abc import Collection, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from math import prod

from hypersparse.errors import OptionError

PAPER_SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # of the tables in the HyperSparse paper


def check_sparsity(sparsity: float) -> float:
    """Return `sparsity` if it is a fraction in [0, 1), otherwise say what to pass."""
    if isinstance(sparsity, bool) or not 0 <= sparsity < 1:
        hint = f" For {sparsity:g} % sparsity pass {sparsity / 100:g}." if 1 < sparsity < 100 else ""
        hint = " That leaves no weight." if sparsity == 1 else hint
        raise OptionError(
            f"`sparsity` is the fraction of weights removed and must be in [0, 1); got {sparsity:g}.{hint}"
        )
    return sparsity


def keep_count(total: int, sparsity: float) -> int:
    """Weights that remain of `total`: `total - floor(sparsity * total)`, the product taken in decimal.

    At least one remains, whatever the sparsity.

    >>> keep_count(90, 0.7)  # 0.7 * 90 is 62.99999999999999 in binary floating point
    27
    >>> keep_count(1_855_584, 0.98)
    37112
    """
    removed = (Decimal(repr(float(check_sparsity(sparsity)))) * total).to_integral_value(ROUND_FLOOR)
    return total - int(removed)


def uniform(totals: Mapping[str, int], keep: int, *, dense: Collection[str] = ()) -> dict[str, int]:
    """The same share of every layer, `keep` weights in all; the `dense` layers are kept whole and the others pay.

    >>> uniform({"first": 10, "middle": 60, "last": 40}, 30, dense=["first"])
    {'first': 10, 'middle': 12, 'last': 8}
    """
    whole = sum(totals[name] for name in dense)
    others = {name: total for name, total in totals.items() if name not in dense}
    if not len(others) <= keep - whole <= sum(others.values()):
        raise OptionError(
            f"{keep} weights cannot be shared out uniformly: {whole} are in layers that stay whole, and the "
            f"{len(others)} others have {sum(others.values())}. Take another sparsity or distribution (erk)."
        )
    share = (keep - whole) / sum(others.values()) if others else 0.0
    counts = _rounded({name: share * total for name, total in others.items()}, keep - whole, others)
    return {name: counts.get(name, total) for name, total in totals.items()}


def erk(shapes: Mapping[str, Sequence[int]], keep: int) -> dict[str, int]:
    """Erdős-Rényi-kernel: a layer's density is proportional to the sum of its dimensions over their product.

    Layers that would need more than they have are kept whole. `keep` weights in all.

    >>> erk({"small": (2, 4), "large": (10, 10)}, 26)
    {'small': 6, 'large': 20}
    """
    totals = {name: prod(shape) for name, shape in shapes.items()}
    if not 1 <= keep <= sum(totals.values()):
        raise OptionError(f"`keep` is a count from 1 to {sum(totals.values())}; got {keep}.")
    whole: set[str] = set()
    while True:
        left = keep - sum(totals[name] for name in whole)
        weight = {name: float(sum(shape)) for name, shape in shapes.items() if name not in whole}
        factor = left / sum(weight.values()) if weight else 0.0
        quotas = {name: factor * value for name, value in weight.items()}
        full = {name for name, quota in quotas.items() if quota > totals[name]}
        if not full:
            counts = _rounded(quotas, left, totals)
            return {name: counts.get(name, total) for name, total in totals.items()}
        whole |= full


def _rounded(quotas: Mapping[str, float], keep: int, totals: Mapping[str, int]) -> dict[str, int]:
    """Whole numbers near the quotas that sum to `keep`; what is left goes to the largest fractions."""
    counts = {name: min(int(quota), totals[name]) for name, quota in quotas.items()}
    while (left := keep - sum(counts.values())) > 0:
        room = sorted((name for name in counts if counts[name] < totals[name]), key=lambda n: counts[n] - quotas[n])
        for name in room[:left]:
            counts[name] += 1
    return counts
