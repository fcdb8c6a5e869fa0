"""Weights and gradients in one stretch of memory are what they were."""

import pytest
import torch
from torch import Tensor, nn

from hypersparse.errors import ModelError
from hypersparse.sparsity.mask import Mask
from hypersparse.sparsity.weights import PrunableWeights
from hypersparse.training.flat_memory import FlatMemory


def test_flattened_weights_keep_values_shapes_and_strides() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 1), nn.Linear(4, 3, bias=False))
    model[0].to(memory_format=torch.channels_last)
    weights = PrunableWeights(model)
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    strides = [weight.stride() for weight in weights.values()]
    FlatMemory(weights)
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())
    assert [weight.stride() for weight in weights.values()] == strides
    assert len({weight.untyped_storage().data_ptr() for weight in weights.values()}) == 1
    assert sorted(weights.vector().tolist()) == sorted(torch.cat([t.flatten() for t in before.values()]).tolist())


@pytest.mark.parametrize("flat", [False, True])
def test_a_mask_on_flattened_weights_zeroes_the_same_ones(flat: bool) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Linear(4, 3)).to(memory_format=torch.channels_last)
    weights = PrunableWeights(model)
    mask = Mask.top({name: weight.abs() for name, weight in weights.items()}, 100)
    if flat:
        FlatMemory(weights)
    weights.set_mask_(mask)
    assert all(torch.equal(weight != 0, mask[name]) for name, weight in weights.items())
    with torch.no_grad():
        for weight in weights.values():
            weight.fill_(-torch.nan)
    weights.apply_mask_()
    assert all(torch.equal(weight.isnan(), mask[name]) for name, weight in weights.items())
    if not flat:
        FlatMemory(weights)  # after the mask was set: it still holds
        weights.apply_mask_()
        assert all(torch.equal(weight.isnan(), mask[name]) for name, weight in weights.items())


def test_weights_that_cannot_lie_in_one_memory_stay() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))  # 36 bytes: the second would not begin at 16
    weights = PrunableWeights(model)
    addresses = [weight.data_ptr() for weight in weights.values()]
    assert FlatMemory(weights).values is None
    assert [weight.data_ptr() for weight in weights.values()] == addresses


def penalty(vector: Tensor) -> Tensor:
    return vector.square().sum()


@pytest.mark.parametrize("aligned", [False, True])
def test_a_penaltys_gradient_is_added_to_what_is_there(aligned: bool) -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Linear(4, 3 if aligned else 5), nn.Linear(3, 4))
    weights = PrunableWeights(model.to(memory_format=torch.channels_last))
    if not aligned:
        weights["1.weight"].data = weights["1.weight"].data[:, :3]  # with gaps
    memory = FlatMemory(weights)
    assert (memory.values is not None) == aligned
    weights["1.weight"].requires_grad_(False)
    weights["0.weight"].grad = torch.ones_like(weights["0.weight"])

    def beside_it(vector: Tensor) -> Tensor:
        return penalty(vector) + (weights["2.weight"] * 5).sum()  # a penalty of one layer

    memory.add_gradient_of_(beside_it)
    assert torch.equal(weights["0.weight"].grad, 1 + 2 * weights["0.weight"])
    assert weights["1.weight"].grad is None
    assert weights["2.weight"].grad is not None
    assert torch.allclose(weights["2.weight"].grad, 5 + 2 * weights["2.weight"])


def test_a_penalty_that_does_not_read_the_vector_adds_nothing_to_it() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    FlatMemory(weights).add_gradient_of_(lambda _: weights["1.weight"].sum())
    assert weights["0.weight"].grad is None
    assert weights["1.weight"].grad is not None
    assert torch.equal(weights["1.weight"].grad, torch.ones(4, 4))


def test_the_optimizer_takes_a_gradient_once() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    memory = FlatMemory(weights)
    memory.defer_penalty_gradient_()
    memory.add_gradient_of_(penalty)  # the gradients do not lie in one memory: added at once
    assert memory.take_penalty_gradient() is None
    memory.copy_gradients_([torch.ones(4, 4), torch.ones(4, 4)])
    memory.add_gradient_of_(penalty)
    assert memory.gradients is not None
    assert torch.equal(memory.gradients, torch.ones(32))
    taken = memory.take_penalty_gradient()
    assert taken is not None
    assert memory.values is not None
    assert torch.equal(taken, 2 * memory.values)
    assert memory.take_penalty_gradient() is None


def test_gradients_cannot_be_copied_where_weights_could_not_be_moved() -> None:
    weights = PrunableWeights(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)))
    with pytest.raises(ModelError, match="lie in one memory only where the weights do"):
        FlatMemory(weights).copy_gradients_([torch.ones(3, 3)] * 2)


def test_gradients_in_a_vector_from_elsewhere_are_used_without_a_copy() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.Linear(4, 3)).to(memory_format=torch.channels_last)
    memory = FlatMemory(PrunableWeights(model))
    weights = list(memory.weights.values())
    memory.defer_penalty_gradient_()
    memory.copy_gradients_([torch.ones_like(weight) for weight in weights])
    memory.add_gradient_of_(penalty)
    given = torch.arange(300.0)
    memory.use_gradients_(given)
    assert memory.take_penalty_gradient() is None  # it was that of another step
    assert memory.gradients is given
    for weight, part in zip(weights, memory.split(given), strict=True):
        assert weight.grad is not None
        assert torch.equal(weight.grad, part)
        assert weight.grad.data_ptr() == part.data_ptr()
    parts = [weight.grad for weight in weights]
    memory.use_gradients_(given)
    assert all(weight.grad is part for weight, part in zip(weights, parts, strict=True))
    memory.copy_gradients_([torch.ones_like(weight) for weight in weights])  # as for a partial batch
    assert memory.gradients is given
    assert given.eq(1).all()
    weights[0].grad = None
    assert memory.gradients is None
