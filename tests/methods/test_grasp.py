"""GraSP: which of four weights it keeps, its halves, and that only its copy is redrawn."""

import pytest
import torch
from torch import Tensor, nn

from hypersparse import GraSP, PrunableWeights, Task
from hypersparse.errors import OptionError
from hypersparse.methods.grasp import redrawn
from tests.methods.small import cross_entropy, perceptron, sequence_network, state_of, three_classes


def half_square(outputs: Tensor, labels: Tensor) -> Tensor:
    return outputs.square().sum() / 2


def four_weights() -> nn.Linear:
    model = nn.Linear(4, 4, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([1.0, -2.0, 3.0, 4.0])))
    return model


def test_four_weights() -> None:
    # Samples along the axes make the loss the sum of (x_i w_i)^2 / 2: H g = x_i^4 w_i, score x_i^4 w_i^2.
    inputs = torch.diag(torch.tensor([3.0, 1.0, 1.0, 0.5]))
    task = Task(half_square, [(inputs, torch.arange(4))])  # 81, 4, 9, 1
    options = {"per_class": 1, "temperature": 1.0, "redraw_linear": False}
    best = GraSP(sparsity=1 - 3 / 16, **options).mask(state_of(four_weights(), task))
    assert best["weight"].diagonal().tolist() == [True, True, True, False]
    assert best.kept == 3
    sharper = GraSP(sparsity=14 / 16, **options).mask(state_of(four_weights(), task))
    assert sharper["weight"].diagonal().tolist() == [True, False, True, False]
    authors = GraSP(sparsity=14 / 16, tie_rule="authors", **options).mask(state_of(four_weights(), task))
    assert authors["weight"].diagonal().tolist() == [True, True, True, False]  # the boundary stays: one more


def test_weights_that_hold_the_gradient_back_go_first() -> None:
    """The sign: a negative score is worse than none."""

    def saddle(outputs: Tensor, labels: Tensor) -> Tensor:
        x, y = outputs[:, 0].sum(), outputs[:, 1].sum()
        return x * y + y * y  # gradient (y, x + 2y), Hessian (0 1; 1 2), H g = (x + 2y, 2x + 5y)

    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor([1.0, -1.0])))  # x and y; w H g is -1 and 3, in both halves
    task = Task(saddle, [(torch.eye(2).repeat(2, 1), torch.arange(4))])
    method = GraSP(sparsity=0.5, data="batch", temperature=1.0, redraw_linear=False)
    assert method.mask(state_of(model, task))["weight"].tolist() == [[False, True], [False, True]]


def test_at_a_low_temperature_a_weight_that_makes_its_output_certain_counts_little() -> None:
    # Outputs (w, 0) of the first class's samples: the margin's slope is s(-w / T) / T, its curvature s(w / T) s(-w / T)
    # / T^2, the score 2 |w| times both. At T = 1 that is 0.0009 and 0.29; towards infinity it grows with |w|.
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-10.0, -1.0], [0.0, 0.0]]))
    task = Task(cross_entropy, [(torch.eye(2), torch.zeros(2, dtype=torch.int64))])
    kept = {
        temperature: GraSP(sparsity=0.75, data="batch", temperature=temperature, redraw_linear=False)
        .mask(state_of(model, task))["weight"]
        .tolist()
        for temperature in (1.0, 200.0)
    }
    assert kept == {1.0: [[False, True], [False, False]], 200.0: [[True, False], [False, False]]}


def test_samples_of_all_passes_count() -> None:
    inputs = torch.diag(torch.tensor([3.0, 1.0, 1.0, 0.5]))  # scores 81 and 4 by the first pass, 9 and 1 by the second
    task = Task(half_square, [(inputs, torch.zeros(4, dtype=torch.int64))])
    one, two = (
        GraSP(sparsity=14 / 16, per_class=2, passes=passes, temperature=1.0, redraw_linear=False).mask(
            state_of(four_weights(), task)
        )
        for passes in (1, 2)
    )
    assert one["weight"].diagonal().tolist() == [True, True, False, False]
    assert two["weight"].diagonal().tolist() == [True, False, True, False]


@pytest.mark.parametrize(("halves", "first"), [("sorted", [0, 0, 0, 0, 1, 1]), ("balanced", [0, 0, 1, 1, 2, 2])])
def test_halves(halves: str, first: list[int]) -> None:
    task = Task(cross_entropy, three_classes())
    method = GraSP(per_class=4, halves=halves)
    one, two = method.split(task, torch.device("cpu"))
    assert one[1].tolist() == first
    assert len(one[1]) == len(two[1]) == len(one[0]) == 6
    assert sorted([*one[1].tolist(), *two[1].tolist()]) == [0] * 4 + [1] * 4 + [2] * 4


def test_one_sample_of_a_class_cannot_be_in_both_halves() -> None:
    with pytest.raises(OptionError, match=r"needs two of each; `per_class` is 1\. Pass per_class=2"):
        GraSP(per_class=1, halves="balanced")
    one, two = GraSP(per_class=3, halves="balanced").split(Task(cross_entropy, three_classes()), torch.device("cpu"))
    assert set(one[1].tolist()) == set(two[1].tolist()) == {0, 1, 2}
    GraSP(per_class=1, halves="balanced", data="batch")  # which does not look at it


@pytest.mark.parametrize(("inputs", "got"), [(torch.ones(1, 6), "1"), ({"x": torch.ones(2, 6)}, "dict")])
def test_samples_that_cannot_be_cut_in_two_are_said(inputs: object, got: str) -> None:
    task = Task(cross_entropy, [(inputs, torch.zeros(2, dtype=torch.int64))])
    with pytest.raises(OptionError, match=rf"a tensor of two or more, \[N, ...\]; got {got}\."):
        GraSP(data="batch").mask(state_of(perceptron(), task))


def test_only_linear_layers_are_redrawn_and_only_for_the_score() -> None:
    model = sequence_network()
    weights = PrunableWeights(model)
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    values = redrawn(weights, torch.Generator().manual_seed(0))
    assert torch.equal(values["0.weight"], before["0.weight"])
    assert torch.equal(values["3.weight"], before["3.weight"])
    assert not torch.equal(values["6.weight"], before["6.weight"])
    assert all(torch.equal(weight, before[name]) for name, weight in weights.items())
    wide = PrunableWeights(nn.Linear(300, 100))
    assert float(redrawn(wide, torch.Generator())["weight"].std()) == pytest.approx((2 / 400) ** 0.5, rel=0.02)


def test_it_can_score_the_network_as_it_is() -> None:
    task = Task(cross_entropy, three_classes())
    as_drawn, redraw = (
        [GraSP(sparsity=0.8, redraw_linear=redraw).mask(state_of(perceptron(), task, seed=seed)) for seed in (0, 1)]
        for redraw in (False, True)
    )
    assert as_drawn[0] == as_drawn[1]
    assert redraw[0] != redraw[1]
