"""LTH: what is kept is what training made large, and it gets its first values back."""

import torch

from hypersparse import LTH, Mask, TrainingState
from hypersparse.methods.snapshot import NetworkCopy
from hypersparse.sparsity.scores import magnitude
from tests.methods.tiny import STEPS, attached, copy_of, epochs_of


def test_the_plan() -> None:
    dense, train = LTH().plan(160)
    assert [(phase.name, phase.epochs) for phase in (dense, train)] == [("dense", 160), ("train", 160)]
    assert dense.cache_key == LTH(sparsity=0.5).plan(160)[0].cache_key != LTH().plan(80)[0].cache_key
    assert train.reset_optimizer
    assert train.cache_key is None
    assert not dense.pretraining


def test_the_largest_trained_weights_get_their_first_values_back_bit_for_bit() -> None:
    sparsifier = attached(LTH(sparsity=0.75), epochs=2)
    initial = copy_of(sparsifier)
    trained = initial
    for epoch in epochs_of(sparsifier):
        if epoch == 1:
            trained = copy_of(sparsifier)
            break
    mask = Mask.top(magnitude({name: trained[name] for name in sparsifier.weights}), 27)  # of 108, over both layers
    sparsifier.finish_epoch()
    assert sparsifier.mask is None  # the end of the dense training is the same for all sparsities
    sparsifier.begin_epoch()
    assert sparsifier.phase.name == "train"
    assert sparsifier.mask == mask
    for name, tensor in copy_of(sparsifier).items():
        assert torch.equal(tensor, initial[name] * mask[name] if name in mask else initial[name])
    assert int(trained["1.num_batches_tracked"]) == 2 * STEPS  # which is 0 again
    assert sparsifier.state.memory.state_dict() == {}
    assert not sparsifier.state.optimizer.state


def test_the_first_values_are_kept_on_the_cpu_and_do_not_move() -> None:
    sparsifier = attached(LTH(sparsity=0.75), epochs=1)
    initial = copy_of(sparsifier)
    for _ in epochs_of(sparsifier):
        break
    kept = sparsifier.state.memory.get(NetworkCopy)
    assert kept is not None
    found = kept.tensors
    assert all(torch.equal(found[name], initial[name]) and found[name].device.type == "cpu" for name in initial)


def test_a_trained_network_given_to_it_is_where_it_starts() -> None:
    assert [phase.name for phase in attached(LTH(), epochs=1, trained=True).plan] == ["dense", "train"]


def test_equal_weights_are_counted_exactly() -> None:
    sparsifier = attached(LTH(sparsity=0.75), epochs=1)
    method, state = LTH(sparsity=0.75), sparsifier.state
    method.remember(state)
    fill_(state, 1.0)
    method.prune_and_reset(state)
    assert sparsifier.mask is not None
    assert sparsifier.mask.kept == 27


def fill_(state: TrainingState, value: float) -> None:
    with torch.no_grad():
        for weight in state.weights.values():
            weight.fill_(value)
