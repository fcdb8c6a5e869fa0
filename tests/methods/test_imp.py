"""IMP: how many are kept round by round, and that all of the rest goes back to the early epoch."""

import pytest
import torch

import hypersparse
from hypersparse import IMP, Mask, schedules
from hypersparse.errors import OptionError
from hypersparse.recipe import Recipe
from hypersparse.sparsity.scores import magnitude
from tests.methods.tiny import attached, copy_of, epochs_of, train_epoch


def test_the_papers_plan_is_860_epochs() -> None:
    plan = IMP(sparsity=0.98).plan(160)
    assert [phase.name for phase in plan] == ["begin", "dense", *(f"round {number}" for number in range(1, 6))]
    assert [phase.epochs for phase in plan] == [20, *[140] * 6]
    assert [phase.lr.schedule_start for phase in plan] == [0, *[20] * 6]
    assert {phase.lr.schedule_epochs for phase in plan} == {160}
    assert [phase.reset_optimizer for phase in plan] == [False, False, *[True] * 5]
    assert sum(phase.epochs for phase in plan) == 860
    assert [phase.cache_key for phase in plan[:2]] == [
        phase.cache_key for phase in IMP(sparsity=0.5, rounds=2).plan(160)[:2]
    ]
    assert plan[1].cache_key != IMP(rewind=0.25).plan(160)[1].cache_key
    tiny = hypersparse.IMP(rewind=0.1333).plan(300)  # as in the preset
    assert sum(phase.epochs for phase in tiny) == 1600


def test_geometric_rounds() -> None:
    # 0.1 ** (1 / 5) = 0.631 and its powers
    assert IMP(sparsity=0.9).keeps(1000) == [631, 398, 251, 158, 100]
    assert IMP(sparsity=0.9, rounds=1).keeps(1000) == [100]


def test_rounds_of_a_fifth_with_a_partial_last_one() -> None:
    assert IMP(sparsity=0.6, prune_fraction=0.2).keeps(1000) == [800, 640, 512, 410, 400]
    sparsities = (0.9, 0.95, 0.98, 0.99, 0.995, 0.998)
    rounds = [IMP(sparsity=sparsity, prune_fraction=0.2).count_of_rounds() for sparsity in sparsities]
    assert rounds == [11, 14, 18, 21, 24, 28]  # facts 3, row 17
    assert IMP(sparsity=0.2, prune_fraction=0.2).count_of_rounds() == 1
    assert IMP(sparsity=0.36, prune_fraction=0.2).count_of_rounds() == 2


def test_rounds_and_a_share_are_not_both_given() -> None:
    with pytest.raises(OptionError, match=r"got rounds=3 and prune_fraction=0\.2\. Leave one of them out\."):
        IMP(rounds=3, prune_fraction=0.2)


def test_a_recipe_with_a_share_is_read_back() -> None:
    recipe = Recipe(method=IMP(prune_fraction=0.2))  # its file says rounds = 5 too, as all that is left at its default
    assert Recipe.from_toml(recipe.to_toml()) == recipe


@pytest.mark.parametrize("rewind", [0.0, 0.4])
def test_every_round_prunes_what_is_left_and_rewinds_the_rest(rewind: float) -> None:
    sparsifier = attached(IMP(sparsity=0.75, rounds=3, rewind=rewind), epochs=5, lr=schedules.cosine)
    start = round(5 * rewind)
    early = copy_of(sparsifier)
    trained, before = early, Mask.all_kept(sparsifier.weights)
    entered, rates = [], []
    while sparsifier.begin_epoch():
        phase, mask = sparsifier.phase.name, sparsifier.mask
        if sparsifier.total_epoch == start:
            early = copy_of(sparsifier)
        if mask is not None and sparsifier.state.epoch == 0:
            assert mask == Mask.top(magnitude({name: trained[name] for name in mask}), mask.kept)
            assert (mask - before).kept == 0
            for name, tensor in copy_of(sparsifier).items():
                assert torch.equal(tensor, early[name] * mask[name] if name in mask else early[name])
            assert not sparsifier.state.optimizer.state
            entered.append((phase, mask.kept))
            before = mask
        rates.append(sparsifier.lr)
        train_epoch(sparsifier)
        trained = copy_of(sparsifier)
        sparsifier.finish_epoch()
    # 108 weights times 0.25 ** (1 / 3) = 0.63 and its square, then 27
    assert entered == [("round 1", 68), ("round 2", 43), ("round 3", 27)]
    assert sparsifier.state.memory.state_dict() == {}
    once = [0.05 * schedules.cosine(epoch / 5) for epoch in range(5)]
    assert rates == pytest.approx(once + 3 * once[start:])


def test_up_to_the_first_round_it_is_plain_training() -> None:
    plain = attached(hypersparse.Dense(), epochs=4, lr=schedules.cosine)
    for _ in epochs_of(plain):
        pass
    sparsifier = attached(IMP(rewind=0.5), epochs=4, lr=schedules.cosine)
    for epoch in epochs_of(sparsifier):
        if epoch == 3:
            break
    expected, found = copy_of(plain), copy_of(sparsifier)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
