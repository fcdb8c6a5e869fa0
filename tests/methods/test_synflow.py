"""SynFlow: it needs no data, and does not cut a network in two where one round would."""

from itertools import pairwise

import torch
from torch import nn

from hypersparse import SynFlow, Task
from tests.methods.small import cross_entropy, sequence_network, state_of, three_classes


def deep_network() -> nn.Sequential:
    """Layers of very different sizes, without biases."""
    torch.manual_seed(0)
    widths = (20, 100, 100, 4, 100, 3)
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))


def test_labels_and_values_do_not_matter() -> None:
    batches = three_classes((2, 8))
    others = [(inputs * 100, torch.zeros_like(labels)) for inputs, labels in batches]
    masks = [
        SynFlow(sparsity=0.8, rounds=4).mask(state_of(sequence_network(), Task(cross_entropy, data)))
        for data in (batches, others)
    ]
    assert masks[0] == masks[1]


def test_many_rounds_leave_no_layer_empty_where_one_does() -> None:
    task = Task(cross_entropy, three_classes((20,)))
    kept = {
        rounds: SynFlow(sparsity=0.995, rounds=rounds).mask(state_of(deep_network(), task)).kept_by_layer()
        for rounds in (1, 100)
    }
    assert min(kept[1].values()) == 0
    assert min(kept[100].values()) > 0
    assert sum(kept[1].values()) == sum(kept[100].values())


def test_one_round_of_four_weights() -> None:
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -2.0]]))
        model[1].weight.copy_(torch.tensor([[0.5], [-1.0]]))  # scores 1.5, 3, 1.5, 3
    mask = SynFlow(sparsity=0.5, rounds=1).mask(state_of(model, Task(cross_entropy, [(torch.zeros(1, 2), None)])))
    assert mask.vector().tolist() == [False, True, False, True]


def two_units(between: nn.Module, bias: list[float]) -> nn.Sequential:
    """One input into two units, which count once and twice in the output."""
    first, last = nn.Linear(1, 2), nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.copy_(torch.tensor(bias))
        last.weight.copy_(torch.tensor([[1.0, 2.0]]))
    return nn.Sequential(first, between, last)


def test_biases_are_made_positive() -> None:
    model = two_units(nn.ReLU(), bias=[-4.0, 0.0])  # the units hold 1 + 4 and 1: scores 1, 2, 5, 2
    mask = SynFlow(sparsity=0.75, rounds=1).mask(state_of(model, Task(cross_entropy, [(torch.zeros(1, 1), None)])))
    assert mask.vector().tolist() == [False, False, True, False]


def test_running_means_are_made_positive() -> None:
    norm = nn.BatchNorm1d(2)
    norm.running_mean = torch.tensor([-4.0, 0.0])
    model = two_units(norm, bias=[0.0, 0.0])  # the units hold 1 - 4 and 1: scores 1, 2, -3, 2
    mask = SynFlow(sparsity=0.25, rounds=1).mask(state_of(model, Task(cross_entropy, [(torch.zeros(1, 1), None)])))
    assert mask.vector().tolist() == [True, True, False, True]
