"""AC/DC: turns, what a sparse one drops, what a dense one frees, and that it ends sparse."""

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import ACDC, Mask
from hypersparse.errors import OptionError
from hypersparse.sparsity.scores import magnitude
from tests.methods.tiny import attached, copy_of, epochs_of


def turns(method: ACDC, epochs: int) -> str:
    return "".join("s" if method.is_sparse(epoch, epochs) else "d" for epoch in range(epochs))


def test_the_papers_turns_over_100_epochs() -> None:
    assert turns(ACDC(), 100) == 10 * "d" + 6 * (5 * "s" + 5 * "d") + 5 * "s" + 10 * "d" + 15 * "s"


def test_the_authors_turns_for_cifar_over_200_epochs() -> None:
    method = ACDC(warmup=0.05, turn=0.1, final=0.15)
    assert turns(method, 200) == 10 * "d" + 4 * (20 * "s" + 20 * "d") + 30 * "s"


@pytest.mark.parametrize(("epochs", "expected"), [(1, "s"), (2, "ds"), (3, "sds"), (5, "sdsds"), (10, "dsdsdsddss")])
def test_short_trainings(epochs: int, expected: str) -> None:
    assert turns(ACDC(), epochs) == expected


def test_the_dense_beginning_and_the_sparse_end_fit_into_one_training() -> None:
    assert turns(ACDC(warmup=0.7, final=0.3), 10) == 7 * "d" + 3 * "s"
    with pytest.raises(OptionError, match=r"together at most 1; got 0\.6 and 0\.5\. Lower one of them\."):
        ACDC(warmup=0.6, final=0.5)


@pytest.mark.parametrize("epochs", range(1, 40))
def test_it_ends_sparse_after_a_dense_turn(epochs: int) -> None:
    found = turns(ACDC(warmup=0.2, turn=0.1, final=0.3), epochs)
    assert found.endswith("s")
    assert epochs == 1 or found.rstrip("s").endswith("d")


def test_a_sparse_turn_prunes_and_a_dense_one_frees() -> None:
    method = ACDC(sparsity=0.75, warmup=0.2, turn=0.2, final=0.4)
    assert turns(method, 10) == "ddssddssss"
    sparsifier = attached(method, epochs=10)
    kept, after = [], copy_of(sparsifier)
    first: Mask | None = None
    for epoch in epochs_of(sparsifier):
        assert sparsifier.mask is not None
        kept.append(sparsifier.mask.kept)
        if epoch in (2, 6):  # the first epoch of a sparse turn: the mask is of the dense network before it
            expected = Mask.top(magnitude({name: after[name] for name in sparsifier.weights}), 27)
            assert sparsifier.mask == expected
        if epoch in (3, 7):  # and stays throughout the turn
            assert sparsifier.mask == first
        first, after = sparsifier.mask, copy_of(sparsifier)
    assert kept == [108, 108, 27, 27, 108, 108, 27, 27, 27, 27]


def test_a_dense_turn_gives_frozen_weights_back() -> None:
    sparsifier = attached(ACDC(sparsity=0.75, warmup=0.25, turn=0.25, final=0.25), epochs=4)  # d s d s
    frozen, _ = sparsifier.weights.values()
    frozen.requires_grad_(False)
    before = frozen.clone()
    nonzero = []
    for epoch in epochs_of(sparsifier):
        nonzero.append(int(frozen.count_nonzero()))
        if epoch == 2:
            assert torch.equal(frozen, before)
    assert nonzero == [72, nonzero[1], 72, nonzero[3]]
    assert max(nonzero[1], nonzero[3]) <= 27


def test_adam_steps_no_further_in_a_dense_turn_than_before() -> None:
    layer = nn.Linear(10, 10, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3, weight_decay=0.0)
    method = ACDC(sparsity=0.5, warmup=0.0, turn=0.25, final=0.25)  # s d d s
    sparsifier = hypersparse.attach(layer, optimizer, method, epochs=4)
    longest = 0.0
    for _ in sparsifier.epochs():
        for _ in range(200):
            optimizer.zero_grad()
            layer.weight.sum().backward()  # type: ignore[no-untyped-call]
            before = layer.weight.detach().clone()
            optimizer.step()
            longest = max(longest, float((layer.weight.detach() - before).abs().max()))
    assert longest == pytest.approx(1e-3, rel=0.01)  # the gradient is the same throughout


def test_a_dense_turn_begins_with_freed_weights_at_zero_and_no_momentum() -> None:
    sparsifier = attached(ACDC(sparsity=0.75, warmup=0.0, turn=0.25, final=0.25), epochs=4)  # s d d s
    mask: Mask | None = None
    for epoch in epochs_of(sparsifier):
        mask = sparsifier.mask
        if epoch == 0:
            break
    assert mask is not None
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    remembered = sparsifier.state.optimizer.state
    momentum = torch.cat([remembered[weight]["momentum_buffer"].flatten() for weight in sparsifier.weights.values()])
    kept = mask.vector()
    assert not sparsifier.weights.vector().detach()[~kept].any()
    assert momentum.numel() == 108
    assert not momentum.any()
    assert sparsifier.mask == Mask.all_kept(sparsifier.weights)
