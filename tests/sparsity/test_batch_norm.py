"""Statistics of batch norm, taken anew for a while."""

import pytest
import torch
from torch import nn

from hypersparse.sparsity.batch_norm import recompute_statistics

BATCHES = [torch.tensor([[1.0], [3.0]]), torch.tensor([[5.0], [11.0]])]  # means 2 and 8, variances 2 and 18


def network() -> nn.Sequential:
    model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout(0.5))
    model[0].running_mean.fill_(7.0)
    return model


def test_they_are_the_plain_mean_over_batches_and_come_back() -> None:
    model = network().eval()
    norm = model[0]
    addresses = [buffer.data_ptr() for buffer in norm.buffers()]

    def passes() -> None:
        assert model.training
        assert not torch.is_grad_enabled()
        for batch in BATCHES:
            model(batch)

    with recompute_statistics(model, passes):
        assert (norm.running_mean.item(), norm.running_var.item()) == (5.0, 10.0)
        assert not model.training
        assert norm.momentum == 0.1
    assert (norm.running_mean.item(), norm.running_var.item(), norm.num_batches_tracked.item()) == (7.0, 1.0, 0)
    assert [buffer.data_ptr() for buffer in norm.buffers()] == addresses


def test_they_come_back_after_an_error() -> None:
    model = network()

    def fail() -> None:
        model(BATCHES[0])
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"), recompute_statistics(model, fail):
        pass
    assert (model[0].running_mean.item(), model[0].momentum, model.training) == (7.0, 0.1, True)


def test_a_norm_without_statistics_is_left_alone() -> None:
    model = nn.Sequential(nn.BatchNorm1d(1, track_running_stats=False), nn.GroupNorm(1, 1))
    with recompute_statistics(model, lambda: model(BATCHES[0])):
        assert model[0].running_mean is None
