"""`Limits`: layers that keep an exact count of weights whatever their scores, and the least that others keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal

import torch
from torch import Tensor, nn

from hypersparse.errors import OptionError
from hypersparse.plurals import how_many
from hypersparse.sparsity.layer_names import LayerNames, Pattern, shown
from hypersparse.sparsity.mask import Mask, Scores


@dataclass(frozen=True)
class Limits:
    """Counts of weights by layer that hold once `keep` weights are kept in all."""

    keep: int
    sizes: Mapping[str, int]  # of all layers
    exact: Mapping[str, int]
    least: Mapping[str, int]  # of layers that are not in `exact`

    def exact_at(self, keep: int, most: Mapping[str, int]) -> dict[str, int]:
        """The exact counts while more weights are kept in all, as in early rounds of pruning; no layer above `most`.

        A layer has then gone the same part of its way as the whole network.

        >>> Limits(20, {"a": 50, "b": 50}, {"a": 10}, {}).exact_at(60, {"a": 50, "b": 50})
        {'a': 30}
        """
        ahead, way = max(0, keep - self.keep), max(1, sum(self.sizes.values()) - self.keep)
        counts = {
            name: min(most[name], count + (self.sizes[name] - count) * ahead // way)
            for name, count in self.exact.items()
        }
        over = keep - sum(counts.values()) - sum(count for name, count in most.items() if name not in counts)
        for name, count in counts.items():  # what the other layers have no room for, by rounding
            counts[name] += min(max(over, 0), most[name] - count)
            over -= counts[name] - count
        return counts

    def raised(self, counts: Mapping[str, int]) -> dict[str, int]:
        """The counts of layers that have less than their least, raised to it."""
        return {name: least for name, least in self.least.items() if counts.get(name, least) < least}

    def check(self, mask: Mask) -> None:
        """Raise an error if a mask of the final count breaks a limit: its method did not ask for them."""
        counts = mask.kept_by_layer()
        if sum(counts.values()) > self.keep:
            return
        wrong = [name for name, count in self.exact.items() if counts[name] != count]
        wrong += [name for name, count in self.least.items() if counts[name] < count]
        if wrong:
            raise OptionError(
                f"The mask keeps {how_many(counts[wrong[0]], 'weight')} of `{wrong[0]}`, against `densities` or "
                "`min_density`; a method chooses its masks with `state.weights.select` or `state.weights.budget`."
            )


def limits_of(
    model: nn.Module,
    layers: Mapping[str, Tensor],
    keep: int,
    *,
    left_out: Mapping[str, str],
    densities: Mapping[Pattern, float],
    min_density: float | None,
) -> Limits | None:
    """The limits that shares of layers make; None where there are none. An error where they cannot be kept."""
    if not isinstance(densities, Mapping):
        raise OptionError(f"`densities` is {{name: share}}, such as {{'head': 0.5}}; got {densities!r}.")
    sizes = {name: layer.numel() for name, layer in layers.items()}
    shares = _shares_by_layer(LayerNames(model), densities, left_out)
    if not shares and min_density is None:
        return None
    exact = {name: share_count(sizes[name], share, "densities") for name, share in shares.items()}
    floor = (
        {}
        if min_density is None
        else {name: share_count(size, min_density, "min_density") for name, size in sizes.items()}
    )
    limits = Limits(keep, sizes, exact, {name: count for name, count in floor.items() if name not in exact})
    _check(limits)
    return limits


def select_within(
    limits: Limits, scores: Scores, keep: int, *, most: Mapping[str, int] | None, rule: Callable[[Scores, int], Mask]
) -> Mask:
    """The best `keep` weights by a rule over all layers without an exact count, of each of which its best stay anyway.

    >>> scores = {"a": torch.tensor([9.0, 8.0]), "b": torch.tensor([7.0, 6.0]), "c": torch.tensor([2.0, 1.0])}
    >>> limits = Limits(3, {"a": 2, "b": 2, "c": 2}, {"a": 1}, {"c": 1})
    >>> select_within(limits, scores, 3, most=None, rule=Mask.top).kept_by_layer()
    {'a': 1, 'b': 1, 'c': 1}
    """
    most = most or limits.sizes
    counts = dict.fromkeys(scores, 0) | limits.exact_at(keep, most)
    counts |= {name: min(count, most[name]) for name, count in limits.least.items()}
    certain = Mask.top_by_layer(scores, counts)
    if (left := keep - sum(counts.values())) <= 0:
        return certain
    others = {name: scores[name].masked_fill(certain[name], -torch.inf) for name in scores if name not in limits.exact}
    chosen = rule(others, left)
    return Mask({name: layer | chosen[name] if name in chosen else layer for name, layer in certain.items()})


def share_count(total: int, share: float, argument: str) -> int:
    """How many of `total` weights a share is, rounded up, as `keep_count` does.

    >>> share_count(1000, 0.1, "densities"), share_count(7, 0.5, "densities")
    (100, 4)
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise OptionError(f"`{argument}` is the fraction of weights kept, in (0, 1]; got {share!r}.")
    return int((Decimal(repr(float(share))) * total).to_integral_value(ROUND_CEILING))


def _shares_by_layer(
    names: LayerNames, densities: Mapping[Pattern, float], left_out: Mapping[str, str]
) -> dict[str, float]:
    found: dict[str, tuple[Pattern, float]] = {}
    for pattern, share in densities.items():
        for name in sorted(names.matching([pattern], "densities", left_out)):
            other, before = found.setdefault(name, (pattern, share))
            if before != share:
                raise OptionError(
                    f"`densities` gives `{name}` two shares: {before} by {shown(other)} and {share} by "
                    f"{shown(pattern)}; let only one of them name it."
                )
    return {name: share for name, (_, share) in found.items()}


def _check(limits: Limits) -> None:
    """Say if the other layers cannot make up the total."""
    others = [name for name in limits.sizes if name not in limits.exact]
    named = sum(limits.exact.values())
    least = named + max(sum(limits.least.values()), bool(others))
    most = named + sum(limits.sizes[name] for name in others)
    wanted = f"{limits.keep:,} of {sum(limits.sizes.values()):,} weights are kept in all"
    if least > limits.keep:
        raise OptionError(
            f"`densities` and `min_density` ask for {least:,} weights, but {wanted}; lower them or the sparsity."
        )
    if most < limits.keep:
        raise OptionError(
            f"With `densities` no more than {most:,} weights can be kept, but {wanted}; raise them or the sparsity, "
            "or name fewer layers."
        )
