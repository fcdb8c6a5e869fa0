"""GMP: the cubic schedule, and masks that only shrink."""

from itertools import pairwise
from pathlib import Path

import pytest

from hypersparse import GMP, Machine, train
from hypersparse.errors import OptionError
from hypersparse.plurals import how_many
from hypersparse.sparsity.distributions import Distribution, keep_count
from hypersparse.storage.run_folder import RunFolder
from tests.methods.tiny import attached, epochs_of, train_epoch
from tests.training.small import small


def test_the_cubic_schedule_by_hand() -> None:
    method = GMP(sparsity=0.9, start=0.1, end=0.5)
    # From epoch 1 to 5 of 10: 100 + 900 (1 - p)³ of 1000 are kept, p = 0, 1/4, 1/2, 3/4, 1.
    assert [method.keep_in(epoch, 10, 1000) for epoch in range(10)] == [
        1000,
        1000,
        100 + 379,  # 900 * 27/64 = 379.7
        100 + 112,  # 900 * 1/8 = 112.5
        100 + 14,  # 900 * 1/64 = 14.1
        *[100] * 5,
    ]


@pytest.mark.parametrize("epochs", [1, 2, 3, 7])
@pytest.mark.parametrize(("start", "end"), [(0.0, 0.1), (0.5, 1.0), (0.9, 1.0), (0.0, 1.0)])
def test_the_last_epoch_is_as_sparse_as_asked(epochs: int, start: float, end: float) -> None:
    method = GMP(sparsity=0.75, start=start, end=end)
    counts = [method.keep_in(epoch, epochs, 108) for epoch in range(epochs)]
    assert counts[-1] == 27
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("distribution", ["global", "uniform", "erk", "sratio"])
def test_masks_shrink_to_the_counts_of_the_schedule_and_then_stay(distribution: Distribution) -> None:
    method = GMP(sparsity=0.75, start=0.0, end=0.5, distribution=distribution)
    sparsifier = attached(method, epochs=6)
    masks = []
    for _ in epochs_of(sparsifier):
        assert sparsifier.mask is not None
        masks.append(sparsifier.mask)
    assert [mask.kept for mask in masks] == [method.keep_in(epoch, 6, 108) for epoch in range(6)]
    assert [mask.kept for mask in masks] == [108, 51, 30, 27, 27, 27]  # 81 * 8/27 = 24, 81 * 1/27 = 3
    assert all((later - earlier).kept == 0 for earlier, later in pairwise(masks))


def steps_of(method: GMP, *, epochs: int, steps_per_epoch: int) -> list[int]:
    """The weights kept after each step of a training whose epochs are counted in steps."""
    sparsifier = attached(method, epochs=epochs, steps_per_epoch=steps_per_epoch)
    counts: list[int] = []
    while not sparsifier.done:
        train_epoch(sparsifier, lambda: counts.append(int(sparsifier.weights.vector().count_nonzero())))
    return counts


def test_a_schedule_in_steps_within_one_epoch() -> None:
    method = GMP(sparsity=0.75, start=0.0, end=0.5, update_every=2)
    # It ends after step 6 of 12: 27 + 81 * (1 - p)³ of 108 are kept, p = 1/3, 2/3, 1.
    assert steps_of(method, epochs=1, steps_per_epoch=12) == [108, 51, 51, 30, 30, *[27] * 7]


@pytest.mark.parametrize(("epochs", "steps"), [(1, 12), (12, 1), (2, 6)])
def test_only_the_count_of_all_steps_matters(epochs: int, steps: int) -> None:
    method = GMP(sparsity=0.75, start=0.25, end=1.0, update_every=3)
    # From step 3 to 9, the last multiple of 3 that leaves a step: p = 0, 1/2, 1.
    assert steps_of(method, epochs=epochs, steps_per_epoch=steps) == [*[108] * 5, *[37] * 3, *[27] * 4]


@pytest.mark.parametrize(("update_every", "dense_epochs"), [(None, 1), (2, 0)])
def test_our_own_loop_knows_its_steps(update_every: int | None, dense_epochs: int, tmp_path: Path) -> None:
    options = {} if update_every is None else {"update_every": update_every}
    recipe = small(method={"name": "gmp", "sparsity": 0.9, **options})
    train(recipe, 0, Machine(device="cpu"), tmp_path)
    log = RunFolder(tmp_path).log()
    final = keep_count(log[0]["total"], 0.9)
    # Two epochs of four steps: a schedule in steps ends after the fourth, one in epochs with the second epoch.
    assert [entry["kept"] > final for entry in log] == [True] * dense_epochs + [False] * (2 - dense_epochs)
    assert log[-1]["kept"] == final


@pytest.mark.filterwarnings("ignore:Phase train had 4 steps, too few")
def test_fewer_steps_than_lie_between_two_prunings_still_end_sparse() -> None:
    sparsifier = attached(GMP(sparsity=0.75, update_every=100), epochs=2, steps_per_epoch=2)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier)
    assert int(sparsifier.weights.vector().count_nonzero()) == 27


def test_counting_steps_needs_their_number() -> None:
    with pytest.raises(OptionError, match=r"GMP with these options counts steps; pass `steps_per_epoch`"):
        attached(GMP(update_every=2), epochs=4)


@pytest.mark.parametrize(("epochs", "options"), [(1, {}), (3, {"start": 0.0, "end": 0.1})])
def test_pruning_before_the_first_step_is_an_error(epochs: int, options: dict[str, float]) -> None:
    with pytest.raises(OptionError, match=rf"^In {how_many(epochs, 'epoch')} GMP would prune before the first"):
        attached(GMP(**options), epochs=epochs)


def test_an_end_before_the_start_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"from `start` to `end`, which is later; got 0\.6 and 0\.5"):
        GMP(start=0.6, end=0.5)
