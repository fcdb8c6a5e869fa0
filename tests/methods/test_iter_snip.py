"""Iterative SNIP: one round is SNIP, more see the pruned network, and FORCE lets weights come back."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from hypersparse import SNIP, IterSNIP, PrunableWeights, Task
from tests.methods.small import cross_entropy, sequence_network, state_of, three_classes


def test_one_round_is_snip() -> None:
    task = Task(cross_entropy, three_classes((2, 8)))
    for recover in (False, True):
        method = IterSNIP(sparsity=0.8, rounds=1, recover=recover)
        assert method.mask(state_of(sequence_network(), task)) == SNIP(sparsity=0.8).mask(
            state_of(sequence_network(), task)
        )


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Of four weights a, b, c, d."""
    a, b, c, d = outputs[0]
    return a + 2 * c + d * (1 - 2 * b) + 6 * b


class Weights(nn.Module):
    """Outputs are its weights, 1, 0.5, 1 and 3."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 4, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[1.0], [0.5], [1.0], [3.0]]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs)  # type: ignore[no-any-return]


def test_four_weights_in_two_rounds() -> None:
    """The scores are 1, 0, 2, 0: a and c stay. Without b and d they would be 1, 3, 2, 3."""
    task = Task(loss, [(torch.ones(1, 1), torch.zeros(1, dtype=torch.long))])
    kept = {
        recover: IterSNIP(sparsity=0.75, rounds=2, recover=recover, per_class=1).mask(state_of(Weights(), task))
        for recover in (False, True)
    }
    assert kept[False].vector().tolist() == [False, False, True, False]  # what is gone stays away
    assert kept[True].vector().tolist() == [False, True, False, False]  # FORCE; of equal ones the first


class Shuffled:
    """Other samples each time it is iterated."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield torch.randn(48, 2, 8, generator=self.generator), torch.arange(48) % 3


def test_every_round_sees_the_same_samples_and_a_sparser_network() -> None:
    nonzero: list[int] = []
    seen: list[Tensor] = []

    def run(model: nn.Module, inputs: Tensor) -> Tensor:
        nonzero.append(int(PrunableWeights(model).vector().count_nonzero()))
        seen.append(inputs)
        return model(inputs)  # type: ignore[no-any-return]

    task = Task(cross_entropy, Shuffled(), forward=run)
    IterSNIP(sparsity=0.75, rounds=2).mask(state_of(sequence_network(), task))
    assert nonzero == [156, 78]
    assert torch.equal(seen[0], seen[1])
