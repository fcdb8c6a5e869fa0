"""Top-KAST: that hooks around the optimizer's step do what a network with two masks would."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import OptionError, Sparsifier, TopKAST
from hypersparse.methods.topkast import UnusedWeights
from hypersparse.sparsity.mask import Mask
from tests.methods.tiny import attached, epochs_of


def one_layer(values: list[float], method: TopKAST, **options: Any) -> Sparsifier:
    layer = nn.Linear(len(values), 1, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([values]))
    return hypersparse.attach(layer, torch.optim.SGD(layer.parameters(), lr=0.1, **options), method, epochs=1)


def step(sparsifier: Sparsifier, gradient: list[float]) -> list[float]:
    weight = sparsifier.weights["weight"]
    weight.grad = torch.tensor([gradient])
    sparsifier.state.optimizer.step()
    found: list[float] = weight.detach()[0].tolist()
    return found


def unused(sparsifier: Sparsifier) -> UnusedWeights:
    found = sparsifier.state.memory.get(UnusedWeights)
    assert found is not None
    return found


def stored(sparsifier: Sparsifier) -> list[float]:
    """The values of all weights, used or not."""
    rest = unused(sparsifier).values[0]
    found: list[float] = (sparsifier.weights["weight"].detach() + rest)[0].tolist()
    return found


def test_two_steps_and_a_choice_by_hand() -> None:
    # Of five weights two are used and four learn. The decay of the third and fourth is 0.1 / 0.4 = 0.25 a unit.
    method = TopKAST(sparsity=0.6, backward_ratio=2.0, exploration_decay=0.1, update_every=2)
    sparsifier = one_layer([5.0, -4.0, 3.0, -2.0, 1.0], method)
    sparsifier.begin_epoch()
    assert sparsifier.weights["weight"].tolist() == [[5.0, -4.0, 0.0, 0.0, 0.0]]
    assert sparsifier.trainable is not None
    assert sparsifier.trainable["weight"].tolist() == [[True, True, True, True, False]]

    found = step(sparsifier, [10.0, -20.0, -15.0, 5.0, 100.0])
    assert found == pytest.approx([4.0, -2.0, 0.0, 0.0, 0.0])
    # 3 - 0.1 (-15 + 0.25 x 3), -2 - 0.1 (5 - 0.25 x 2), and the fifth has not moved.
    assert stored(sparsifier) == pytest.approx([4.0, -2.0, 4.425, -2.45, 1.0])

    found = step(sparsifier, [0.0, 0.0, 0.0, 0.0, 0.0])  # which chooses anew
    assert found == pytest.approx([4.0, 0.0, 4.425 * 0.975, 0.0, 0.0])
    assert stored(sparsifier) == pytest.approx([4.0, -2.0, 4.425 * 0.975, -2.45 * 0.975, 1.0])
    assert sparsifier.trainable["weight"].tolist() == [[True, True, True, True, False]]


@pytest.mark.parametrize("fused", [False, True])
def test_a_grad_scaler_changes_nothing(fused: bool) -> None:
    """A fused optimizer gets scaled gradients, and so must the decay be."""
    sparsifier = one_layer(
        [5.0, -4.0, 3.0, -2.0, 1.0], TopKAST(sparsity=0.6, exploration_decay=0.1, update_every=2), fused=fused
    )
    sparsifier.begin_epoch()
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    loss = (sparsifier.weights["weight"] * torch.tensor([[10.0, -20.0, -15.0, 5.0, 100.0]])).sum()
    scaler.scale(loss).backward()
    scaler.step(sparsifier.state.optimizer)
    assert stored(sparsifier) == pytest.approx([4.0, -2.0, 4.425, -2.45, 1.0])


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_it_is_the_training_of_a_network_with_two_masks(momentum: float) -> None:
    torch.manual_seed(0)
    inputs, targets = torch.randn(32, 20, dtype=torch.float64), torch.randn(32, 1, dtype=torch.float64)
    layer = nn.Linear(20, 1, dtype=torch.float64)
    full, bias = layer.weight.detach().clone(), layer.bias.detach().clone().requires_grad_()
    buffer, bias_optimizer = torch.zeros_like(full), torch.optim.SGD([bias], lr=0.05, momentum=momentum)

    def largest(count: int) -> Tensor:
        return Mask.top({"": full.abs()}, count)[""]

    learning = torch.ones_like(full, dtype=torch.bool)
    masks = []
    for number in range(20):
        if number % 5 == 0:  # written out: the two sets, and a past that begins with learning
            used, before = largest(4), learning
            learning = largest(10)
            buffer[~(learning & before)] = 0.0
            masks.append(used)
        weight = (full * used).requires_grad_()
        bias_optimizer.zero_grad()
        nn.functional.mse_loss(inputs @ weight.T + bias, targets).backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        gradient = weight.grad + 0.01 * full + torch.where(used, 0.0, 0.02 / 0.2 * full)
        buffer = momentum * buffer + gradient
        full = torch.where(learning, full - 0.05 * buffer, full)
        bias_optimizer.step()

    groups: list[dict[str, Any]] = [{"params": [layer.weight], "weight_decay": 0.01}, {"params": [layer.bias]}]
    optimizer = torch.optim.SGD(groups, lr=0.05, momentum=momentum)
    method = TopKAST(sparsity=0.8, backward_ratio=2.5, exploration_decay=0.02, update_every=5)
    sparsifier = hypersparse.attach(layer, optimizer, method, epochs=1)
    sparsifier.begin_epoch()
    for number in range(20):
        assert sparsifier.mask is not None
        if number % 5 == 0:
            assert torch.equal(sparsifier.mask["weight"], masks[number // 5])
        optimizer.zero_grad()
        nn.functional.mse_loss(layer(inputs), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    rest = unused(sparsifier).values[0]
    torch.testing.assert_close(layer.weight.detach() + rest, full, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(layer.bias, bias, rtol=1e-9, atol=1e-12)
    assert any(not torch.equal(one, two) for one, two in itertools.pairwise(masks))  # it has chosen others


def test_counts_are_exact_and_what_does_not_learn_keeps_its_bits() -> None:
    sparsifier = attached(TopKAST(sparsity=0.75, backward_ratio=1.5, update_every=1000, distribution="erk"), epochs=2)
    before = {name: weight.detach().clone() for name, weight in sparsifier.weights.items()}
    for _ in epochs_of(sparsifier):
        if sparsifier.total_epoch == 1:
            break
    assert sparsifier.mask is not None
    assert sparsifier.trainable is not None
    assert sparsifier.mask.kept == 27
    assert sparsifier.trainable.kept == 40
    assert (sparsifier.mask - sparsifier.trainable).kept == 0
    for (name, kept), rest in zip(sparsifier.trainable.items(), unused(sparsifier).values, strict=True):
        assert torch.equal(rest[~kept], before[name][~kept])


def test_weights_come_and_go_while_it_explores_and_stay_when_it_settles() -> None:
    sparsifier = attached(
        TopKAST(sparsity=0.75, backward_ratio=3.0, exploration_decay=0.0, update_every=2, update_until=0.5), epochs=8
    )
    masks: dict[str, list[Mask | None]] = {"explore": [], "settle": []}
    rates = []
    for epoch in epochs_of(sparsifier):
        masks[sparsifier.phase.name].append(sparsifier.mask)
        rates.append(sparsifier.lr)
        assert sparsifier.mask is not None
        assert sparsifier.mask.kept_by_layer() == {"0.weight": 18, "3.weight": 9}
        assert (sparsifier.state.memory.get(UnusedWeights) is not None) == (epoch < 4)
    assert any(one != masks["explore"][0] for one in masks["explore"])
    assert all(one == masks["explore"][-1] for one in masks["settle"])
    assert len(masks["settle"]) == 4
    assert sparsifier.trainable == sparsifier.mask


def test_one_schedule_goes_through_both_phases() -> None:
    plan = TopKAST(update_until=0.7).plan(10)
    assert [(phase.epochs, phase.lr.schedule_start, phase.lr.schedule_epochs) for phase in plan] == [
        (7, 0, 10),
        (3, 7, 10),
    ]
    assert [phase.name for phase in TopKAST().plan(10)] == ["explore"]
    assert [phase.epochs for phase in TopKAST(update_until=0.01).plan(10)] == [1, 9]


def test_a_state_that_was_saved_or_loaded_stays_as_it_was() -> None:
    first = one_layer([5.0, -4.0, 3.0, -2.0, 1.0], TopKAST(sparsity=0.6, backward_ratio=2.0, update_every=9))
    first.begin_epoch()
    saved = first.state_dict()
    other = one_layer([5.0, -4.0, 0.0, 0.0, 0.0], TopKAST(sparsity=0.6, backward_ratio=2.0, update_every=9))
    other.load_state_dict(saved)
    step(other, [1.0, 1.0, 1.0, 1.0, 1.0])
    assert stored(other)[2:] == pytest.approx([2.9, -2.1, 1.0], abs=1e-3)
    assert stored(first)[2:] == [3.0, -2.0, 1.0]
    step(first, [1.0, 1.0, 1.0, 1.0, 1.0])
    assert saved["memory"]["hypersparse.methods.topkast.UnusedWeights"]["values"][0].tolist() == [
        [0.0, 0.0, 3.0, -2.0, 1.0]
    ]


def test_fewer_cannot_learn_than_are_used() -> None:
    with pytest.raises(OptionError, match="`backward_ratio` should be greater than or equal to 1"):
        TopKAST(backward_ratio=0.5)
