"""Averaged weights, by hand."""

import pytest
import torch
from torch import nn

import hypersparse
from hypersparse import ART, Dense, LoopError, Magnitude, OptionError, Task, Techniques
from hypersparse.techniques.averaging import Averages, reestimate_
from tests.techniques.one_layer import mask, one_layer, step, values


def average(sparsifier: hypersparse.Sparsifier) -> list[float]:
    with sparsifier.averaged():
        return values(sparsifier)


def test_a_plain_mean_first_then_an_exponential_one() -> None:
    sparsifier = one_layer([1.0], ema=0.5)
    assert step(sparsifier, [10.0]) == pytest.approx([0.0], abs=1e-6)
    assert average(sparsifier) == pytest.approx([0.0], abs=1e-6)  # of one step
    assert step(sparsifier, [-20.0]) == pytest.approx([2.0])
    assert average(sparsifier) == pytest.approx([1.0])  # the mean of 0 and 2
    assert step(sparsifier, [-30.0]) == pytest.approx([5.0])
    assert average(sparsifier) == pytest.approx([3.0])  # half of 1 and 5; a mean of three would be 7 / 3
    assert values(sparsifier) == pytest.approx([5.0])  # the weights are back


def test_what_the_mask_drops_is_exactly_zero_in_the_average() -> None:
    sparsifier = one_layer([1.0, 1.0], ema=0.5)
    step(sparsifier, [0.0, 0.0])
    mask(sparsifier, [True, False])
    step(sparsifier, [10.0, 10.0])
    held = sparsifier.state.memory.get(Averages)
    assert held is not None
    assert held.tensors[0].tolist() == [[0.5, 0.0]]
    assert average(sparsifier) == [0.5, 0.0]


def test_the_average_is_the_result() -> None:
    sparsifier = one_layer([0.0], ema=0.5)
    step(sparsifier, [-10.0])
    step(sparsifier, [-20.0])
    sparsifier.finish_epoch()
    assert values(sparsifier) == pytest.approx([3.0])  # an average is for scores until the plan ends
    for _ in range(2):
        sparsifier.begin_epoch()
        step(sparsifier, [0.0])
        sparsifier.finish_epoch()
    assert sparsifier.done
    assert values(sparsifier) == pytest.approx([2.75])  # (1 + 3) / 2 = 2, then halfway to 3 twice
    assert sparsifier.state.memory.tensors() == []


def test_a_phase_after_which_training_begins_anew_hands_its_average_on() -> None:
    sparsifier = one_layer([4.0, 1.0], method=Magnitude(sparsity=0.5, dense_epochs=1), ema=0.5)
    step(sparsifier, [0.0, 0.0])
    assert step(sparsifier, [40.0, 0.0]) == pytest.approx([0.0, 1.0], abs=1e-6)
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()  # prunes: 2 is larger than 1, 0 would not have been
    assert values(sparsifier) == pytest.approx([2.0, 0.0])


def test_the_last_phase_alone() -> None:
    method = Magnitude(sparsity=0.5, dense_epochs=1)
    sparsifier = one_layer([4.0, 1.0], method=method, ema=0.5, ema_phases="last")
    assert sparsifier.phase.rules.around_step is None
    step(sparsifier, [0.0, 0.0])
    sparsifier.finish_epoch()
    sparsifier.begin_epoch()
    assert sparsifier.phase.rules.around_step is not None


def test_batch_norms_are_reestimated_and_come_back() -> None:
    inputs = torch.tensor([[1.0], [3.0], [5.0], [9.0]])
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    with torch.no_grad():
        model[0].weight.fill_(2.0)
    task = Task(nn.functional.mse_loss, [(inputs[:2], inputs[:2]), (inputs[2:], inputs[2:])])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(model, optimizer, Dense(), epochs=1, task=task, techniques=Techniques(ema=0.5))
    sparsifier.begin_epoch()
    norm = model[1]
    with sparsifier.averaged():
        assert float(norm.running_mean) == pytest.approx(9.0)  # of 2, 6, 10 and 18
        assert float(norm.running_var) == pytest.approx((8.0 + 32.0) / 2)  # the mean of two batches' variances
    assert (float(norm.running_mean), float(norm.running_var), norm.momentum) == (0.0, 1.0, 0.1)
    assert model.training
    reestimate_(sparsifier.state, images=2)
    assert float(norm.running_mean) == pytest.approx(4.0)  # of the first batch alone


def test_what_cannot_work_is_said() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sparsifier = hypersparse.attach(model, optimizer, Dense(), epochs=1, techniques=Techniques(ema=0.9))
    with pytest.raises(LoopError, match="re-estimated on training images; pass `task=Task"):
        sparsifier.begin_epoch()
    with pytest.raises(OptionError, match="`ema_images` belongs to the technique `ema`, which is off"):
        Techniques(ema_images=10)
    assert [phase.cache_key for phase in ART().plan(1)][2] is None
