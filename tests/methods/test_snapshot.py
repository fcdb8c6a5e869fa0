"""Pruned copies of a network."""

import torch
from torch import nn

from hypersparse import Mask
from hypersparse.methods.snapshot import restore_, snapshot
from hypersparse.sparsity.scores import magnitude
from hypersparse.sparsity.weights import PrunableWeights


def test_a_copy_holds_all_that_a_network_has() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.tied = nn.Linear(4, 4)
            self.tied.weight = self.first.weight
            self.register_buffer("hidden", torch.ones(2), persistent=False)

        def get_extra_state(self) -> dict[str, int]:
            return {"not a": 1}

        def set_extra_state(self, state: dict[str, int]) -> None: ...

    weights = PrunableWeights(Odd())
    model = weights.model
    mask = Mask.top(magnitude(weights), 5)
    expected = weights["first.weight"].detach() * mask["first.weight"]
    stored = snapshot(weights, mask)
    assert stored["rest"].keys() == {"first.bias", "tied.bias", "hidden"}
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(7.0)
    restore_(weights, stored)
    assert torch.equal(weights["first.weight"], expected)
    assert weights.mask == mask
    assert model.get_buffer("hidden").tolist() == [1.0, 1.0]
    assert not (model.get_parameter("tied.bias") == 7).any()
