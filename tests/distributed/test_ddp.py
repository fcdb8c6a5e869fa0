"""`attach` in loops of several processes: DistributedDataParallel, samples that differ from rank to rank."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import hypersparse
from hypersparse import GMP, SNIP, GraSP, IterSNIP, Magnitude, Method, RigL, Sparsifier, SynFlow, Task
from hypersparse.distributed import Ranks
from hypersparse.errors import LoopError, OptionError
from hypersparse.methods import registry
from hypersparse.sparsity import scores
from tests.distributed.processes import in_processes
from tests.plain_loop import attached, batches, cross_entropy, epochs_of, network, sgd, short_art, train_step

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
DEFAULTS: dict[str, Any] = {name: registry.find(name) for name in registry.names() if name != "dense"}
METHODS: dict[str, Method] = {
    **{name: method(sparsity=0.8) for name, method in DEFAULTS.items()},
    "art": short_art(max_regularized_epochs=4),
    "snip": SNIP(sparsity=0.8, data="batch"),
    "iter_snip": IterSNIP(sparsity=0.8, per_class=2, rounds=3),
    "grasp": GraSP(sparsity=0.8, per_class=2),
    "synflow": SynFlow(sparsity=0.8, rounds=5),
    "gmp": GMP(sparsity=0.8, start=0.0, end=0.9),
    "rigl": RigL(sparsity=0.8, distribution="erk", search=1.0, update_every=2),
}
Found = dict[str, Any]


def dataset() -> TensorDataset:
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(), strict=True))
    return TensorDataset(inputs, labels)


def sharded_loader() -> "DataLoader[Any]":
    return DataLoader(dataset(), batch_size=8, sampler=DistributedSampler(dataset(), shuffle=False))


def train(sparsifier: Sparsifier, model: nn.Module, loader: "DataLoader[Any]") -> Found:
    for _ in sparsifier.epochs():
        model.train()
        for inputs, labels in loader:
            loss = cross_entropy(model(inputs), labels)
            sparsifier.state.optimizer.zero_grad()
            loss.backward()
            sparsifier.state.optimizer.step()
    return outcome(sparsifier)


def outcome(sparsifier: Sparsifier) -> Found:
    assert sparsifier.mask is not None
    weights = {name: weight.detach().clone() for name, weight in sparsifier.weights.items()}
    assert not any(weight[~sparsifier.mask[name]].any() for name, weight in weights.items())
    return {"epochs": sparsifier.total_epoch, "kept": sparsifier.mask.kept, **weights}


def train_all(order: str) -> dict[str, Found]:
    return {name: train_one(method, order) for name, method in METHODS.items()}


def train_one(method: Method, order: str) -> Found:
    """Weights of rank 0, but random numbers, batches and scored samples of this rank's own."""
    model, loader = network(), sharded_loader()
    wrapped: nn.Module = model if order == "after" else nn.parallel.DistributedDataParallel(model)
    torch.manual_seed(distributed.get_rank())
    sparsifier = attached(wrapped, sgd(model), method, task=Task(cross_entropy, loader))
    if order == "after":
        wrapped = nn.parallel.DistributedDataParallel(model)
    return train(sparsifier, wrapped, loader)


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
@pytest.mark.parametrize(("count", "order"), [(2, "before"), (4, "after")])
def test_ranks_with_their_own_samples_and_seeds_agree_on_everything(tmp_path: Path, count: int, order: str) -> None:
    first, *others = in_processes(count, train_all, tmp_path, order)
    for name in METHODS:
        assert first[name]["kept"] == 22
        for other in others:
            assert all(torch.equal(torch.as_tensor(first[name][key]), torch.as_tensor(other[name][key]))
                       for key in first[name]), name  # fmt: skip


def plain_network() -> nn.Module:
    """Without norms, whose statistics are of a rank's own batch."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))


def total(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs[:, 0] * labels).sum()


def score_shares() -> dict[str, Any]:
    model = plain_network()
    weights, ranks = hypersparse.PrunableWeights(model), Ranks()
    rows = slice(distributed.get_rank(), None, 2)
    share = [(inputs[rows], labels[rows]) for inputs, labels in batches()]
    return {
        "accuracy": Task(cross_entropy, sharded_loader(), ranks=ranks).score(model),
        "total": Task(cross_entropy, sharded_loader(), metric=total, metric_over_dataset=True, ranks=ranks).score(
            model
        ),
        "snip": scores.snip(model, weights, share, cross_entropy, ranks=ranks),
        "grasp": scores.grasp(model, weights, share, cross_entropy, ranks=ranks),
    }


def test_scores_are_those_of_one_process_with_all_samples(tmp_path: Path) -> None:
    first, second = in_processes(2, score_shares, tmp_path)
    model = plain_network()
    weights = hypersparse.PrunableWeights(model)
    assert first["accuracy"] == second["accuracy"] == Task(cross_entropy, batches()).score(model)
    alone = Task(cross_entropy, batches(), metric=total, metric_over_dataset=True).score(model)
    assert first["total"] == second["total"] == pytest.approx(alone, rel=1e-5)
    for name, score in {"snip": scores.snip, "grasp": scores.grasp}.items():
        for layer, wanted in score(model, weights, batches(), cross_entropy).items():
            assert torch.equal(first[name][layer], second[name][layer])
            torch.testing.assert_close(first[name][layer], wanted, rtol=1e-4, atol=1e-7)


def grasp_with_synchronized_norms() -> list[dict[str, Tensor]]:
    batch, found = batches()[distributed.get_rank()], []
    for model in (network(), nn.SyncBatchNorm.convert_sync_batchnorm(network())):
        weights = hypersparse.PrunableWeights(model)
        found.append(scores.grasp(model, weights, [batch], cross_entropy, ranks=Ranks()))
    return found


def test_grasp_takes_synchronized_norms_alone(tmp_path: Path) -> None:
    """They cannot be differentiated twice, and on a CPU not once."""
    for plain, synchronized in in_processes(2, grasp_with_synchronized_norms, tmp_path):
        assert plain.keys() == synchronized.keys()
        assert all(torch.equal(plain[layer], synchronized[layer]) for layer in plain)


def attach_first(join: Callable[[], None]) -> Found:
    model = network()
    sparsifier = attached(model, sgd(model), Magnitude(sparsity=0.8, dense_epochs=1))
    join()
    return train(sparsifier, nn.parallel.DistributedDataParallel(model), sharded_loader())


def test_attached_before_the_processes_are_joined(tmp_path: Path) -> None:
    first, second = in_processes(2, attach_first, tmp_path, joined=False)
    assert first["kept"] == second["kept"] == 22
    assert torch.equal(first["last.weight"], second["last.weight"])


def prune_others() -> str:
    sparsifier = attached(network(distributed.get_rank()), None, Magnitude(sparsity=0.8, dense_epochs=1))  # not in DDP
    with pytest.raises(LoopError, match="The mask of rank 1 is not that of rank 0"):
        list(epochs_of(sparsifier))
    return "said"


def test_another_mask_raises_on_all_ranks(tmp_path: Path) -> None:
    assert in_processes(2, prune_others, tmp_path) == ["said", "said"]


def load_on_one() -> None:
    for count in (1, 3):  # at the end of an epoch, and in one that is open
        saved: dict[str, Any] = {}
        for loads in (False, distributed.get_rank() == 0):
            model = network()
            sparsifier = attached(nn.parallel.DistributedDataParallel(model), sgd(model))
            if loads:
                sparsifier.load_state_dict(saved)
            if saved:
                with pytest.raises(LoopError, match=r"Rank 1 is at phase pre-train .* load the same state on all"):
                    list(epochs_of(sparsifier))
                continue
            for number, _ in enumerate(epochs_of(sparsifier), start=1):
                if number == count:
                    saved = sparsifier.state_dict()
                    break


def test_a_state_that_only_one_rank_loads_raises_on_all(tmp_path: Path) -> None:
    in_processes(2, load_on_one, tmp_path, timeout=20.0)


def train_uneven(kind: str) -> str:
    """What rank 1 has less of: a batch, all batches, or the end of its training."""
    model = network()
    wrapped, others = nn.parallel.DistributedDataParallel(model), distributed.get_rank() == 0
    own = batches() if others else {"shorter": batches()[:2], "empty": [], "failing": batches()}[kind]
    sparsifier = attached(wrapped, sgd(model))
    try:
        for epoch in sparsifier.epochs():
            if epoch == 1 and kind == "failing" and not others:
                raise ZeroDivisionError("no samples")
            for inputs, labels in own:
                train_step(sparsifier, inputs, labels)
    except (LoopError, RuntimeError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return "trained"


@pytest.mark.parametrize("kind", ["shorter", "empty", "failing"])
def test_a_rank_that_does_less_ends_all_with_an_error(tmp_path: Path, kind: str) -> None:
    other, less = in_processes(2, train_uneven, tmp_path, kind, timeout=4.0)
    assert other.startswith(("LoopError", "RuntimeError"))  # of DDP, while it adds gradients
    if kind == "failing":
        assert less == "ZeroDivisionError: no samples"
    else:
        assert less.startswith("LoopError: The ranks did not meet")
        assert "loaders of the same length" in less


def fail_alone() -> str:
    def metric(outputs: Tensor, labels: Tensor) -> Tensor:
        raise ZeroDivisionError("no samples")

    task = Task(cross_entropy, batches(), **({"metric": metric} if distributed.get_rank() else {}))
    sparsifier = attached(network(), None, short_art(), task=task)
    with pytest.raises((LoopError, ZeroDivisionError), match="no samples"):
        list(epochs_of(sparsifier))
    without = Task(cross_entropy, batches() if distributed.get_rank() else [])
    with pytest.raises(OptionError, match="gave no batch"):
        next(attached(network(), None, SNIP(sparsity=0.8), task=without).epochs())
    return "said"


def test_an_error_in_a_score_raises_on_all_ranks(tmp_path: Path) -> None:
    assert in_processes(2, fail_alone, tmp_path) == ["said", "said"]


def part_of_epochs(sparsifier: Sparsifier, model: nn.Module, count: int) -> Iterator[int]:
    for epoch in sparsifier.epochs():
        model.train()
        for inputs, labels in sharded_loader():
            train_step(sparsifier, inputs, labels)
        if epoch == count:
            return
        yield epoch


def resume(folder: str) -> Found:
    """Rank 0 alone saves; all load what it saved."""
    found = {}
    for stop in (1, None):
        model = network()
        wrapped = nn.parallel.DistributedDataParallel(model)
        sparsifier = attached(wrapped, sgd(model), short_art(max_regularized_epochs=3))
        parts = {"model": model, "optimizer": sparsifier.state.optimizer, "sparsifier": sparsifier}
        if stop is None:
            saved = torch.load(f"{folder}/saved.pt", weights_only=True)
            for name, part in parts.items():
                part.load_state_dict(saved[name])  # type: ignore[attr-defined]
        for _ in part_of_epochs(sparsifier, wrapped, -1 if stop is None else stop):
            pass
        if stop is not None and distributed.get_rank() == 0:
            torch.save({name: part.state_dict() for name, part in parts.items()}, f"{folder}/saved.pt")  # type: ignore[attr-defined]
        distributed.barrier()
        found = outcome(sparsifier) if stop is None else {}
    return found


@pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")
def test_rank_0_alone_saves_and_all_resume(tmp_path: Path) -> None:
    first, second = in_processes(2, resume, tmp_path, str(tmp_path))
    assert all(torch.equal(torch.as_tensor(first[key]), torch.as_tensor(second[key])) for key in first)
