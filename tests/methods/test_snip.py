"""SNIP: which of four weights it keeps, and by which rule the last one."""

import torch
from torch import Tensor, nn

from hypersparse import SNIP, Task
from tests.methods.small import perceptron, state_of, three_classes


def summed(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.sum(dim=1) * (1 + labels)).sum()


def four_weights() -> nn.Linear:
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 3.0, -4.0]]))
    return model


def test_four_weights() -> None:
    # Two samples, of the classes 0 and 1, count once and twice: gradients 8 + 2, 3 + 2, 1 + 2, 0 + 2.
    inputs = torch.tensor([[8.0, 3.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    task = Task(summed, [(inputs, torch.tensor([0, 1]))])  # scores 10, 10, 9, 8
    masks = {
        (sparsity, count): SNIP(sparsity=sparsity, per_class=1, tie_rule=count).mask(state_of(four_weights(), task))
        for sparsity in (0.25, 0.5, 0.75)
        for count in ("exact", "authors")
    }
    assert masks[0.5, "exact"]["weight"].tolist() == [[True, True, False, False]]
    assert masks[0.25, "exact"]["weight"].tolist() == [[True, True, True, False]]
    assert masks[0.75, "exact"]["weight"].tolist() == [[True, False, False, False]]  # of equal scores the first
    assert masks[0.75, "authors"]["weight"].tolist() == [[True, True, False, False]]  # both
    assert masks[0.25, "authors"] == masks[0.25, "exact"]


def test_the_authors_round_what_is_kept_and_we_what_is_removed() -> None:
    task = Task(summed, [(torch.tensor([[8.0, 3.0, 1.0, 1.0]]), torch.tensor([0]))])  # scores 8, 6, 3, 4
    kept = {count: SNIP(sparsity=0.3, per_class=1, tie_rule=count) for count in ("exact", "authors")}
    assert kept["exact"].mask(state_of(four_weights(), task))["weight"].tolist() == [[True, True, False, True]]
    assert kept["authors"].mask(state_of(four_weights(), task))["weight"].tolist() == [[True, True, False, False]]


def test_samples_of_all_passes_count() -> None:
    inputs = torch.tensor([[8.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 5.0]])  # scores 8, 2, 3, 0, and with both 8, 4, 3, 20
    task = Task(summed, [(inputs, torch.tensor([0, 0]))])
    one, two = (
        SNIP(sparsity=0.5, per_class=1, passes=passes).mask(state_of(four_weights(), task)) for passes in (1, 2)
    )
    assert one["weight"].tolist() == [[True, False, True, False]]
    assert two["weight"].tolist() == [[True, False, False, True]]


def test_the_gradient_is_taken_with_the_statistics_of_the_batch() -> None:
    """Statistics that would blow everything up do not matter, and stay as they are."""
    task = Task(nn.functional.cross_entropy, three_classes())
    plain, odd = perceptron(), perceptron()
    odd[1].running_var.fill_(1e-8)
    odd.eval()
    assert SNIP(sparsity=0.8).mask(state_of(plain, task)) == SNIP(sparsity=0.8).mask(state_of(odd, task))
    assert (odd[1].running_var == 1e-8).all()
