"""`attach` where `fully_shard` spreads the weights over ranks."""

import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard

import hypersparse
from hypersparse import GMP, SET, SNIP, Dense, GraSP, Magnitude, Method, RigL, Sparsifier, SynFlow, Task, TopKAST
from hypersparse.distributed import Ranks
from hypersparse.distributed.checkpoint import load_checkpoint, save_checkpoint
from hypersparse.distributed.shards import local
from hypersparse.errors import LoopError, ModelError, OptionError, RunError
from hypersparse.methods.task import accuracy
from tests.distributed.processes import in_processes
from tests.plain_loop import batches, cross_entropy, sgd, short_art

pytestmark = [pytest.mark.ddp, pytest.mark.slow, pytest.mark.filterwarnings("ignore:Pruning still cost accuracy")]
METHODS: dict[str, Method] = {
    "art": short_art(max_regularized_epochs=4),
    "art_authors": short_art(max_regularized_epochs=2, tie_rule="authors"),
    "art_l1": short_art(max_regularized_epochs=2, penalty="l1"),
    "magnitude": Magnitude(sparsity=0.8, dense_epochs=1),
    "magnitude_erk": Magnitude(sparsity=0.8, dense_epochs=1, distribution="erk"),
    "gmp": GMP(sparsity=0.8, start=0.0, end=0.9),
    "rigl": RigL(sparsity=0.8, distribution="erk", search=1.0, update_every=2),
    "snip": SNIP(sparsity=0.8, data="batch"),
}
Found = dict[str, Any]


class Network(nn.Module):
    """Without batch norm, whose statistics are of a rank's own samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 12)
        self.norm = nn.LayerNorm(12)
        self.last = nn.Linear(12, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.first(inputs)).tanh())  # type: ignore[no-any-return]


def network() -> nn.Module:
    torch.manual_seed(0)
    return Network()


def sharded() -> nn.Module:
    model = network()
    fully_shard(model.get_submodule("first"))
    fully_shard(model)
    return model


def share() -> list[Any]:
    """This rank's samples of each batch."""
    size, rank = distributed.get_world_size(), distributed.get_rank()
    return [(inputs[rank::size], labels[rank::size]) for inputs, labels in batches()]


def train(model: nn.Module, method: Method, loader: list[Any], **options: Any) -> Sparsifier:
    task = Task(cross_entropy, loader)
    sparsifier = hypersparse.attach(model, sgd(model), method, epochs=2, task=task, **options)
    for _ in sparsifier.epochs():
        train_epoch(sparsifier, loader)
    return sparsifier


def train_epoch(sparsifier: Sparsifier, loader: list[Any]) -> None:
    sparsifier.state.model.train()
    for inputs, labels in loader:
        loss = cross_entropy(sparsifier.state.model(inputs), labels)
        sparsifier.state.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sparsifier.state.optimizer.step()


def outcome(sparsifier: Sparsifier) -> Found:
    whole: dict[str, Any] = {name: weight.detach() for name, weight in sparsifier.weights.items()}
    whole = {name: weight.full_tensor() if hasattr(weight, "full_tensor") else weight for name, weight in whole.items()}
    assert sparsifier.mask is not None
    return {"epochs": sparsifier.total_epoch, "kept": sparsifier.mask.kept_by_layer(), **whole}


def train_sharded() -> dict[str, Found]:
    return {name: outcome(train(sharded(), method, share())) for name, method in METHODS.items()}


@pytest.mark.parametrize("count", [2, 4])
def test_shards_are_pruned_as_the_whole_network_is(tmp_path: Path, count: int) -> None:
    first, *others = in_processes(count, train_sharded, tmp_path)
    for name, method in METHODS.items():
        alone = outcome(train(network(), method, batches()))
        assert first[name]["epochs"] == alone["epochs"], name
        assert first[name]["kept"] == alone["kept"], name
        for layer in ("first.weight", "last.weight"):
            assert all(torch.equal(first[name][layer], other[name][layer]) for other in others)
            assert torch.equal(first[name][layer] == 0, alone[layer] == 0), name
            torch.testing.assert_close(first[name][layer], alone[layer], rtol=1e-4, atol=1e-5)


def train_in_groups_of_their_own() -> Found:
    """As `fully_shard` makes a group for each call where the default one is gloo's and there are GPUs."""
    model = network()
    for module in (model.get_submodule("first"), model):
        fully_shard(module, mesh=DeviceMesh.from_group(distributed.new_group(), "cpu"))
    return outcome(train(model, METHODS["art"], share()))


def test_calls_may_shard_over_groups_of_the_same_ranks(tmp_path: Path) -> None:
    found = in_processes(2, train_in_groups_of_their_own, tmp_path)
    alone = outcome(train(network(), METHODS["art"], batches()))
    assert [(each["epochs"], each["kept"]) for each in found] == [(alone["epochs"], alone["kept"])] * 2


def refuse() -> None:
    for method in (SET(sparsity=0.8), SynFlow(sparsity=0.8), TopKAST(sparsity=0.8), GraSP(sparsity=0.8), Dense()):
        with pytest.raises(OptionError, match=rf"{type(method).__name__} needs whole weights on every rank"):
            train(sharded(), method, share())
    with pytest.raises(OptionError, match=r"leave out `ablation`, .* and `penalty=\"loss\"`"):
        train(sharded(), short_art(), share(), penalty="loss")
    with pytest.raises(ModelError, match=r"by `torch\.distributed\.fsdp\.fully_shard` instead"):
        train(FullyShardedDataParallel(network(), device_id=torch.device("cpu")), short_art(), share())
    model = network()
    sparsifier = hypersparse.attach(model, sgd(model), Magnitude(sparsity=0.8), epochs=1)
    fully_shard(model)
    with pytest.raises(LoopError, match="Call it first, then make the optimizer and attach"):
        next(sparsifier.epochs())


def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    in_processes(2, refuse, tmp_path)


def score_uneven() -> list[Any]:
    model, task = sharded(), Task(cross_entropy, batches()[: 1 + distributed.get_rank()], ranks=Ranks())
    found: list[Any] = [task.score(model)]
    for loader, metric in ((batches()[: distributed.get_rank()], accuracy), (share(), fails_on_1)):
        with pytest.raises((LoopError, OptionError, ZeroDivisionError)) as error:
            Task(cross_entropy, loader, metric=metric, ranks=Ranks()).score(model)
        found.append(str(error.value))
    return found


def fails_on_1(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if distributed.get_rank():
        raise ZeroDivisionError("no samples")
    return accuracy(outputs, labels)


def test_ranks_score_loaders_of_other_lengths_and_fail_together(tmp_path: Path) -> None:
    first, second = in_processes(2, score_uneven, tmp_path, timeout=20.0)
    assert first[0] == second[0] == Task(cross_entropy, [batches()[0], *batches()[:2]]).score(network())
    assert "gave no batch" in first[1]
    assert first[1] == second[1]
    assert (first[2], second[2]) == ("Rank 1 failed with ZeroDivisionError: no samples", "no samples")


def part_of_epochs(sparsifier: Sparsifier, count: int) -> None:
    """Stop in the body of the last one's loop, where an epoch is still open."""
    for epoch in sparsifier.epochs():
        train_epoch(sparsifier, share())
        if epoch == count - 1:
            return


def fresh(method: Method, **options: Any) -> Sparsifier:
    model, task = sharded(), Task(cross_entropy, share())
    return hypersparse.attach(
        model, torch.optim.AdamW(model.parameters(), lr=0.02), method, epochs=2, task=task, **options
    )


SAVED: dict[str, tuple[Method, int]] = {
    "art": (short_art(max_regularized_epochs=4), 5),  # in the third regularized epoch, with two pruned copies
    "gmp": (GMP(sparsity=0.8, start=0.0, end=0.9), 1),
    "rigl": (RigL(sparsity=0.8, distribution="erk", search=1.0, update_every=2), 1),
}


def save(folder: str) -> dict[str, Found]:
    found = {}
    for name, (method, count) in SAVED.items():
        sparsifier = fresh(method)
        part_of_epochs(sparsifier, count)
        for _ in range(2):  # the second replaces the first
            save_checkpoint(f"{folder}/{name}", sparsifier)
        for _ in sparsifier.epochs():
            train_epoch(sparsifier, share())
        found[name] = outcome(sparsifier)
    return found


def resume(folder: str) -> dict[str, Found]:
    found = {}
    for name, (method, count) in SAVED.items():
        torch.manual_seed(7)
        sparsifier = fresh(method)
        load_checkpoint(f"{folder}/{name}", sparsifier)
        assert sparsifier.total_epoch == count - 1
        assert all(state["step"] == 3 * count for state in sparsifier.state.optimizer.state.values())
        for _ in sparsifier.epochs():
            train_epoch(sparsifier, share())
        found[name] = outcome(sparsifier)
    return found


@pytest.mark.parametrize("count", [1, 4])
def test_a_checkpoint_is_loaded_on_another_number_of_ranks(tmp_path: Path, count: int) -> None:
    wanted = in_processes(2, save, tmp_path, str(tmp_path))[0]
    found = in_processes(count, resume, tmp_path, str(tmp_path))[0]
    for name in SAVED:
        assert sorted(tmp_path.glob(f".{name}*")) == []
        assert found[name]["epochs"] == wanted[name]["epochs"]
        assert found[name]["kept"] == wanted[name]["kept"]
        for layer in ("first.weight", "last.weight"):
            assert torch.equal(found[name][layer] == 0, wanted[name][layer] == 0), name
            torch.testing.assert_close(found[name][layer], wanted[name][layer], rtol=1e-3, atol=1e-4)


def save_one(folder: str) -> None:
    sparsifier = fresh(GMP(sparsity=0.8))
    part_of_epochs(sparsifier, 1)
    save_checkpoint(f"{folder}/saved", sparsifier)
    whole = network()
    unsharded = hypersparse.attach(whole, sgd(whole), GMP(sparsity=0.8), epochs=2)
    for other, said in ((fresh(GMP(sparsity=0.9)), "saved at sparsity 0.8"), (unsharded, "call `fully_shard` on the")):
        with pytest.raises((OptionError, RunError), match=said):
            load_checkpoint(f"{folder}/saved", other)
    with pytest.raises(RunError, match="nothing could not be read: "):
        load_checkpoint(f"{folder}/nothing", sparsifier)
    distributed.barrier()
    if distributed.get_rank() == 1:  # as where the ranks see other folders
        shutil.copytree(f"{folder}/saved", f"{folder}/own")
        Path(folder, "saved", ".metadata").unlink()
    distributed.barrier()
    mine = "own" if distributed.get_rank() else "saved"
    with pytest.raises(RunError, match="saved could not be read: "):
        load_checkpoint(f"{folder}/{mine}", sparsifier)


def test_another_checkpoint_is_refused_in_one_sentence(tmp_path: Path) -> None:
    in_processes(2, save_one, tmp_path, str(tmp_path))


def test_a_table_that_promises_more_than_there_is_is_refused(tmp_path: Path) -> None:
    model = network()
    sparsifier = hypersparse.attach(model, sgd(model), GMP(sparsity=0.8), epochs=2)
    save_checkpoint(tmp_path / "saved", sparsifier)
    file = tmp_path / "saved" / ".metadata"
    table = pickle.loads(file.read_bytes())
    table.state_dict_metadata["plan"].size = torch.Size([10**15])
    file.write_bytes(pickle.dumps(table))
    with pytest.raises(RunError, match="it names tensors of 1,000,000,000,000,000 bytes"):
        load_checkpoint(tmp_path / "saved", sparsifier)


def test_one_process_saves_and_loads_too(tmp_path: Path) -> None:
    """Without torch.distributed, as after a training by several processes."""
    found: list[Found] = []
    for _ in range(2):
        model = network()
        sparsifier = hypersparse.attach(model, sgd(model), short_art(), epochs=2, task=Task(cross_entropy, batches()))
        if found:
            load_checkpoint(tmp_path / "saved", sparsifier)
        for epoch in sparsifier.epochs():
            train_epoch(sparsifier, batches())
            if epoch == 4 and not found:
                save_checkpoint(tmp_path / "saved", sparsifier)
        found.append(outcome(sparsifier))
    assert found[0]["kept"] == found[1]["kept"]
    assert all(torch.equal(found[0][name], found[1][name]) for name in ("first.weight", "last.weight"))


LIMITS: dict[str, Any] = {"densities": {"last": 0.5}, "min_density": 0.05}


def train_within_limits() -> dict[str, Found]:
    return {name: outcome(train(sharded(), METHODS[name], share(), **LIMITS)) for name in ("art", "gmp", "rigl")}


def test_layers_keep_their_densities(tmp_path: Path) -> None:
    first, _ = in_processes(2, train_within_limits, tmp_path)
    for name, found in first.items():
        alone = outcome(train(network(), METHODS[name], batches(), **LIMITS))
        assert found["kept"] == alone["kept"], name
        assert found["kept"]["last.weight"] == 18
        assert torch.equal(found["first.weight"] == 0, alone["first.weight"] == 0), name


def train_replicated() -> Found:
    """Two replicas of two shards, gathered weights that are kept, and a forward in bfloat16."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = network()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    found = outcome(train(model, short_art(max_regularized_epochs=3), share()))
    spoiled = next(iter(model.parameters()))
    if distributed.get_rank() == 3:
        local(spoiled).mul_(-100)
    weights = hypersparse.PrunableWeights(model)
    weights.set_mask_(weights.select(hypersparse.scores.magnitude(weights), 20))
    with pytest.raises(LoopError, match="The mask of rank 2 is not that of rank 0"):
        Ranks().check_same(weights.mask)
    return found


def test_replicas_of_shards_have_the_same_masks(tmp_path: Path) -> None:
    first, *others = in_processes(4, train_replicated, tmp_path)
    assert sum(first["kept"].values()) == 22
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in ("first.weight", "last.weight"))
        assert int(first["first.weight"].count_nonzero() + first["last.weight"].count_nonzero()) <= 22
