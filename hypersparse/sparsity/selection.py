"""Masks from scores: over all layers or by a distribution, at once or in rounds."""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from hypersparse.errors import OptionError, unknown
from hypersparse.sparsity.budgets import erk, in_rounds, sratio, uniform
from hypersparse.sparsity.mask import Mask, Scores

Distribution = Literal["global", "uniform", "erk", "sratio"]


def select(scores: Scores, keep: int, distribution: Distribution = "global") -> Mask:
    """Keep exactly `keep` weights: the best of all (`global`), or the best of each layer, its share by a rule.

    >>> scores = {"a": torch.tensor([[9.0, 8.0]]), "b": torch.tensor([[1.0, 2.0]])}
    >>> select(scores, 2).kept_by_layer(), select(scores, 2, "uniform").kept_by_layer()
    ({'a': 2, 'b': 0}, {'a': 1, 'b': 1})
    """
    if distribution == "global":
        return Mask.top(scores, keep)
    rules = {"uniform": uniform, "erk": erk, "sratio": sratio}
    if distribution not in rules:
        raise OptionError(unknown("distribution", distribution, ["global", *rules]))
    return Mask.top_by_layer(scores, rules[distribution](scores, keep))


def select_in_rounds(
    weights: Mapping[str, Tensor],
    keep: int,
    *,
    rounds: int,
    score: Callable[[Mapping[str, Tensor]], Scores],
    distribution: Distribution = "global",
    recover: bool = False,
) -> Mask:
    """Remove the same fraction in every round, and score anew what is left: `score` gets the weights, pruned so far.

    With `recover` a weight dropped in an earlier round may come back; `score` must then say what it would be worth.
    """
    mask = Mask.all_kept(weights)
    for count in in_rounds(mask.total, keep, rounds):
        found = score({name: weight.detach().masked_fill(~mask[name], 0.0) for name, weight in weights.items()})
        if not recover:
            found = {name: layer.masked_fill(~mask[name], -torch.inf) for name, layer in found.items()}
        mask = select(found, count, distribution)
    return mask
