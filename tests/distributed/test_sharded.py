"""Choosing the largest weights of layers that are sharded over ranks, without gathering them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from hypersparse.distributed.shards import Shards, Ties, largest_number, local, sharded_like
from hypersparse.errors import ModelError
from hypersparse.sparsity.mask import Mask
from tests.distributed.processes import in_processes

pytestmark = [pytest.mark.ddp, pytest.mark.slow]
SHAPES = {"a": (7, 5), "b": (3, 4, 2, 2), "c": (1, 9)}  # on 4 ranks some have no row of `b` and `c`
RULES = {"first": Mask.top, "none": Mask.strictly_above, "all": Mask.at_least}


def scores_of(kind: str, dtype: torch.dtype) -> dict[str, Tensor]:
    torch.manual_seed(0)
    drawn = {name: torch.randn(shape) for name, shape in SHAPES.items()}
    changed = {
        "random": drawn,
        "ties": {name: (2 * layer).round() for name, layer in drawn.items()},
        "zeros": {name: layer.sign() * 0.0 for name, layer in drawn.items()},  # of both signs, which are equal
        "dropped": {name: layer.masked_fill(layer < 0, -torch.inf) for name, layer in drawn.items()},
    }[kind]
    return {name: layer.to(dtype) for name, layer in changed.items()}


def choose(kind: str, dtype: torch.dtype) -> None:
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    scores = scores_of(kind, dtype)
    layers = {name: distribute_tensor(layer, mesh, [Shard(0)]) for name, layer in scores.items()}
    shards, part = Shards(layers), torch.cat([local(layer).flatten() for layer in layers.values()])
    everything = torch.cat([layer.flatten() for layer in scores.values()])
    for keep in (1, 30, 92):
        assert shards.group.kth_largest(part, keep) == everything.sort(descending=True).values[keep - 1]
        ties: Ties
        for ties in ("first", "all") if keep == 1 else ("first", "none", "all"):
            assert_equal(shards.largest(keep, ties), RULES[ties](scores, keep))
    for budget in ({"a": 0, "b": 48, "c": 3}, {"a": 35, "b": 1, "c": 9}):
        assert_equal(shards.largest_by_layer(budget), Mask.top_by_layer(scores, budget))
    assert largest_number(layers) == largest_number(scores) == float(everything.max())
    assert all(torch.equal(local(sharded_like(layers[name], scores[name])), local(layers[name])) for name in layers)


def assert_equal(found: dict[str, Tensor], wanted: Mask) -> None:
    for name in wanted:
        assert torch.equal(found[name].full_tensor(), wanted[name]), name  # type: ignore[attr-defined]


def choose_all() -> None:
    for kind in ("random", "ties", "zeros", "dropped"):
        choose(kind, torch.float32)
    for dtype in (torch.float64, torch.bfloat16):
        choose("random", dtype)


@pytest.mark.parametrize("count", [1, 4])
def test_any_number_of_ranks_chooses_what_one_process_does(tmp_path: Path, count: int) -> None:
    in_processes(count, choose_all, tmp_path)


def refuse() -> None:
    mesh = init_device_mesh("cpu", (2,))
    rows, columns = (distribute_tensor(torch.ones(4, 4), mesh, [Shard(dimension)]) for dimension in (0, 1))
    for layers in ({"a": rows, "b": columns}, {"a": rows, "b": torch.ones(4, 4)}):
        with pytest.raises(ModelError, match=r"`b` is laid out as .* `fully_shard` alone"):
            Shards(layers)


def test_other_layouts_are_refused(tmp_path: Path) -> None:
    in_processes(2, refuse, tmp_path)
