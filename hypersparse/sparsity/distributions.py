"""Exact counts of kept weights, their distribution among layers, and masks with these counts."""

from collections.abc import Callable, Collection, Mapping
from decimal import ROUND_FLOOR, Decimal
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hypersparse.distributed.shards import is_sharded
from hypersparse.errors import OptionError, unknown
from hypersparse.plurals import how_many
from hypersparse.sparsity.limits import Limits, select_within
from hypersparse.sparsity.mask import Mask, Scores

PAPER_SPARSITIES = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)  # of the tables in the HyperSparse paper
LINEAR_KEEP = (0.3, 0.1)  # of SmartRatio's last layer: the usual fraction, and where that takes more than there is
Layers = Mapping[str, Tensor]  # only their shapes count
Rule = Callable[[Layers, int], dict[str, int]]
Distribution = Literal["global", "uniform", "erk", "sratio"]


def check_sparsity(sparsity: float) -> float:
    """Return `sparsity` if it is a fraction in [0, 1), otherwise raise an error."""
    if isinstance(sparsity, bool) or not 0 <= sparsity < 1:
        hint = f" For {sparsity:g} % sparsity pass {sparsity / 100:g}." if 1 < sparsity < 100 else ""
        hint = " That leaves no weight." if sparsity == 1 else hint
        raise OptionError(
            f"`sparsity` is the fraction of weights removed and must be in [0, 1); got {sparsity:g}.{hint}"
        )
    return sparsity


def keep_count(total: int, sparsity: float) -> int:
    """The number of kept weights: `total - floor(sparsity * total)` in decimal arithmetic, at least 1.

    >>> keep_count(90, 0.7)  # 0.7 * 90 is 62.99999999999999 in binary floating point
    27
    >>> keep_count(1_855_584, 0.98)
    37112
    """
    removed = (Decimal(repr(float(check_sparsity(sparsity)))) * total).to_integral_value(ROUND_FLOOR)
    return total - int(removed)


def in_rounds(total: int, keep: int, rounds: int, *, rounding: Literal["nearest", "up"] = "nearest") -> list[int]:
    """Kept weights after each of several rounds that remove the same fraction; the last count is `keep`.

    Rounding `up` removes `floor((1 - density) * total)` weights, as the authors of SynFlow and FORCE do.

    >>> in_rounds(1000, 10, 3), in_rounds(1000, 10, 3, rounding="up")
    ([215, 46, 10], [216, 47, 10])
    """
    if rounds < 1:
        raise OptionError(f"`rounds` counts rounds of pruning, 1 or more; got {rounds}.")
    _check_keep(keep, total)
    densities = [(keep / total) ** (number / rounds) for number in range(1, rounds)]
    if rounding == "up":
        counts = [total - int((1 - density) * total) for density in densities]
    else:
        counts = [round(density * total) for density in densities]
    return [*(min(max(count, keep), total) for count in counts), keep]


def select(
    scores: Scores,
    keep: int,
    distribution: Distribution = "global",
    *,
    among: Mask | None = None,
    limits: Limits | None = None,
    rule: Callable[[Scores, int], Mask] = Mask.top,
) -> Mask:
    """Keep exactly `keep` weights: the best of all (`global`), or the best of each layer, its share by a rule.

    Only weights that `among` keeps can be chosen, where it is given. Layers that have `limits` keep to them, and the
    others share the rest. Another `rule` than `Mask.top` treats equal scores of the best of all in its own way.

    >>> scores = {"a": torch.tensor([[9.0, 8.0]]), "b": torch.tensor([[1.0, 2.0]])}
    >>> select(scores, 2).kept_by_layer(), select(scores, 2, "uniform").kept_by_layer()
    ({'a': 2, 'b': 0}, {'a': 1, 'b': 1})
    """
    _check_informative(scores)
    if among is not None:
        scores = {name: layer.masked_fill(~among[name], -torch.inf) for name, layer in scores.items()}
    most = None if among is None else among.kept_by_layer()
    if distribution != "global":
        return Mask.top_by_layer(scores, shares(scores, keep, distribution, limits=limits, most=most))
    return rule(scores, keep) if limits is None else select_within(limits, scores, keep, most=most, rule=rule)


def shares(
    layers: Layers,
    keep: int,
    distribution: Distribution | Rule,
    *,
    limits: Limits | None = None,
    most: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """How many weights each layer keeps by a rule, which `global` is not; layers that have `limits` keep to them.

    No layer keeps more than `most`, where that is given.
    """
    rules: dict[str, Rule] = {"uniform": uniform, "erk": erk, "sratio": sratio}
    rule = rules.get(distribution) if isinstance(distribution, str) else distribution
    if rule is None:
        raise OptionError(unknown("distribution", str(distribution), ["global", *rules]))
    fixed = {} if limits is None else limits.exact_at(keep, most or limits.sizes)
    while True:
        others = {name: layer for name, layer in layers.items() if name not in fixed}
        counts = rule(others, keep - sum(fixed.values())) if others else {}
        low = {} if limits is None else limits.raised(counts)
        if not low:
            break
        fixed |= low  # the others share what is left
    counts = counts if most is None else _within(counts, most)
    return {name: fixed[name] if name in fixed else counts[name] for name in layers}


def select_in_rounds(
    weights: Mapping[str, Tensor],
    keep: int,
    *,
    rounds: int,
    score: Callable[[Mapping[str, Tensor]], Scores],
    distribution: Distribution = "global",
    recover: bool = False,
    limits: Limits | None = None,
) -> Mask:
    """Remove the same fraction in every round, and score the rest again: `score` gets the weights, pruned so far.

    With `recover` a weight dropped in an earlier round may come back; `score` must then say what it would be worth.
    """
    mask = Mask.all_kept(weights)
    for count in in_rounds(mask.total, keep, rounds, rounding="up"):
        found = score({name: weight.detach().masked_fill(~mask[name], 0.0) for name, weight in weights.items()})
        mask = select(found, count, distribution, among=None if recover else mask, limits=limits)
    return mask


def uniform(layers: Layers, keep: int, *, dense: Collection[str] = ()) -> dict[str, int]:
    """The same density in every layer, except that layers in `dense` keep all weights; `keep` weights in total."""
    sizes = _sizes(layers, keep)
    if unknown_names := set(dense) - sizes.keys():
        raise OptionError(unknown("layer", min(unknown_names), sizes))
    rest = keep - sum(sizes[name] for name in dense)
    others = sum(sizes.values()) - (keep - rest)
    if rest < 0:
        raise OptionError(
            f"The layers {sorted(dense)} stay dense and have {how_many(keep - rest, 'weight')}, but only {keep} can be "
            "kept. Choose a lower sparsity, or a distribution such as `erk`, which prunes these layers too."
        )
    density = rest / others if others else 0.0
    return _whole({name: size if name in dense else density * size for name, size in sizes.items()}, sizes, keep)


def erk(layers: Layers, keep: int) -> dict[str, int]:
    """Erdős-Rényi-Kernel: a density proportional to (sum of a layer's dimensions) / (their product).

    Layers that would need more weights than they have are dense, and the others share what is left.
    """
    sizes = _sizes(layers, keep)
    dimensions = {name: sum(layer.shape) for name, layer in layers.items()}  # density times size, up to a factor
    dense: set[str] = set()
    while True:
        left = keep - sum(sizes[name] for name in dense)
        open_layers = [name for name in sizes if name not in dense]
        factor = left / max(sum(dimensions[name] for name in open_layers), 1)
        too_full = {name for name in open_layers if factor * dimensions[name] > sizes[name]}
        if not too_full:
            break
        dense |= too_full
    shares = {name: sizes[name] if name in dense else factor * dimensions[name] for name in sizes}
    return _whole(shares, sizes, keep)


def sratio(
    layers: Layers,
    keep: int,
    *,
    linear_keep: float | None = None,
    rule: Literal["auto", "residual", "plain"] = "auto",
    rounding: Literal["exact", "down"] = "exact",
) -> dict[str, int]:
    """SmartRatio: densities that fall with depth, (n-l)² + (n-l) in layer l of n; the last layer keeps a fraction.

    `plain` chains of layers such as VGG divide that by (l+1)². `auto` uses this rule if each layer's inputs are the
    outputs of the layer before, as in networks without shortcuts. Without a `linear_keep` the last layer keeps 0.3, or
    0.1 where 0.3 would leave nothing for the others. What does not fit into a layer goes to the next. Rounding `down`
    keeps a few less than `keep`, as the authors' code does, in float32 as there.
    """
    sizes = _sizes(layers, keep)
    *body, last = sizes
    if not body:
        return {last: keep}
    at_end = _kept_at_end(sizes[last], keep, linear_keep)
    falling = _falling(layers, "plain" if rule == "auto" and _is_plain(layers) else rule)
    if rounding == "down":
        return {**_rounded_down(falling, sizes, keep - at_end), last: at_end}
    density = {name: depth / divisor for name, (depth, divisor) in falling.items()}
    factor = (keep - at_end) / sum(int(sizes[name] * density[name]) for name in body)
    shares, surplus = {}, 0.0
    for name in body:
        wanted = factor * density[name] * sizes[name] + surplus
        shares[name] = min(wanted, float(sizes[name]))
        surplus = wanted - shares[name]
    shares[last] = min(at_end + surplus, sizes[last])
    return _whole(shares, sizes, keep, fixed=last)


def keep_in_float32(total: int, sparsity: float) -> int:
    """(1 - sparsity) * total in float32, rounded down, as in the code of SmartRatio's authors.

    >>> keep_in_float32(20_024_000, 0.9), int(20_024_000 * (1 - 0.9))
    (2002400, 2002399)
    """
    return int(np.float32(total) * np.float32(1 - check_sparsity(sparsity)))


def _rounded_down(falling: Mapping[str, tuple[int, int]], sizes: Mapping[str, int], keep: int) -> dict[str, int]:
    """The counts of all layers but the last by the authors' arithmetic.

    It is in float32, and rounds each layer's surplus and room down before they are handed on.
    """
    single = np.float32
    *body, _ = sizes
    weighted = {name: single(sizes[name]) * single(falling[name][0]) / single(falling[name][1]) for name in body}
    factor = single(keep / sum(map(int, weighted.values())))
    counts, surplus = {}, 0
    for name in body:
        depth, divisor = falling[name]
        size, density = single(sizes[name]), single(depth) * factor / single(divisor)
        free = (single(1) - density) * size
        if density < 1 and int(free) >= surplus:
            counts[name] = int((density + single(surplus) / size) * size)
            surplus = 0
        else:
            counts[name] = sizes[name]
            surplus -= int(free)
    return counts


def _falling(layers: Layers, rule: str) -> dict[str, tuple[int, int]]:
    """The density of each layer up to a factor, as numerator and denominator."""
    left = {name: len(layers) - number for number, name in enumerate(layers)}
    return {
        name: (count**2 + count, (len(layers) - count + 1) ** 2 if rule == "plain" else 1)
        for name, count in left.items()
    }


def _is_plain(layers: Layers) -> bool:
    """Whether each layer's inputs are the outputs of the layer before, as without shortcuts."""
    shapes = [layer.shape for layer in layers.values()]
    if any(len(shape) < 2 for shape in shapes):
        return False
    # Not equal but a multiple: flattening turns channels into channels times pixels.
    return all(after[1] % before[0] == 0 for before, after in pairwise(shapes))


def _kept_at_end(size: int, keep: int, linear_keep: float | None) -> int:
    for fraction in LINEAR_KEEP if linear_keep is None else (linear_keep,):
        kept = int(fraction * size)
        if kept < keep:
            return kept
    raise OptionError(
        f"With `linear_keep` {fraction:g} the last layer keeps {kept} of its {how_many(size, 'weight')}, but only "
        f"{keep} can be kept in all. None is left for the other layers. Pass a smaller `linear_keep`, a lower "
        "sparsity, or with other methods than SRatio another distribution."
    )


def _whole(
    shares: Mapping[str, float], sizes: Mapping[str, int], keep: int, fixed: str | None = None
) -> dict[str, int]:
    """Counts that sum to `keep`: shares rounded down, then one more each for those that lost most, `fixed` last."""
    counts = {name: min(int(share), sizes[name]) for name, share in shares.items()}
    order = sorted(shares, key=lambda name: (name == fixed, counts[name] - shares[name]))
    missing = keep - sum(counts.values())
    while missing > 0:
        for name in order:
            more = min(missing, 1, sizes[name] - counts[name])
            counts[name] += more
            missing -= more
    return counts


def _within(budget: Mapping[str, int], most: Mapping[str, int]) -> dict[str, int]:
    """The same number of weights, in no layer more than `most`; what does not fit goes where there is most room.

    A smaller budget is not smaller in every layer. Rounding may give a layer one more weight, and with SmartRatio a
    smaller last layer may leave the others many more.
    """
    counts = {name: min(count, most[name]) for name, count in budget.items()}
    missing = sum(budget.values()) - sum(counts.values())
    for name in sorted(counts, key=lambda name: counts[name] - most[name]):
        more = min(missing, most[name] - counts[name])
        counts[name] += more
        missing -= more
    return counts


def _sizes(layers: Layers, keep: int) -> dict[str, int]:
    sizes = {name: layer.numel() for name, layer in layers.items()}
    if not sizes:
        raise OptionError("A budget has at least one layer; none was given.")
    _check_keep(keep, sum(sizes.values()))
    return sizes


def _check_informative(scores: Scores) -> None:
    # Shards are left out: of one rank all may be 0.
    if not is_sharded(scores) and not any(bool(layer.any()) for layer in scores.values()):
        raise OptionError(
            "All scores are 0, so that no mask is better than another. Either the loss does not depend on the weights, "
            "or nothing flows through the network, or its weights are 0. Look at the loss and the initialization, or "
            "lower the sparsity."
        )


def _check_keep(keep: int, total: int) -> None:
    if not 1 <= keep <= total:
        raise OptionError(f"`keep` is a count from 1 to {total}; got {keep}.")
