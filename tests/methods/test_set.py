"""SET: counts stay per layer, the smallest go, the places are random, and in the end the mask stays."""

from itertools import pairwise

import torch

from hypersparse import SET, Mask
from tests.methods.tiny import attached, copy_of, epochs_of


def test_counts_by_layer_never_change_and_a_fraction_moves_every_epoch() -> None:
    sparsifier = attached(SET(sparsity=0.5, drop_fraction=0.25, update_until=0.75), epochs=8)
    masks: list[Mask] = []
    for _ in epochs_of(sparsifier):
        assert sparsifier.mask is not None
        masks.append(sparsifier.mask)
    counts = masks[0].kept_by_layer()
    assert sum(counts.values()) == 54
    assert all(mask.kept_by_layer() == counts for mask in masks)
    moved = [(later - earlier).kept for earlier, later in pairwise(masks)]
    most = sum(int(0.25 * count) for count in counts.values())
    assert all(0 < count <= most for count in moved[:5])  # a dropped one may be drawn again
    assert moved[5:] == [0, 0]  # epoch 6 is at three quarters of the training


def test_layers_share_by_their_shapes_or_evenly() -> None:
    found = []
    for method in (SET(sparsity=0.75), SET(sparsity=0.75, distribution="uniform")):
        sparsifier = attached(method, epochs=1)
        method.draw_mask(sparsifier.state)
        assert sparsifier.mask is not None
        found.append(list(sparsifier.mask.kept_by_layer().values()))
    assert found == [[15, 12], [18, 9]]  # 6 + 12 to 12 + 3 of 27; a quarter of 72 and of 36


def test_nothing_moves_before_the_first_epoch() -> None:
    sparsifier = attached(SET(sparsity=0.5), epochs=2)
    SET(sparsity=0.5).draw_mask(sparsifier.state)
    drawn = sparsifier.mask
    SET(sparsity=0.5).move(sparsifier.state, until=2)
    assert sparsifier.mask is drawn


def test_the_smallest_go() -> None:
    sparsifier = attached(SET(sparsity=0.5, drop_fraction=0.25, update_until=1.0), epochs=2)
    before: Mask | None = None
    for _ in epochs_of(sparsifier):
        before = sparsifier.mask
        break
    trained = copy_of(sparsifier)
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    after = sparsifier.mask
    assert before is not None
    assert after is not None
    for name, count in before.kept_by_layer().items():
        gone = before[name] & ~after[name]
        largest_gone = trained[name].abs()[gone].max()
        smaller = (trained[name].abs()[before[name]] < largest_gone).sum()
        assert int(gone.sum()) <= int(0.25 * count)
        assert int(smaller) < int(0.25 * count)
        assert not sparsifier.weights[name].detach()[after[name] & ~before[name]].any()


def test_the_places_are_drawn_from_the_methods_generator() -> None:
    masks = []
    for seed in (0, 0, 1):
        sparsifier = attached(SET(sparsity=0.5), epochs=3)
        sparsifier.state.generator.manual_seed(seed)
        for _ in epochs_of(sparsifier):
            torch.rand(1)
        masks.append(sparsifier.mask)
    assert masks[0] == masks[1]
    assert masks[0] != masks[2]


def test_nothing_moves_in_a_frozen_layer_where_it_could_not_grow() -> None:
    sparsifier = attached(SET(sparsity=0.5, drop_fraction=0.5), epochs=4)
    first = sparsifier.weights["0.weight"].requires_grad_(False)
    masks: list[Mask] = []
    for _ in epochs_of(sparsifier):
        assert sparsifier.mask is not None
        masks.append(sparsifier.mask)
        assert int(first.count_nonzero()) == sparsifier.mask.kept_by_layer()["0.weight"]
    assert torch.equal(masks[0]["0.weight"], masks[-1]["0.weight"])
    assert not torch.equal(masks[0]["3.weight"], masks[-1]["3.weight"])
