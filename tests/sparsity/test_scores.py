"""Scores: numbers by hand, finite differences in float64, SynFlow's law, and that the model is left alone."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hypersparse import ModelError, OptionError, PrunableWeights
from hypersparse.sparsity import scores

cross_entropy = nn.functional.cross_entropy


class TwoWeights(nn.Module):
    """Two layers of two weights: y = c (a x1 + b x2), d (a x1 + b x2)."""

    def __init__(self, *weights: float) -> None:
        super().__init__()
        a, b, c, d = weights
        self.first, self.last = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([[a, b]]))
            self.last.weight.copy_(torch.tensor([[c], [d]]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs))  # type: ignore[no-any-return]


def summed(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs * labels).sum()


def conv_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 4), nn.Tanh(), nn.Linear(4, 3)
    ).double()


def two_batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    return [(torch.randn(6, 2, 5, generator=generator).double(), torch.arange(6) % 3) for _ in range(2)]


def flat(layers: dict[str, Tensor]) -> Tensor:
    return torch.cat([layer.flatten() for layer in layers.values()])


def along(weights: dict[str, Tensor], vector: Tensor) -> dict[str, Tensor]:
    pieces = torch.split(vector, [weight.numel() for weight in weights.values()])
    return {name: weight + piece.view_as(weight) for (name, weight), piece in zip(weights.items(), pieces, strict=True)}


def loss_with(model: nn.Module, weights: dict[str, Tensor], temperature: float = 1.0) -> float:
    """Computed without any of our code: the sum over the batches in training mode."""
    other = copy.deepcopy(model).train()
    other.load_state_dict({**other.state_dict(), **weights})
    with torch.no_grad():
        return sum(float(cross_entropy(other(inputs) / temperature, labels)) for inputs, labels in two_batches())


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in PrunableWeights(model).items()}


def test_snip_of_four_weights() -> None:
    # d/da = x1 (c + 3d), d/db = x2 (c + 3d), d/dc = a x1 + b x2, d/dd = 3 (a x1 + b x2), with x = (1, 2).
    model = TwoWeights(1.0, -2.0, 0.5, -1.0)
    found = scores.snip(
        model, PrunableWeights(model), [(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]]))], summed
    )
    assert found["first.weight"].tolist() == [[2.5, 10.0]]
    assert found["last.weight"].tolist() == [[1.5], [9.0]]


def test_grasp_of_four_weights() -> None:
    # The loss (c + 3d)(a + 2b) is bilinear. With s = c + 3d = -2.5, u = a + 2b = -3 the gradient is (s, 2s, u, 3u) and
    # the Hessian maps it to (10u, 20u, 5s, 15s): rows a and b see c and d, and the other way round.
    model = TwoWeights(1.0, -2.0, 0.5, -1.0)
    batch = (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]]))
    found = scores.grasp(model, PrunableWeights(model), [batch], summed, temperature=1.0)
    assert found["first.weight"].tolist() == [[-30.0, 120.0]]
    assert found["last.weight"].tolist() == [[-6.25], [37.5]]


def test_snip_is_the_finite_difference_of_the_loss() -> None:
    model, step = conv_network(), 1e-6
    weights = values(model)
    found = flat(scores.snip(model, weights, two_batches(), cross_entropy))
    for number, unit in enumerate(torch.eye(len(found), dtype=torch.float64)):
        up, down = (loss_with(model, along(weights, sign * step * unit)) for sign in (1, -1))
        slope = (up - down) / (2 * step)
        assert float(found[number]) == pytest.approx(abs(float(flat(weights)[number]) * slope), rel=1e-5, abs=1e-9)


def test_grasp_is_the_finite_difference_of_gradients() -> None:
    """H g is how the gradient changes along itself; here in the network's own gradients, at temperature 2."""
    model, step = conv_network(), 1e-5
    weights = values(model)
    found = flat(scores.grasp(model, weights, two_batches(), cross_entropy, temperature=2.0))

    def cooled(outputs: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(outputs / 2.0, labels)

    gradient = flat(scores.gradients(model, weights, two_batches(), cooled))
    up, down = (
        flat(scores.gradients(model, along(weights, sign * step * gradient), two_batches(), cooled)) for sign in (1, -1)
    )
    expected = flat(weights) * (up - down) / (2 * step)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-10)


def test_grasp_is_half_the_change_of_the_squared_gradient() -> None:
    """The same without our gradients: finite differences of finite differences of the loss."""
    model, step = TwoWeights(0.3, -0.7, 0.9, 0.4).double(), 1e-3
    weights = values(model)
    inputs, labels = torch.tensor([[1.0, 2.0], [-1.0, 0.5]]).double(), torch.tensor([0, 1])

    def loss(vector: Tensor) -> float:
        outputs = (inputs @ vector[:2]).outer(vector[2:]) / 200
        return float(cross_entropy(outputs, labels)) * 200  # which keeps the digits; the square below undoes it

    def squared_gradient(vector: Tensor) -> float:
        units = torch.eye(4, dtype=torch.float64) * step
        return sum(((loss(vector + unit) - loss(vector - unit)) / (2 * step)) ** 2 for unit in units) / 200**2

    found = flat(scores.grasp(model, weights, [(inputs, labels)], cross_entropy))
    vector = flat(weights)
    for number, unit in enumerate(torch.eye(4, dtype=torch.float64) * step):
        slope = (squared_gradient(vector + unit) - squared_gradient(vector - unit)) / (2 * step)
        assert float(found[number]) == pytest.approx(float(vector[number]) * slope / 2, rel=1e-3)


def test_batches_are_summed() -> None:
    model = conv_network()
    weights = values(model)
    one, two = ([batch] for batch in two_batches())
    both = scores.gradients(model, weights, [*one, *two], cross_entropy)
    apart = [scores.gradients(model, weights, part, cross_entropy) for part in (one, two)]
    torch.testing.assert_close(flat(both), flat(apart[0]) + flat(apart[1]))


def test_synflow_of_four_weights() -> None:
    # All positive, ones in: (|c| + |d|)(|a| + |b|); a's part is |a| (|c| + |d|).
    model = TwoWeights(1.0, -2.0, 0.5, -1.0)
    found = scores.synflow(model, PrunableWeights(model), torch.zeros(7, 2))
    assert found["first.weight"].tolist() == [[1.5, 3.0]]
    assert found["last.weight"].tolist() == [[1.5], [3.0]]


def test_what_flows_through_a_layer_flows_through_every_layer() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 10, bias=False),
        nn.ReLU(),
        nn.Linear(10, 5, bias=False),
    )
    found = scores.synflow(model, PrunableWeights(model), torch.zeros(1, 3, 8, 8))
    through = torch.stack([layer.sum() for layer in found.values()])
    torch.testing.assert_close(through, through[0].expand(4), rtol=1e-12, atol=0)
    assert float(through[0]) > 0
    # And through every unit: what comes into one goes out of it.
    into, out_of = found["7.weight"].sum(dim=1), found["9.weight"].sum(dim=0)
    torch.testing.assert_close(into, out_of, rtol=1e-12, atol=0)


def test_synflow_where_float32_would_overflow() -> None:
    model = nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(50)))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1.0)
    assert torch.finfo(torch.float32).max < 10.0**51
    found = scores.synflow(model, PrunableWeights(model), torch.zeros(1, 10))
    torch.testing.assert_close(float(flat(found)[0]), 1e49)
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(1e7)
    with pytest.raises(ModelError, match="overflows even float64"):
        scores.synflow(model, PrunableWeights(model), torch.zeros(1, 10))


@pytest.mark.parametrize("inputs", [torch.zeros(1, 4, dtype=torch.long), torch.zeros(0, 4), [1.0]])
def test_synflow_needs_numbers(inputs: object) -> None:
    with pytest.raises(OptionError, match="tensor of floats"):
        scores.synflow(nn.Linear(4, 2), PrunableWeights(nn.Linear(4, 2)), inputs)  # type: ignore[arg-type]


Score = Callable[[nn.Module, PrunableWeights], object]
WITH_DATA: dict[str, Score] = {
    "snip": lambda model, weights: scores.snip(model, weights, two_batches(), cross_entropy),
    "grasp": lambda model, weights: scores.grasp(model, weights, two_batches(), cross_entropy),
    "synflow": lambda model, weights: scores.synflow(model, weights, two_batches()[0][0]),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", WITH_DATA)
def test_the_model_is_left_as_it_was(name: str, training: bool) -> None:
    model = nn.Sequential(conv_network(), nn.Dropout(0.5)).double().train(training)
    model[0][1].eval()  # a frozen norm
    cross_entropy(model(two_batches()[0][0]), two_batches()[0][1]).backward()  # type: ignore[no-untyped-call]
    parameters = dict(model.named_parameters())
    grads = {key: (parameter.grad, parameter.grad.clone()) for key, parameter in parameters.items()}  # type: ignore[union-attr]
    tensors = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    modes, random = [module.training for module in model.modules()], torch.get_rng_state()
    with torch.no_grad():
        WITH_DATA[name](model, PrunableWeights(model))
    assert all(torch.equal(tensor, tensors[key]) for key, tensor in model.state_dict().items())
    for key, parameter in parameters.items():
        assert parameter.grad is grads[key][0]
        assert torch.equal(grads[key][0], grads[key][1])  # type: ignore[arg-type]
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)


def test_grasp_differentiates_attention_twice() -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.out = nn.Linear(4, 12), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            queries, keys, values = self.inside(inputs).unsqueeze(1).chunk(3, dim=-1)
            attended = nn.functional.scaled_dot_product_attention(queries, keys, values)
            return self.out(attended.squeeze(1).mean(1))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model, batch = Attention(), (torch.randn(6, 5, 4), torch.arange(6) % 3)
    found = scores.grasp(model, PrunableWeights(model), [batch], cross_entropy, temperature=1.0)
    assert all(score.isfinite().all() and score.any() for score in found.values())


def test_frozen_and_unused_weights_have_scores_too() -> None:
    model = TwoWeights(1.0, -2.0, 0.5, -1.0)
    model.spare = nn.Linear(2, 2)
    model.first.weight.requires_grad_(False)
    batch = (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]]))
    found = scores.snip(model, PrunableWeights(model), [batch], summed)
    assert found["first.weight"].tolist() == [[2.5, 10.0]]
    assert found["spare.weight"].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert not model.first.weight.requires_grad


def test_without_data_there_is_no_score() -> None:
    model = nn.Linear(2, 2)
    for score in (scores.snip, scores.grasp):
        with pytest.raises(OptionError, match="at least one batch"):
            score(model, PrunableWeights(model), [], cross_entropy)


def test_a_loss_for_each_sample_is_said() -> None:
    model = conv_network()
    each = nn.CrossEntropyLoss(reduction="none")
    for score in (scores.snip, scores.grasp):
        with pytest.raises(OptionError, match=r"one number for a batch; got \[6\]\. Let it take the mean"):
            score(model, PrunableWeights(model), two_batches(), each)


def test_a_network_that_cannot_be_copied_is_said() -> None:
    model = conv_network()
    model.kept = model(two_batches()[0][0])  # type: ignore[assignment]
    with pytest.raises(ModelError, match="Sequential is scored as a copy, and cannot be copied"):
        scores.snip(model, PrunableWeights(model), two_batches(), cross_entropy)


def test_chance_is_drawn_from_the_generator() -> None:
    weights = {"a": torch.zeros(3, 2), "b": torch.zeros(4)}
    random = torch.get_rng_state()
    one, same, other = (scores.random_scores(weights, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(flat(one), flat(same))
    assert not torch.equal(flat(one), flat(other))
    assert torch.equal(torch.get_rng_state(), random)
    assert one["a"].shape == (3, 2)
