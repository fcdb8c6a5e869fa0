"""Penalties against their definitions, and in the two ways they enter a step."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import hypersparse
from hypersparse import ART, Task
from hypersparse.methods.base import TrainingState
from hypersparse.sparsity import penalties
from hypersparse.sparsity.penalties import SHARPEST_BEND
from hypersparse.sparsity.weights import PrunableWeights


def defined(vector: Tensor, keep: int) -> Tensor:
    """The loss as the authors write it (facts 2.1): a full sort, s and A without gradient."""
    a = vector.abs()
    s = SHARPEST_BEND / a.detach().sort().values[vector.numel() - keep]
    total = torch.tanh(s * a).sum()
    return (a * total / total.detach() - a).sum()


def grad_of(penalty: Callable[[Tensor], Tensor], vector: Tensor) -> Tensor:
    leaf = vector.detach().clone().requires_grad_()
    penalty(leaf).backward()  # type: ignore[no-untyped-call]
    assert leaf.grad is not None
    return leaf.grad


# The HyperSparse penalty


@given(seed=st.integers(0, 2**31), size=st.integers(1, 60), data=st.data())
def test_gradient_is_that_of_the_definition(seed: int, size: int, data: st.DataObject) -> None:
    keep = data.draw(st.integers(1, size))
    vector = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    expected = grad_of(lambda v: defined(v, keep), vector)
    near = {"rtol": 1e-10, "atol": 1e-10}  # far out 1 - tanh^2 is rounded to a few digits, in both
    torch.testing.assert_close(grad_of(lambda v: penalties.hypersparse(v, keep), vector), expected, **near)
    torch.testing.assert_close(penalties.hypersparse_grad(vector, keep), expected, **near)


def test_the_value_is_zero_as_in_the_definition() -> None:
    vector = torch.randn(1000, dtype=torch.float64)
    penalty = partial(penalties.hypersparse, keep=50)
    assert penalty(vector).item() == 0.0
    assert grad_of(penalty, vector).all()
    assert abs(defined(vector, 50).item()) < 1e-9 * vector.abs().sum()


@pytest.mark.parametrize("factor", [1e-3, 0.5, 40.0])
def test_scaling_the_weights_leaves_the_gradient(factor: float) -> None:
    vector = torch.randn(200, dtype=torch.float64)
    torch.testing.assert_close(
        penalties.hypersparse_grad(factor * vector, 20), penalties.hypersparse_grad(vector, 20), rtol=1e-12, atol=0
    )


def test_two_thirds_of_the_supremum_at_the_smallest_weight_that_stays() -> None:
    vector = torch.randn(500, dtype=torch.float64)
    keep = 50
    at_kappa = vector.abs().argsort(descending=True)[keep - 1]
    magnitude = vector.abs()
    s = SHARPEST_BEND / magnitude[at_kappa]
    supremum = s * magnitude.sum() / torch.tanh(s * magnitude).sum()
    grad = penalties.hypersparse_grad(vector, keep).abs()
    assert grad[at_kappa].item() == pytest.approx(2 / 3 * supremum.item(), rel=1e-12)
    assert supremum >= 1
    assert grad.max() <= supremum


@given(seed=st.integers(0, 2**31), keep=st.integers(1, 40))
def test_small_weights_are_pressed_at_least_as_hard_as_by_l1_and_large_ones_less(seed: int, keep: int) -> None:
    vector = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    smallest = vector.abs().argmin()
    vector[smallest] = 1e-9
    grad = penalties.hypersparse_grad(vector, keep)
    assert grad[smallest] >= 1 - 1e-6  # tanh x <= x
    by_size = grad.abs()[vector.abs().argsort()]
    assert (by_size.diff() <= 0).all()
    assert (grad * vector >= 0).all()


def test_the_factor_s_is_there() -> None:
    # One weight of 0.1, kept: s = 6.58, sum|w| / sum tanh = 0.1 * sqrt(3), 1 - tanh^2 = 2/3.
    grad = penalties.hypersparse_grad(torch.tensor([0.1], dtype=torch.float64), 1)
    assert grad.item() == pytest.approx(SHARPEST_BEND * 2 / 3 * 3**0.5, rel=1e-12)


def test_the_constant_is_the_papers() -> None:
    assert round(SHARPEST_BEND, 4) == 0.6585


def test_zero_weights_get_no_gradient() -> None:
    vector = torch.tensor([0.0, 0.3, -0.0, -0.8])
    grad = penalties.hypersparse_grad(vector, 1)
    assert grad[[0, 2]].tolist() == [0.0, 0.0]
    assert (grad[[1, 3]] != 0).all()


@pytest.mark.parametrize("values", [[0.0] * 4, [0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 1e-40, -1.0], [0.0, 3e38, 3e38, -3e38]])
def test_fewer_weights_than_are_kept_give_a_finite_gradient(values: list[float]) -> None:
    vector = torch.tensor(values)
    assert penalties.hypersparse_grad(vector, 4).isfinite().all()
    assert grad_of(lambda v: penalties.hypersparse(v, 4), vector).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_weights_are_computed_in_float32(dtype: torch.dtype) -> None:
    vector = torch.randn(3000).to(dtype)
    wide = vector.float()
    for penalty in (lambda v: penalties.hypersparse(v, 300), penalties.l1, penalties.l2):
        assert penalty(vector).dtype == torch.float32
        assert penalty(vector) == penalty(wide)
        grad = grad_of(penalty, vector)
        assert grad.dtype == dtype
        assert torch.equal(grad, grad_of(penalty, wide).to(dtype))


def test_the_strength_is_applied_before_rounding_to_float16() -> None:
    # 1e5 for the small weight is more than float16 can hold; times the strength it is not.
    vector = torch.tensor([1e-6] * 2 + [60_000.0] * 8).half()
    alone = penalties.hypersparse_grad(vector.float(), 9)
    assert alone.max() > 65_504
    grad = grad_of(lambda v: 1e-6 * penalties.hypersparse(v, 9), vector)
    assert grad.isfinite().all()
    torch.testing.assert_close(grad.float(), 1e-6 * alone, rtol=1e-3, atol=1e-7)


# L1 and L2


def test_l1_and_l2() -> None:
    vector = torch.tensor([1.0, -2.0, 0.0])
    assert (penalties.l1(vector).item(), penalties.l2(vector).item()) == (3.0, 5.0)
    assert grad_of(penalties.l1, vector).tolist() == [1.0, -1.0, 0.0]
    assert grad_of(penalties.l2, vector).tolist() == [2.0, -4.0, 0.0]


# In a step


@pytest.mark.parametrize("penalty", ["hypersparse", "l1", "l2"])
def test_nothing_in_a_penalty_asks_for_a_number(penalty: str) -> None:
    method = ART(sparsity=0.7, penalty=penalty)
    with FakeTensorMode():  # fails on .item(), int(tensor), if tensor
        model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = PrunableWeights(model)
        value = method.weighted_penalty(TrainingState(model, optimizer, weights), weights.vector())
        value.backward()  # type: ignore[no-untyped-call]
        assert value.shape == ()
        for weight in weights.values():
            assert weight.grad is not None
            assert weight.grad.shape == weight.shape


def both_ways(penalty: str, *, scaled: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Gradients of a step with the penalty as a term of the loss, and with it added by the optimizer's step."""
    inputs, labels = torch.randn(6, 4), torch.randint(3, (6,))
    found = []
    for mode in ("loss", "gradient"):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        method = ART(sparsity=0.8, penalty=penalty, pretrain_epochs=0, strength=0.3)
        task = Task(nn.functional.cross_entropy, [(inputs, labels)])
        sparsifier = hypersparse.attach(model, optimizer, method, epochs=1, task=task, penalty=mode)
        scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=1024.0)
        assert sparsifier.begin_epoch()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        scaler.scale(loss + sparsifier.penalty() if mode == "loss" else loss).backward()
        scaler.step(optimizer)
        found.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    return found[0], found[1]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("penalty", ["hypersparse", "l1", "l2"])
def test_a_term_in_the_loss_and_a_gradient_added_by_the_step_agree(penalty: str, scaled: bool) -> None:
    in_loss, later = both_ways(penalty, scaled=scaled)
    assert len(in_loss) == 4
    for first, second in zip(in_loss, later, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-7)


def test_the_penalty_is_not_lost_on_the_way() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    torch.manual_seed(0)
    inputs, labels = torch.randn(6, 4), torch.randint(3, (6,))
    torch.manual_seed(0)
    with_penalty, _ = both_ways("l1", scaled=True)
    nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    assert model[0].weight.grad is not None
    torch.testing.assert_close(
        with_penalty[0] - model[0].weight.grad, 0.3 * model[0].weight.sign(), rtol=1e-4, atol=1e-6
    )
