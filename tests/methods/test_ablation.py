from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import hypersparse
from hypersparse import IMP, Ablation, Mask, Method, OptionError, Phase, Sparsifier, TopKAST, TrainingState
from hypersparse.methods.ablation import ablated
from hypersparse.methods.phase_plan import plan_of
from hypersparse.options import options


def keep_largest(state: TrainingState) -> None:
    state.weights.set_mask_(Mask.top({name: weight.detach().abs() for name, weight in state.weights.items()}, 12))


@options
class TrainAndPrune(Method):
    """Two dense epochs, then prune."""

    name: ClassVar[str] = "train_and_prune"
    citation: ClassVar[str] = "none"

    def plan(self, epochs: int) -> Sequence[Phase]:
        dense = Phase("dense", epochs=2, cache_key="dense", pretraining=True)
        return [dense, Phase("sparse", epochs=epochs, on_enter=keep_largest, cache_key="sparse")]


@options
class AtOnce(Method):
    """Prune before training."""

    name: ClassVar[str] = "concurrency"
    citation: ClassVar[str] = "none"

    def plan(self, epochs: int) -> Sequence[Phase]:
        return [Phase("train", epochs=epochs, on_enter=keep_largest)]


@options
class Moving(Method):
    """Prune at the start of every epoch."""

    name: ClassVar[str] = "moving"
    citation: ClassVar[str] = "none"

    def plan(self, epochs: int) -> Sequence[Phase]:
        return [Phase("train", epochs=epochs, on_epoch_start=keep_largest)]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


class Run:
    """A few steps on noise; what the network was before each epoch, and after entering the last phase."""

    def __init__(self, method: Method, ablation: Ablation | None, *, seed: int = 0) -> None:
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(seed)
        self.sparsifier = hypersparse.attach(
            self.model, self.optimizer, method, epochs=2, ablation=ablation, on_collapse="ignore"
        )
        self.before = [self.tensors()]
        self.entered: dict[str, Tensor] = {}
        self.mask: Mask | None = None

    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def train(self, epochs: int = 100) -> "Run":
        generator = torch.Generator().manual_seed(1)
        for _ in range(epochs):
            if not self.sparsifier.begin_epoch():
                break
            if self.sparsifier.phase is self.sparsifier.plan[-1] and self.sparsifier.state.epoch == 0:
                self.entered, self.mask = self.tensors(), self.sparsifier.mask
            for _ in range(3):
                inputs = torch.randn(8, 6, generator=generator)
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(inputs), torch.arange(8) % 4).backward()
                self.optimizer.step()
            self.sparsifier.finish_epoch()
            self.before.append(self.tensors())
        return self


def weights_of(tensors: dict[str, Tensor], mask: Mask) -> dict[str, Tensor]:
    return {name: tensors[name] * mask[name] for name in mask}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture
def plain() -> Run:
    return Run(TrainAndPrune(), None).train()


def run_with(name: str, *, epoch: int = 0, method: Method | None = None) -> tuple[Run, Mask]:
    ablation = Ablation(name=name, rewind_epoch=epoch)  # type: ignore[arg-type]
    run = Run(method or TrainAndPrune(), ablation).train()
    assert run.mask is not None
    return run, run.mask


def test_shuffle_moves_weights_within_their_layers(plain: Run) -> None:
    run, mask = run_with("shuffle")
    assert plain.mask is not None
    assert mask != plain.mask
    assert mask.kept_by_layer() == plain.mask.kept_by_layer()
    for name in mask:
        assert torch.equal(run.entered[name].flatten().sort().values, plain.entered[name].flatten().sort().values)
        assert torch.equal(run.entered[name] != 0, mask[name])
    assert torch.equal(run.entered["1.running_mean"], plain.entered["1.running_mean"])


def test_redraw_keeps_the_mask_and_draws_initial_weights(plain: Run) -> None:
    run, mask = run_with("redraw")
    assert mask == plain.mask
    for name in mask:
        drawn, initial = run.entered[name][mask[name]], plain.before[0][name]
        assert not torch.equal(drawn, initial[mask[name]])
        assert torch.isin(drawn, initial).all()
    for name in ("1.weight", "1.running_mean", "3.bias", "1.num_batches_tracked"):
        assert torch.equal(run.entered[name], plain.before[0][name])


def test_positions_are_drawn_and_have_their_initial_weights(plain: Run) -> None:
    run, mask = run_with("positions")
    assert plain.mask is not None
    assert mask != plain.mask
    assert mask.kept_by_layer() == plain.mask.kept_by_layer()
    assert same(weights_of(run.entered, mask), weights_of(plain.before[0], mask))


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_rewind_goes_back_to_the_epoch_it_is_told(plain: Run, epoch: int) -> None:
    run, mask = run_with("rewind", epoch=epoch)
    assert mask == plain.mask
    expected = {**plain.before[epoch], **weights_of(plain.before[epoch], mask)}
    assert same(run.entered, expected)
    assert run.sparsifier.state.memory.state_dict() == {}


@pytest.mark.parametrize("name", ["shuffle", "redraw", "positions", "rewind"])
def test_methods_that_prune_at_once_are_ablated_at_once(name: str) -> None:
    run, mask = run_with(name, method=AtOnce())
    assert run.sparsifier.total_epoch == 2
    assert mask.kept == 12
    assert run.sparsifier.state.memory.state_dict() == {}
    if name == "rewind":
        assert same(weights_of(run.entered, mask), weights_of(run.before[0], mask))


def test_a_mask_that_moves_to_the_end_is_ablated_afterwards() -> None:
    run, mask = run_with("shuffle", method=Moving())
    assert [phase.name for phase in run.sparsifier.plan] == ["train", "retrain"]
    assert run.sparsifier.total_epoch == 4
    assert run.sparsifier.mask == mask


def test_a_mask_that_is_chosen_anew_between_steps_is_ablated_afterwards() -> None:
    for method, names in (
        (TopKAST(), ["explore", "retrain"]),
        (TopKAST(update_until=0.5), ["explore", "settle", "retrain"]),
    ):
        plan = plan_of(method, epochs=4, ablation=Ablation(name="shuffle"))
        assert [phase.name for phase in plan] == names


def test_the_rest_of_a_training_that_began_before_is_followed_by_a_whole_one() -> None:
    plan = plan_of(TopKAST(update_until=0.5), epochs=8, ablation=Ablation(name="redraw"))
    assert [(phase.name, phase.epochs) for phase in plan] == [("explore", 4), ("settle", 4), ("retrain", 8)]
    assert (plan[-1].lr.schedule_start, plan[-1].lr.schedule_epochs) == (0, None)
    assert [phase.name for phase in plan_of(IMP(rounds=1), epochs=8, ablation=Ablation(name="redraw"))] == [
        "begin",
        "dense",
        "round 1",  # which begins with a rewinding anyway
    ]


@pytest.mark.parametrize("name", ["shuffle", "redraw", "positions", "rewind"])
def test_the_same_seed_draws_the_same_and_momentum_begins_anew(name: str) -> None:
    first, second = run_with(name)[0], run_with(name)[0]
    assert same(first.tensors(), second.tensors())
    ablation = Ablation(name=name)  # type: ignore[arg-type]
    other = Run(TrainAndPrune(), ablation, seed=5).train()
    assert same(first.tensors(), other.tensors()) == (name == "rewind")
    begun = Run(TrainAndPrune(), ablation).train(epochs=2)
    begun.sparsifier.begin_epoch()
    assert not begun.optimizer.state


@pytest.mark.parametrize("name", ["shuffle", "redraw", "positions", "rewind"])
@pytest.mark.parametrize("stop", [1, 2, 3])
def test_stopping_and_going_on_changes_nothing(name: str, stop: int) -> None:
    ablation = Ablation(name=name, rewind_epoch=1 if name == "rewind" else 0)  # type: ignore[arg-type]

    def train(run: Run, epochs: int, *, skip: int = 0) -> None:
        generator = torch.Generator().manual_seed(1)
        torch.randn(3 * 8 * skip, 6, generator=generator)
        for _ in range(epochs):
            if not run.sparsifier.begin_epoch():
                return
            for _ in range(3):
                run.optimizer.zero_grad()
                inputs = torch.randn(8, 6, generator=generator)
                nn.functional.cross_entropy(run.model(inputs), torch.arange(8) % 4).backward()
                run.optimizer.step()
            run.sparsifier.finish_epoch()

    whole, first, second = (Run(TrainAndPrune(), ablation, seed=seed) for seed in (0, 0, 9))
    train(whole, 10)
    train(first, stop)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.sparsifier.load_state_dict(first.sparsifier.state_dict())
    train(second, 10, skip=stop)
    assert same(whole.tensors(), second.tensors())
    assert whole.sparsifier.mask == second.sparsifier.mask


def test_what_is_shared_says_what_it_remembers() -> None:
    plan = TrainAndPrune().plan(3)
    assert ablated(plan, Ablation(), epochs=3) == plan
    shuffled = ablated(plan, Ablation(name="shuffle"), epochs=3)
    assert [phase.cache_key for phase in shuffled] == ["dense", None]
    rewound = ablated(plan, Ablation(name="rewind", rewind_epoch=1), epochs=3)
    assert [phase.cache_key for phase in rewound] == ["dense; remembers the weights of epoch 1", None]


def test_what_makes_no_sense_is_one_sentence() -> None:
    with pytest.raises(OptionError, match="`rewind_epoch` belongs to the ablation `rewind`"):
        Ablation(name="shuffle", rewind_epoch=2)
    with pytest.raises(OptionError, match="begins after at most 2; got 3"):
        Run(TrainAndPrune(), Ablation(name="rewind", rewind_epoch=3))
    with pytest.raises(OptionError, match="this method has made none"):
        Run(hypersparse.Dense(), Ablation(name="shuffle")).train()


def test_a_phase_that_ended_early_may_not_have_reached_the_epoch() -> None:
    short = Phase("short", epochs=5, stop_when=lambda _: True, on_exit=keep_largest)
    model = network()
    plan = ablated([short, Phase("last", epochs=1)], Ablation(name="rewind", rewind_epoch=4), epochs=1)
    sparsifier = Sparsifier(model, torch.optim.SGD(model.parameters(), lr=0.1), plan, on_collapse="ignore")
    sparsifier.begin_epoch()
    sparsifier.state.optimizer.step()
    sparsifier.finish_epoch()
    with pytest.raises(OptionError, match="began after 1 epoch this time"):
        sparsifier.begin_epoch()
